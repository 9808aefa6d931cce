#include "toolkit/distributed/nccl_group.h"

#include <ATen/DynamicLibrary.h>
#include <c10/util/Exception.h>
#include <dtk/policies/collectives.h>
#include <torch/version.h>

#include <exception>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"

namespace dtk {
namespace {

using Store = c10::intrusive_ptr<c10d::Store>;
using MakeGroup = c10d::Backend*(const Store& store, int rank, int ranks, int64_t timeout_ms);

template <class Function>
Function* function_of(at::DynamicLibrary& library, const char* name) {
  return reinterpret_cast<Function*>(library.sym(name));
}

}  // namespace

c10::intrusive_ptr<c10d::Backend> open_nccl_group(const std::string& library, const Store& store,
                                                  int64_t rank, int64_t ranks,
                                                  std::chrono::milliseconds timeout) {
  std::string problem;
  try {
    at::DynamicLibrary opened(library.c_str(), nullptr, /*leak_handle=*/true);
    const std::string built = function_of<const char*()>(opened, "dtk_nccl_torch_version")();
    if (built == TORCH_VERSION) {
      auto* const make = function_of<MakeGroup>(opened, "dtk_nccl_group");
      return c10::intrusive_ptr<c10d::Backend>::reclaim(
          make(store, static_cast<int>(rank), static_cast<int>(ranks), timeout.count()));
    }
    problem = fmt::format("it was built with LibTorch {}, this program with {}", built, TORCH_VERSION);
  } catch (const c10::Error& error) {
    problem = error.what_without_backtrace();
  } catch (const std::exception& error) {
    problem = policies::collective_cause(error);
  }
  throw ConfigError(fmt::format(
      "several ranks train on GPUs by NCCL, and {} makes no group of it: {}; build it where LibTorch is for "
      "CUDA and has nccl.h, or use --device cpu",
      library, problem));
}

}  // namespace dtk
