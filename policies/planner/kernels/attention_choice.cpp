#include "kernels/attention_choice.h"

#include <ATen/Context.h>
#include <ATen/SDPBackend.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice_ops.h>
#include <c10/core/DispatchKeySet.h>
#include <dtk/planner/torch_versions.h>

#include <cmath>
#include <optional>

#include "cost/kernel_needs.h"

namespace dtk::planner {
namespace {

using at::Tensor;

bool last_dimension_has_no_gaps(const Tensor& q, const Tensor& k, const Tensor& v) {
  return q.stride(-1) == 1 && k.stride(-1) == 1 && v.stride(-1) == 1;
}

bool same_heads(const Tensor& q, const Tensor& k, const Tensor& v) {
  return q.dim() == 4 && k.dim() == 4 && v.dim() == 4 && q.size(0) == k.size(0) && k.size(0) == v.size(0) &&
         q.size(1) == k.size(1) && k.size(1) == v.size(1);
}

bool is_empty(const Tensor& q, const Tensor& k) {
  return q.size(-2) == 0 || k.size(-2) == 0;
}

// The constraints are those of aten/src/ATen/native/transformers/cuda/sdp_utils.cpp.
bool flash_fits(const Tensor& q, const Tensor& k, const Tensor& v, const std::optional<Tensor>& mask) {
  constexpr int64_t kLargestHead = 256;
  const bool half = q.scalar_type() == at::kHalf || q.scalar_type() == at::kBFloat16;
  return at::globalContext().userEnabledFlashSDP() && half && !mask && same_heads(q, k, v) &&
         q.size(-1) == k.size(-1) && q.size(-1) == v.size(-1) && q.size(-1) <= kLargestHead &&
         last_dimension_has_no_gaps(q, k, v) && !is_empty(q, k);
}

// By sdp_utils.cpp LibTorch prefers cuDNN's on compute capabilities 9.x and 10.x where cuDNN is later
// than 9.15.
bool cudnn_fits(const Tensor& q, const Tensor& k, const Tensor& v, const std::optional<Tensor>& mask,
                double dropout) {
  constexpr long kMinCudnn = 91501, kWideHeads = 92201;
  const int64_t widest = planned_torch().cudnn >= kWideHeads ? 256 : 128;
  const int generation = KernelNeeds::instance().options().compute_capability / 10;
  const bool half = q.scalar_type() == at::kHalf || q.scalar_type() == at::kBFloat16;
  const auto& context = at::globalContext();
  const bool deterministic = context.deterministicAlgorithms() && !context.deterministicAlgorithmsWarnOnly();
  return context.userEnabledCuDNNSDP() && (generation == 9 || generation == 10) &&
         planned_torch().cudnn >= kMinCudnn && half && !deterministic && !(mask && mask->requires_grad()) &&
         dropout * 16 == std::floor(dropout * 16) && same_heads(q, k, v) && q.size(-1) <= widest &&
         v.size(-1) <= widest && q.size(-1) % 8 == 0 && v.size(-1) % 8 == 0 && k.size(-2) != 1 &&
         last_dimension_has_no_gaps(q, k, v) && !is_empty(q, k);
}

bool efficient_fits(const Tensor& q, const Tensor& k, const Tensor& v, const std::optional<Tensor>& mask) {
  const bool known =
      q.scalar_type() == at::kFloat || q.scalar_type() == at::kHalf || q.scalar_type() == at::kBFloat16;
  const int64_t alignment = q.scalar_type() == at::kFloat ? 4 : 8;
  return at::globalContext().userEnabledMemEfficientSDP() && known && same_heads(q, k, v) &&
         q.size(-1) == k.size(-1) && q.size(-1) % alignment == 0 && v.size(-1) % alignment == 0 &&
         last_dimension_has_no_gaps(q, k, v) && !(mask && mask->requires_grad() && !same_heads(q, k, v)) &&
         !is_empty(q, k);
}

int64_t choose(const Tensor& q, const Tensor& k, const Tensor& v, const std::optional<Tensor>& mask,
               double dropout, bool, std::optional<double>, bool) {
  using at::SDPBackend;
  const bool one_type = q.scalar_type() == k.scalar_type() && k.scalar_type() == v.scalar_type();
  SDPBackend backend = at::globalContext().userEnabledMathSDP() ? SDPBackend::math : SDPBackend::error;
  if (one_type && q.dim() == 4 && cudnn_fits(q, k, v, mask, dropout)) {
    backend = SDPBackend::cudnn_attention;
  } else if (one_type && q.dim() == 4 && flash_fits(q, k, v, mask)) {
    backend = SDPBackend::flash_attention;
  } else if (one_type && q.dim() == 4 && efficient_fits(q, k, v, mask)) {
    backend = SDPBackend::efficient_attention;
  }
  return static_cast<int64_t>(backend);
}

}  // namespace

int64_t attention_choice(const Tensor& query, const Tensor& key, const Tensor& value,
                         const std::optional<Tensor>& mask, double dropout, bool causal,
                         std::optional<double> scale, bool grouped) {
  if (!query.is_cpu()) return choose(query, key, value, mask, dropout, causal, scale, grouped);
  return at::_ops::_fused_sdp_choice::redispatch(c10::DispatchKeySet(c10::DispatchKey::CPU), query, key,
                                                 value, mask, dropout, causal, scale, grouped);
}

void register_attention_choice() {
  at::native::_fused_sdp_choice_stub.set_cuda_dispatch_ptr(&choose);
}

}  // namespace dtk::planner
