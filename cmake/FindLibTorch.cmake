# Finds LibTorch without its own CMake config, which insists on a CUDA toolkit. Makes the target LibTorch::CPU and, where the
# CUDA half of LibTorch and the CUDA and NCCL headers are found, LibTorch::CUDA; else LibTorch_CUDA_REASON says what is missing.
#
# TORCH_DIR names the folder that holds include/ and lib/. Without it, the torch package of hp_python is used, and
# TORCH_DIR becomes its folder, as a variable and not in the cache: another environment is found by the next configure.

if(NOT TORCH_DIR)
  execute_process(
    COMMAND ${hp_python} -c "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
    OUTPUT_VARIABLE TORCH_DIR OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()

find_library(LibTorch_CPU_LIBRARY torch_cpu HINTS ${TORCH_DIR}/lib NO_DEFAULT_PATH NO_CACHE)
find_library(LibTorch_C10_LIBRARY c10 HINTS ${TORCH_DIR}/lib NO_DEFAULT_PATH NO_CACHE)
find_path(LibTorch_INCLUDE_DIR ATen/ATen.h HINTS ${TORCH_DIR}/include NO_DEFAULT_PATH NO_CACHE)
set(_hp_version_header ${LibTorch_INCLUDE_DIR}/torch/headeronly/version.h)
if(EXISTS ${_hp_version_header})
  file(STRINGS ${_hp_version_header} _hp_version REGEX "define TORCH_VERSION_[MP]")
  string(REGEX REPLACE "[^0-9]+([0-9]+)" "\\1." LibTorch_VERSION "${_hp_version}")
  string(REGEX REPLACE "\\.$" "" LibTorch_VERSION "${LibTorch_VERSION}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LibTorch_CPU_LIBRARY LibTorch_C10_LIBRARY LibTorch_INCLUDE_DIR
  VERSION_VAR LibTorch_VERSION
  REASON_FAILURE_MESSAGE "set TORCH_DIR to a folder that holds LibTorch's include/ and lib/, or run 'make deps'")

if(LibTorch_FOUND AND NOT TARGET LibTorch::CPU)
  add_library(LibTorch::C10 SHARED IMPORTED)
  set_target_properties(LibTorch::C10 PROPERTIES IMPORTED_LOCATION ${LibTorch_C10_LIBRARY})
  add_library(LibTorch::CPU SHARED IMPORTED)
  set_target_properties(LibTorch::CPU PROPERTIES
    IMPORTED_LOCATION ${LibTorch_CPU_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES
      "${LibTorch_INCLUDE_DIR};${LibTorch_INCLUDE_DIR}/torch/csrc/api/include"
    INTERFACE_COMPILE_DEFINITIONS "_GLIBCXX_USE_CXX11_ABI=1"
    INTERFACE_LINK_LIBRARIES LibTorch::C10)
endif()

# The headers are those of the CUDA packages beside torch, or of a toolkit.
if(LibTorch_FOUND AND NOT TARGET LibTorch::CUDA)
  cmake_path(SET _hp_packages NORMALIZE ${LibTorch_INCLUDE_DIR}/../../nvidia)
  file(GLOB _hp_cuda_hints ${_hp_packages}/cu*)
  list(APPEND _hp_cuda_hints $ENV{CUDA_HOME} /usr/local/cuda)
  find_library(LibTorch_CUDA_LIBRARY torch_cuda HINTS ${TORCH_DIR}/lib NO_DEFAULT_PATH NO_CACHE)
  find_library(LibTorch_C10_CUDA_LIBRARY c10_cuda HINTS ${TORCH_DIR}/lib NO_DEFAULT_PATH NO_CACHE)
  find_path(LibTorch_CUDART_INCLUDE_DIR cuda_runtime_api.h HINTS ${_hp_cuda_hints} PATH_SUFFIXES include NO_CACHE)
  find_path(LibTorch_CRT_INCLUDE_DIR crt/host_defines.h HINTS ${_hp_cuda_hints} PATH_SUFFIXES include NO_CACHE)
  find_path(LibTorch_CCCL_INCLUDE_DIR nv/target HINTS ${_hp_cuda_hints} PATH_SUFFIXES include include/cccl NO_CACHE)
  find_path(LibTorch_NCCL_INCLUDE_DIR nccl.h HINTS ${_hp_packages}/nccl ${_hp_cuda_hints} PATH_SUFFIXES include NO_CACHE)
  find_library(LibTorch_CUDART_LIBRARY NAMES cudart libcudart.so.13 libcudart.so.12 NAMES_PER_DIR
    HINTS ${_hp_cuda_hints} PATH_SUFFIXES lib lib64 NO_CACHE)
  set(LibTorch_CUDA_REASON "")
  foreach(_hp_part CUDA_LIBRARY C10_CUDA_LIBRARY CUDART_INCLUDE_DIR CRT_INCLUDE_DIR CCCL_INCLUDE_DIR NCCL_INCLUDE_DIR
      CUDART_LIBRARY)
    if(NOT LibTorch_${_hp_part})
      string(APPEND LibTorch_CUDA_REASON " LibTorch_${_hp_part}")
    endif()
  endforeach()
  if(LibTorch_CUDA_REASON)
    string(PREPEND LibTorch_CUDA_REASON "not found:")
  else()
    add_library(LibTorch::C10CUDA SHARED IMPORTED)
    set_target_properties(LibTorch::C10CUDA PROPERTIES IMPORTED_LOCATION ${LibTorch_C10_CUDA_LIBRARY})
    add_library(LibTorch::CUDART SHARED IMPORTED)
    set_target_properties(LibTorch::CUDART PROPERTIES IMPORTED_LOCATION ${LibTorch_CUDART_LIBRARY})
    add_library(LibTorch::CUDA SHARED IMPORTED)
    set_target_properties(LibTorch::CUDA PROPERTIES
      IMPORTED_LOCATION ${LibTorch_CUDA_LIBRARY}
      INTERFACE_INCLUDE_DIRECTORIES
        "${LibTorch_CUDART_INCLUDE_DIR};${LibTorch_CRT_INCLUDE_DIR};${LibTorch_CCCL_INCLUDE_DIR};${LibTorch_NCCL_INCLUDE_DIR}"
      INTERFACE_LINK_LIBRARIES "LibTorch::CPU;LibTorch::C10CUDA;LibTorch::CUDART")
  endif()
endif()
