#include <ATen/DynamicLibrary.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <dtk/models/ops.h>
#include <torch/version.h>

#include <exception>

namespace dtk::ops {
namespace {

template <class Function>
Function* function_of(at::DynamicLibrary& library, const char* name) {
  return reinterpret_cast<Function*>(library.sym(name));
}

// "" where the kernels are registered, now or before.
std::string problem_of(const std::string& path) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("dtk::norm_modulate", "");
  if (op.hasKernelForDispatchKey(c10::DispatchKey::CUDA)) return "";
  at::DynamicLibrary library(path.c_str(), nullptr, /*leak_handle=*/true);
  const std::string built = function_of<const char*()>(library, "dtk_cuda_kernels_torch_version")();
  if (built != TORCH_VERSION)
    return c10::str(path, " was built with LibTorch ", built, ", this program with ", TORCH_VERSION);
  const char* const error = function_of<const char*()>(library, "dtk_cuda_kernels_error_here")();
  if (error != nullptr) return c10::str(path, " has no code for this GPU: ", error);
  function_of<void()>(library, "dtk_cuda_kernels_register")();
  return "";
}

}  // namespace

std::string open_cuda_kernels(const std::string& path) {
  try {
    return problem_of(path);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace dtk::ops
