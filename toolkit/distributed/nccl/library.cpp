// libdtk_nccl.so: LibTorch's group of NCCL, which programs open where they train on GPUs. What it calls of
// libtorch_cuda is in the process before it; nothing of CUDA is linked.
#include <torch/version.h>

#include <cstdint>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#define DTK_EXPORTED extern "C" __attribute__((visibility("default")))

DTK_EXPORTED const char* dtk_nccl_torch_version() {
  return TORCH_VERSION;
}

/// The caller's to own. Throws as LibTorch does, where there is no GPU, too.
DTK_EXPORTED c10d::Backend* dtk_nccl_group(const c10::intrusive_ptr<c10d::Store>& store, int rank, int ranks,
                                           int64_t timeout_ms) {
  const auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = std::chrono::milliseconds(timeout_ms);
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, ranks, options).release();
}
