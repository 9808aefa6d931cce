#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/StringUtil.h>
#include <dlfcn.h>
#include <dtk/models/ops.h>
#include <torch/version.h>

namespace dtk::ops {
namespace {

template <class Function>
Function* function_of(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

}  // namespace

std::string open_cuda_kernels(const std::string& path) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("dtk::norm_modulate", "");
  if (op.hasKernelForDispatchKey(c10::DispatchKey::CUDA)) return "";
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const reason = dlerror();
    return reason != nullptr ? reason : path + " did not load";
  }
  auto* const torch_version = function_of<const char*()>(library, "dtk_cuda_kernels_torch_version");
  auto* const error_here = function_of<const char*()>(library, "dtk_cuda_kernels_error_here");
  auto* const register_all = function_of<void()>(library, "dtk_cuda_kernels_register");
  std::string problem;
  if (torch_version == nullptr || error_here == nullptr || register_all == nullptr) {
    problem = path + " is no library of dtk's CUDA kernels";
  } else if (const std::string built = torch_version(); built != TORCH_VERSION) {
    problem = c10::str(path, " was built with LibTorch ", built, ", this program with ", TORCH_VERSION);
  } else if (const char* const error = error_here(); error != nullptr) {
    problem = c10::str(path, " has no code for this GPU: ", error);
  }
  if (!problem.empty()) {
    dlclose(library);
    return problem;
  }
  register_all();
  return "";
}

}  // namespace dtk::ops
