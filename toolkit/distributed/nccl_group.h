// Ranks on GPUs: LibTorch's group of NCCL. Nothing of it has run on a GPU.
#pragma once
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace c10d {
class Backend;
}

namespace dtk {

/// For tensors on this process's GPU; made of libdtk_nccl.so at `library`, after open_device(). Throws
/// ConfigError where that cannot be opened, was built with another LibTorch, or makes none. A collective that
/// takes longer than `timeout` ends all of them, which Backend::getError() tells.
c10::intrusive_ptr<c10d::Backend> open_nccl_group(const std::string& library,
                                                  const c10::intrusive_ptr<c10d::Store>& store, int64_t rank,
                                                  int64_t ranks, std::chrono::milliseconds timeout);

}  // namespace dtk
