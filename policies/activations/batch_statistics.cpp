#include "activations/batch_statistics.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/ones_like.h>
#include <dtk/policies/internal/dispatch_keys.h>
#include <dtk/policies/internal/scoped.h>
#include <torch/library.h>

#include <tuple>
#include <utility>

#include "hooks/operator_watch.h"

namespace dtk::policies {
namespace {

using OptionalTensor = std::optional<at::Tensor>;
using ThreeTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

constexpr c10::DispatchKeySet kAutogradOfKnown({kKnownStatisticsAutogradKey, kKnownStatisticsKey});

// input, weight, bias, running_mean, running_var, training, momentum, eps -> output, mean, invstd
constexpr size_t kArguments = 8, kTensors = 5, kTraining = 5, kResults = 3;

thread_local const BatchStatistics* known_of_call = nullptr;

const c10::IValue& argument(const torch::jit::Stack& stack, size_t index) {
  return stack[stack.size() - kArguments + index];
}

at::Tensor tensor_or_none(const c10::IValue& value) {
  return value.isTensor() ? value.toTensor() : at::Tensor();
}

// One that is computed is another tensor each time.
const void* identity(const at::Tensor& weight) {
  return weight.defined() && weight.is_leaf() ? weight.unsafeGetTensorImpl() : nullptr;
}

bool is_dense(const at::Tensor& x) {
  return x.is_contiguous() || x.is_contiguous(at::MemoryFormat::ChannelsLast) ||
         x.is_contiguous(at::MemoryFormat::ChannelsLast3d);
}

// Variance 1 and no eps make the kernel's own factor 1 * alpha, to the bit.
ThreeTensors normalize_with_known(const at::Tensor& x, const OptionalTensor& weight,
                                  const OptionalTensor& bias, const OptionalTensor&, const OptionalTensor&,
                                  bool, double, double) {
  const auto& [mean, invstd, _] = *known_of_call;
  const at::Tensor alpha = weight && weight->defined() ? at::mul(invstd, *weight) : invstd;
  at::Tensor out = std::get<0>(at::native_batch_norm(x, alpha, bias, mean, at::ones_like(mean),
                                                     /*training=*/false, /*momentum=*/0, /*eps=*/0));
  return {std::move(out), mean.tensor_data(), invstd.tensor_data()};
}

void register_known_statistics() {
  auto* const library =
      new torch::Library(torch::Library::IMPL, "aten", kKnownStatisticsKey, __FILE__, __LINE__);
  library->impl("native_batch_norm", TORCH_FN(normalize_with_known));
}

const EngineKernels known_statistics(&register_known_statistics);

}  // namespace

bool keeps_statistics(const torch::jit::Stack& stack) {
  if (!argument(stack, kTraining).toBool() || !at::GradMode::is_enabled()) return false;
  const at::Tensor& x = argument(stack, 0).toTensor();
  if (!x.is_cpu() || x.numel() == 0 || !is_dense(x)) return false;
  at::ScalarType type = x.scalar_type();
  for (size_t i = 1; i < kTensors; ++i) {
    const at::Tensor one = tensor_or_none(argument(stack, i));
    if (!one.defined()) continue;
    if (!one.is_contiguous()) return false;
    type = one.scalar_type();
  }
  // In bf16 the product of two numbers of a channel would be rounded, as it is not within the kernel.
  return type == at::kFloat || type == at::kDouble;
}

at::Tensor weight_of_norm(const torch::jit::Stack& stack) {
  return tensor_or_none(argument(stack, 1));
}

std::array<at::Tensor, 2> running_statistics(const torch::jit::Stack& stack) {
  return {tensor_or_none(argument(stack, 3)), tensor_or_none(argument(stack, 4))};
}

BatchStatistics statistics_of(const at::Tensor& weight, const torch::jit::Stack& stack) {
  const auto of = [&](size_t index) {
    return stack[stack.size() - kResults + index].toTensor().tensor_data();
  };
  return {of(1), of(2), identity(weight)};
}

bool fit(const BatchStatistics& known, const torch::jit::Stack& stack) {
  return known.weight == identity(weight_of_norm(stack)) &&
         known.mean.size(0) == argument(stack, 0).toTensor().size(1);
}

void normalize_by(const BatchStatistics& known, const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) {
  const c10::DispatchKeySet way = keys.has_any(c10::autograd_dispatch_keyset)
                                      ? kAutogradOfKnown
                                      : c10::DispatchKeySet(kKnownStatisticsKey);
  const ScopedValue<const BatchStatistics*> of_call(known_of_call, &known);
  op.redispatchBoxed(way, stack);
}

}  // namespace dtk::policies
