// A chain of segments whose bytes are known: each saves x and y (rows of 16) and h and g (rows of 32), 3072
// bytes in fp32.
#pragma once
#include <ATen/ATen.h>
#include <dtk/policies/internal/counted_blocks.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/offload.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <memory>
#include <string>

#include "support/catch.h"
#include "support/policies/segment_tests.h"
#include "support/same_bits.h"

namespace dtk::test {

using policies::ModuleFn;
using policies::OffloadStore;
using policies::Tensors;
using Store = std::shared_ptr<OffloadStore>;
using RunSegment = std::function<Tensors(int, const ModuleFn&, Tensors&&)>;

inline constexpr int64_t kRows = 8, kWidth = 16, kInner = 32, kNetDepth = 4;
inline constexpr int64_t kNarrow = kRows * kWidth * 4, kWide = kRows * kInner * 4;
inline constexpr int64_t kNetSegment = 2 * kNarrow + 2 * kWide;

inline Store store_of(int64_t min_bytes = 0) {
  return std::make_shared<OffloadStore>(min_bytes);
}

struct Net {
  at::Tensor x = leaf({kRows, kWidth});
  Tensors up, down;
  Net() {
    for (int64_t i = 0; i < kNetDepth; ++i) {
      up.push_back(leaf({kInner, kWidth}));
      down.push_back(leaf({kWidth, kInner}));
    }
    for (const at::Tensor& one : leaves()) policies::claim(one, policies::Category::parameters, "net");
  }
  ModuleFn segment(size_t i) const {
    return [up = up[i], down = down[i]](Tensors&& in) {
      at::Tensor h = at::linear(in[0], up);
      in.clear();
      h = at::gelu(h);
      h = at::linear(h, down);
      return Tensors{h.sin()};
    };
  }
  at::Tensor forward(const RunSegment& run) const {
    Tensors h{x * 1};
    for (int i = 0; i < kNetDepth; ++i) h = run(i, segment(static_cast<size_t>(i)), std::move(h));
    return h[0];
  }
  Tensors leaves() const {
    Tensors all{x};
    all.insert(all.end(), up.begin(), up.end());
    all.insert(all.end(), down.begin(), down.end());
    return all;
  }
  Tensors gradients(const RunSegment& run) const {
    for (const at::Tensor& one : leaves()) one.mutable_grad().reset();
    torch::autograd::backward({forward(run).sum()}, {});
    Tensors all;
    for (const at::Tensor& one : leaves()) all.push_back(one.grad());
    return all;
  }
};

inline Tensors plain(int, const ModuleFn& fn, Tensors&& in) {
  return fn(std::move(in));
}

inline RunSegment offloaded(const Store& store) {
  return [store](int i, const ModuleFn& fn, Tensors&& in) {
    return policies::offload("net." + std::to_string(i), fn, std::move(in), store);
  };
}

inline void check_equal(const Tensors& a, const Tensors& b) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    INFO("gradient " << i);
    CHECK_VALUES(same_bits(a[i], b[i]));
  }
}

// What the ledger counts: nothing of a real device, and not its pinned memory.
inline bool ledger_sees() {
  return on_cpu() || simulated();
}
inline int64_t saved_on_device() {
  return (on_cpu() ? policies::cpu_accounts() : policies::device_accounts())
      .live()
      .of(policies::Category::saved);
}
inline int64_t offloaded_on_host() {
  return (on_cpu() ? policies::host_accounts() : policies::cpu_accounts())
      .live()
      .of(policies::Category::offloaded);
}

}  // namespace dtk::test
