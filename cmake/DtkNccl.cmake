# dtk_nccl(<source>): libdtk_nccl.so, LibTorch's group of NCCL, where LibTorch is for CUDA and nccl.h is there. Programs load
# it at run time and link nothing of it: it finds libtorch_cuda in the process, and needs of NCCL and CUDA headers alone.
function(dtk_nccl source)
  if(NOT EXISTS "${DTK_TORCH_ROOT}/lib/libtorch_cuda.so")
    message(STATUS "libdtk_nccl.so is left out: LibTorch in ${DTK_TORCH_ROOT} is not for CUDA")
    return()
  endif()
  cmake_path(GET DTK_TORCH_ROOT PARENT_PATH beside)  # of a wheel: what its own wheels brought
  file(GLOB runtimes "${beside}/nvidia/cu[0-9]*/include")
  # Of this LibTorch's NCCL: a header of another lays c10d's options out otherwise.
  find_path(nccl nccl.h PATHS "${beside}/nvidia/nccl/include" NO_DEFAULT_PATH NO_CACHE)
  find_path(runtime cuda_runtime_api.h PATHS ${runtimes} NO_DEFAULT_PATH NO_CACHE)
  if(NOT nccl OR NOT runtime)
    message(STATUS "libdtk_nccl.so is left out: there is no nccl.h, or no cuda_runtime_api.h, in ${beside}/nvidia")
    return()
  endif()
  add_library(dtk_nccl MODULE "${source}")
  target_link_libraries(dtk_nccl PRIVATE dtk::torch)
  dtk_configure_target(dtk_nccl)
  target_compile_definitions(dtk_nccl PRIVATE USE_C10D_NCCL)
  target_include_directories(dtk_nccl SYSTEM PRIVATE "${nccl}" "${runtime}")
  target_compile_options(dtk_nccl PRIVATE "-fmacro-prefix-map=${DTK_TORCH_ROOT}/=")
  # No run path: what it needs is in the process before it.
  set_target_properties(dtk_nccl PROPERTIES CXX_VISIBILITY_PRESET hidden SKIP_BUILD_RPATH ON
    LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}")
endfunction()
