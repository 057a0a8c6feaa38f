# Finds LibTorch without its own CMake config, which insists on a CUDA toolkit. Makes the target LibTorch::CPU.
#
# TORCH_DIR names the folder that holds include/ and lib/. Without it, the project's virtual environment (.venv) is
# searched, then the torch package of the python3 on PATH.

if(NOT TORCH_DIR)
  file(GLOB _hp_torch ${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch)
  if(_hp_torch)
    list(GET _hp_torch 0 _hp_torch)
  else()
    execute_process(
      COMMAND python3 -c "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
      OUTPUT_VARIABLE _hp_torch OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  set(TORCH_DIR "${_hp_torch}" CACHE PATH "A LibTorch to use (the folder that holds include/ and lib/)" FORCE)
endif()

find_library(LibTorch_CPU_LIBRARY torch_cpu HINTS ${TORCH_DIR}/lib NO_DEFAULT_PATH)
find_library(LibTorch_C10_LIBRARY c10 HINTS ${TORCH_DIR}/lib NO_DEFAULT_PATH)
find_path(LibTorch_INCLUDE_DIR ATen/ATen.h HINTS ${TORCH_DIR}/include NO_DEFAULT_PATH)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LibTorch_CPU_LIBRARY LibTorch_C10_LIBRARY LibTorch_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "set TORCH_DIR to a folder that holds LibTorch's include/ and lib/, or run 'make deps'")

if(LibTorch_FOUND AND NOT TARGET LibTorch::CPU)
  add_library(LibTorch::C10 SHARED IMPORTED)
  set_target_properties(LibTorch::C10 PROPERTIES IMPORTED_LOCATION ${LibTorch_C10_LIBRARY})
  add_library(LibTorch::CPU SHARED IMPORTED)
  set_target_properties(LibTorch::CPU PROPERTIES
    IMPORTED_LOCATION ${LibTorch_CPU_LIBRARY}
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES
      "${LibTorch_INCLUDE_DIR};${LibTorch_INCLUDE_DIR}/torch/csrc/api/include"
    INTERFACE_COMPILE_DEFINITIONS "_GLIBCXX_USE_CXX11_ABI=1"
    INTERFACE_LINK_LIBRARIES LibTorch::C10)
  set(CMAKE_BUILD_RPATH ${CMAKE_BUILD_RPATH} ${TORCH_DIR}/lib)
endif()
