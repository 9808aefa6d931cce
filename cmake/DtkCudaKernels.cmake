# dtk_cuda_kernels(<folder>): libdtk_cuda_kernels.so of the folder's .cu files and its register.cpp, where nvcc is found.
# Programs load it at run time and link nothing of CUDA; it finds libtorch_cuda and the CUDA runtime in the process.
#
# nvcc is called directly: CMake 3.25 knows no CUDA_STANDARD 20 for nvcc 13, and a language CUDA would want a compiler
# for it of everybody.
set(DTK_CUDA_ARCHITECTURES 80 86 89 90 100 120 CACHE STRING "Compute capabilities that have code; the last one PTX too")

function(dtk_cuda_kernels folder)
  find_program(DTK_NVCC nvcc HINTS ENV CUDA_HOME PATH_SUFFIXES bin)
  if(NOT DTK_NVCC)
    message(STATUS "libdtk_cuda_kernels.so is left out: nvcc was not found")
    return()
  endif()
  execute_process(COMMAND "${DTK_NVCC}" --version OUTPUT_VARIABLE version ERROR_QUIET)
  string(REGEX MATCH "release ([0-9]+\\.[0-9]+)" version "${version}")
  set(version "${CMAKE_MATCH_1}")
  if(version VERSION_LESS 12.8)  # the first with compute capability 12.0 and -compress-mode
    message(STATUS "libdtk_cuda_kernels.so is left out: ${DTK_NVCC} is ${version}; 12.8 is needed")
    return()
  endif()
  # The CUDA runtime in a process is LibTorch's, and of another major version than nvcc's it does not serve. A LibTorch
  # without CUDA says nothing: programs may find another one when they start.
  set(runtimes "")
  if(EXISTS "${DTK_TORCH_ROOT}/lib/libc10_cuda.so")
    file(STRINGS "${DTK_TORCH_ROOT}/lib/libc10_cuda.so" runtimes REGEX "^libcudart[^ /@]*\\.so\\.[0-9]+$")
  endif()
  string(REGEX MATCH "^[0-9]+" major "${version}")
  if(runtimes MATCHES "so\\.([0-9]+)" AND NOT CMAKE_MATCH_1 EQUAL major)
    message(STATUS "libdtk_cuda_kernels.so is left out: LibTorch in ${DTK_TORCH_ROOT} was built for CUDA ${CMAKE_MATCH_1}, "
                   "and ${DTK_NVCC} is ${version}")
    return()
  endif()
  file(REAL_PATH "${DTK_NVCC}" nvcc)
  cmake_path(GET nvcc PARENT_PATH toolkit)
  find_library(DTK_CUDART cudart HINTS "${toolkit}/../lib64" "${toolkit}/../lib" PATH_SUFFIXES stubs)
  if(NOT DTK_CUDART)
    message(STATUS "libdtk_cuda_kernels.so is left out: libcudart.so was not found beside ${DTK_NVCC}")
    return()
  endif()

  set(architectures "")
  foreach(architecture IN LISTS DTK_CUDA_ARCHITECTURES)
    list(APPEND architectures -gencode "arch=compute_${architecture},code=sm_${architecture}")
  endforeach()
  list(GET DTK_CUDA_ARCHITECTURES -1 newest)
  list(APPEND architectures -gencode "arch=compute_${newest},code=compute_${newest}")

  file(GLOB kernels CONFIGURE_DEPENDS "${folder}/*.cu")
  set(objects "")
  foreach(kernel IN LISTS kernels)
    cmake_path(GET kernel STEM name)
    set(object "${CMAKE_CURRENT_BINARY_DIR}/${name}.o")
    add_custom_command(OUTPUT "${object}" DEPENDS "${kernel}" DEPFILE "${object}.d" VERBATIM
      COMMENT "nvcc ${name}.cu"
      COMMAND "${DTK_NVCC}" -std=c++20 -O3 -DNDEBUG -ccbin "${CMAKE_CXX_COMPILER}" -Werror all-warnings
              -Xcompiler -fPIC,-fvisibility=hidden -Xfatbin -compress-mode=size ${architectures}
              -MD -MF "${object}.d" -MT "${object}" -c "${kernel}" -o "${object}")
    list(APPEND objects "${object}")
  endforeach()

  add_library(dtk_cuda_registration OBJECT "${folder}/register.cpp")
  target_link_libraries(dtk_cuda_registration PRIVATE dtk::torch)
  dtk_configure_target(dtk_cuda_registration)
  # LibTorch's headers name themselves in what they say of errors.
  target_compile_options(dtk_cuda_registration PRIVATE "-fmacro-prefix-map=${DTK_TORCH_ROOT}/=")
  set_target_properties(dtk_cuda_registration PROPERTIES CXX_VISIBILITY_PRESET hidden)
  add_library(dtk_cuda_kernels MODULE ${objects})
  target_link_libraries(dtk_cuda_kernels PRIVATE dtk_cuda_registration dtk::torch "${DTK_CUDART}")
  target_link_options(dtk_cuda_kernels PRIVATE LINKER:--as-needed)
  if(NOT DTK_SANITIZE)  # a program brings the sanitizers' functions
    target_link_options(dtk_cuda_kernels PRIVATE LINKER:-z,defs)
  endif()
  if(DTK_HARDEN)
    target_link_options(dtk_cuda_kernels PRIVATE LINKER:-z,relro LINKER:-z,now LINKER:-z,noexecstack)
  endif()
  # No run path: what it needs is in the process before it.
  set_target_properties(dtk_cuda_kernels PROPERTIES LINKER_LANGUAGE CXX SKIP_BUILD_RPATH ON
    LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}")
endfunction()
