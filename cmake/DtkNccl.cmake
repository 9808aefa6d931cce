# dtk_nccl(<source>): libdtk_nccl.so, LibTorch's group of NCCL, where LibTorch is for CUDA and nccl.h is there. Programs load
# it at run time and link nothing of it: it finds libtorch_cuda in the process, and needs of NCCL and CUDA headers alone.
function(dtk_nccl source)
  if(NOT EXISTS "${DTK_TORCH_ROOT}/lib/libtorch_cuda.so")
    message(STATUS "libdtk_nccl.so is left out: LibTorch in ${DTK_TORCH_ROOT} is not for CUDA")
    return()
  endif()
  cmake_path(GET DTK_TORCH_ROOT PARENT_PATH beside)  # of a wheel: what its own wheels brought
  file(GLOB runtimes "${beside}/nvidia/cu[0-9]*/include")
  find_path(DTK_NCCL_INCLUDE nccl.h HINTS "${beside}/nvidia/nccl/include")
  find_path(DTK_CUDART_INCLUDE cuda_runtime_api.h HINTS ${runtimes} ENV CUDA_HOME PATH_SUFFIXES include
            PATHS /usr/local/cuda)
  if(NOT DTK_NCCL_INCLUDE OR NOT DTK_CUDART_INCLUDE)
    message(STATUS "libdtk_nccl.so is left out: nccl.h or cuda_runtime_api.h was not found")
    return()
  endif()
  add_library(dtk_nccl MODULE "${source}")
  target_link_libraries(dtk_nccl PRIVATE dtk::torch)
  dtk_configure_target(dtk_nccl)
  target_compile_definitions(dtk_nccl PRIVATE USE_C10D_NCCL)
  target_include_directories(dtk_nccl SYSTEM PRIVATE "${DTK_NCCL_INCLUDE}" "${DTK_CUDART_INCLUDE}")
  target_compile_options(dtk_nccl PRIVATE "-fmacro-prefix-map=${DTK_TORCH_ROOT}/=")
  if(DTK_HARDEN)
    target_link_options(dtk_nccl PRIVATE LINKER:-z,relro LINKER:-z,noexecstack)
  endif()
  # No run path: what it needs is in the process before it.
  set_target_properties(dtk_nccl PROPERTIES CXX_VISIBILITY_PRESET hidden SKIP_BUILD_RPATH ON
    LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}")
endfunction()
