# Imported target `torch` from a LibTorch or a torch wheel.
#
# Why not find_package(Torch): with a CUDA build of torch it demands nvcc and the whole toolkit even for
# CPU programs, and its link line drags libtorch_cuda into every process. Programs here link torch_cpu and
# c10 only; libtorch_cuda is loaded with dlopen when a CUDA device is wanted.
if(TARGET torch)
  return()
endif()

set(TORCH_PREFIX "" CACHE PATH "Folder that holds LibTorch's include/ and lib/")

file(GLOB _dtk_private_torch "${CMAKE_CURRENT_SOURCE_DIR}/.deps/venv/lib/python3*/site-packages/torch")
find_library(DTK_TORCH_CPU torch_cpu
  HINTS "${TORCH_PREFIX}" "$ENV{TORCH_PREFIX}" ${CMAKE_PREFIX_PATH} ${_dtk_private_torch}
  PATH_SUFFIXES lib NO_CMAKE_SYSTEM_PATH)
if(NOT DTK_TORCH_CPU)
  message(FATAL_ERROR
    "LibTorch was not found. Either run tests/run or examples/quickstart, which install the torch wheel in "
    "the private folder .deps/, or point to an existing one: -DTORCH_PREFIX=/path/to/libtorch")
endif()

get_filename_component(_dtk_torch_lib "${DTK_TORCH_CPU}" DIRECTORY)
get_filename_component(_dtk_torch_root "${_dtk_torch_lib}" DIRECTORY)
set(DTK_TORCH_LIB_DIR "${_dtk_torch_lib}" CACHE INTERNAL "")

file(STRINGS "${_dtk_torch_root}/include/torch/headeronly/version.h" _dtk_torch_version
     REGEX "define TORCH_VERSION_(MAJOR|MINOR) ")
if(NOT _dtk_torch_version MATCHES "MAJOR 2;.*MINOR 11$")
  message(WARNING "Tested with LibTorch 2.11 only; ${_dtk_torch_root} says: ${_dtk_torch_version}")
endif()

add_library(torch INTERFACE IMPORTED GLOBAL)
target_include_directories(torch SYSTEM INTERFACE
  "${_dtk_torch_root}/include" "${_dtk_torch_root}/include/torch/csrc/api/include")
target_link_directories(torch INTERFACE "${_dtk_torch_lib}")
target_link_libraries(torch INTERFACE torch_cpu c10)
# Released libtorch is built with NDEBUG; some of its structs differ without it.
target_compile_definitions(torch INTERFACE NDEBUG)
# The wheel's libraries find libcudart and friends by their own run path.
target_link_options(torch INTERFACE "LINKER:-rpath,${_dtk_torch_lib}" "LINKER:--allow-shlib-undefined")
