# Compiler options, and the one way to declare a library or a GoogleTest program of hp.

add_compile_options(-Wall -Wextra -Wno-unused-parameter)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  add_compile_options(-Wno-restrict) # false alarms inside std::string
endif()
if(HP_ASAN)
  # LLVM's libraries come without run-time type information, which the vptr check needs.
  add_compile_options(-fsanitize=address,undefined -fno-sanitize=vptr -fno-sanitize-recover=undefined
    -fno-omit-frame-pointer)
  # With sanitizers GCC 12 warns of LibTorch's optional arguments, which are initialized.
  add_compile_options(-Wno-maybe-uninitialized)
  add_link_options(-fsanitize=address,undefined)
endif()

# ccache where it is installed. It stores objects that use a precompiled header only if told not to mind the header's
# time stamps, and GCC must then name the header in its preprocessed output.
find_program(HP_CCACHE ccache DOC "ccache; OFF for none")
if(HP_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${HP_CCACHE})
  add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>)
endif()

# As many compilers at once as there are processors, and 2 GB for each: a file that includes LibTorch takes 1.5 GB.
cmake_host_system_information(RESULT _hp_jobs QUERY NUMBER_OF_LOGICAL_CORES)
cmake_host_system_information(RESULT _hp_megabytes QUERY TOTAL_PHYSICAL_MEMORY)
if(EXISTS /sys/fs/cgroup/memory.max)
  file(READ /sys/fs/cgroup/memory.max _hp_limit LIMIT 32)
  string(STRIP "${_hp_limit}" _hp_limit)
  if(_hp_limit MATCHES "^[0-9]+$")
    math(EXPR _hp_limit "${_hp_limit} / 1048576")
    if(_hp_limit LESS _hp_megabytes)
      set(_hp_megabytes ${_hp_limit})
    endif()
  endif()
endif()
math(EXPR _hp_memory_jobs "${_hp_megabytes} / 2000")
if(_hp_memory_jobs LESS _hp_jobs)
  set(_hp_jobs ${_hp_memory_jobs})
endif()
if(_hp_jobs LESS 1)
  set(_hp_jobs 1)
endif()
set_property(GLOBAL PROPERTY JOB_POOLS compilers=${_hp_jobs})
set(CMAKE_JOB_POOL_COMPILE compilers)

# hp_library(NAME SOURCES... [LINK libraries...])
function(hp_library name)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  add_library(${name} STATIC ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PUBLIC ${ARG_LINK})
endfunction()

# hp_unittest(NAME SOURCES... [LINK libraries...]): a GoogleTest program that `make check` runs.
function(hp_unittest name)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} GTest::gtest GTest::gtest_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/unittests)
  set_property(GLOBAL APPEND PROPERTY HP_UNITTESTS ${name})
endfunction()
