// Functions of the CUDA driver, looked up at run time: programs link no CUDA and run where none is installed.
#pragma once
#include <dlfcn.h>

namespace dtk {

/// libcuda.so.1, or null where there is none. Never unloaded.
inline void* cuda_driver() {
  return dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
}

/// Null if the library has none of that name.
template <class Function>
Function* cuda_function(void* driver, const char* name) {
  return reinterpret_cast<Function*>(dlsym(driver, name));
}

}  // namespace dtk
