#include "toolkit/train/dropout_masks.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/bernoulli_ops.h>
#include <dtk/policies/internal/dispatch_keys.h>
#include <dtk/policies/simulation.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <optional>

#include "toolkit/core/random_streams.h"

namespace dtk {
namespace {

bool is_drawn_here(const at::Tensor& mask) {
  const bool known = mask.scalar_type() == at::kFloat || mask.scalar_type() == at::kBFloat16;
  return known && mask.is_cpu() && mask.is_non_overlapping_and_dense() && !mask.requires_grad() &&
         !policies::simulating();
}

uint64_t draw_key(const std::optional<at::Generator>& given) {
  auto* const generator =
      at::get_generator_or_default<at::CPUGeneratorImpl>(given, at::detail::getDefaultCPUGenerator());
  const std::lock_guard lock(generator->mutex_);
  return generator->random64();
}

// Two elements of each number of the sequence.
template <class Value>
void fill(Value* values, int64_t count, double p, uint64_t key) {
  const auto ones = static_cast<uint64_t>(std::llround(std::ldexp(p, 32)));  // of 2^32 numbers
  constexpr int64_t kGrain = 1 << 14;
  at::parallel_for(0, (count + 1) / 2, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const uint64_t drawn = draw64(key, static_cast<uint64_t>(i));
      values[2 * i] = static_cast<float>((drawn >> 32) < ones);
      if (2 * i + 1 < count) values[2 * i + 1] = static_cast<float>((drawn & 0xffffffffU) < ones);
    }
  });
}

at::Tensor& bernoulli(c10::DispatchKeySet keys, at::Tensor& mask, double p,
                      std::optional<at::Generator> generator) {
  if (!is_drawn_here(mask) || !(p >= 0 && p <= 1)) {
    const auto below = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, policies::kDropoutMaskKey);
    return at::_ops::bernoulli__float::redispatch(below, mask, p, std::move(generator));
  }
  const uint64_t key = draw_key(generator);
  if (mask.scalar_type() == at::kFloat) {
    fill(mask.mutable_data_ptr<float>(), mask.numel(), p, key);
  } else {
    fill(mask.mutable_data_ptr<at::BFloat16>(), mask.numel(), p, key);
  }
  mask.unsafeGetTensorImpl()->bump_version();
  return mask;
}

}  // namespace

void register_dropout_masks() {
  [[maybe_unused]] static auto* const others = [] {
    const std::string conflict = policies::dispatch_key_conflict(policies::KeyUser::toolkit);
    TORCH_CHECK(conflict.empty(), conflict);
    auto* library =
        new torch::Library(torch::Library::IMPL, "_", policies::kDropoutMaskKey, __FILE__, __LINE__);
    library->fallback(torch::CppFunction::makeFallthrough());
    return library;
  }();
  [[maybe_unused]] static auto* const drawn = [] {
    auto* library =
        new torch::Library(torch::Library::IMPL, "aten", policies::kDropoutMaskKey, __FILE__, __LINE__);
    library->impl("bernoulli_.float", TORCH_FN(bernoulli));
    return library;
  }();
}

DropoutMaskScope::DropoutMaskScope() : drawn_((register_dropout_masks(), policies::kDropoutMaskKey)) {}

}  // namespace dtk
