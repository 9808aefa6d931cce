#include "activations/mutated_buffers.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <dtk/policies/internal/dispatch_keys.h>
#include <torch/library.h>

#include <algorithm>
#include <utility>

#include "hooks/operator_watch.h"

namespace dtk::policies {
namespace {

thread_local MutationRecorder* innermost_recorder = nullptr;
thread_local MutationGuard* innermost_kept = nullptr;

bool is_kept(const at::Tensor& tensor) {
  return innermost_kept != nullptr && innermost_kept->keeps(tensor);
}

template <class Seen>
void note(const Seen& seen) {
  if (innermost_recorder != nullptr) innermost_recorder->note(seen);
}

bool updates_statistics(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments) {
  for (const char* flag : {"training", "use_input_stats"}) {
    if (const auto index = schema.argumentIndexWithName(flag)) return arguments[*index].toBool();
  }
  return true;  // the form for training only
}

// The normalizations, all with arguments named running_mean and running_var.
void keep_or_note_running(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const size_t begin = stack->size() - schema.arguments().size();
  if (updates_statistics(schema, c10::ArrayRef<c10::IValue>(*stack).slice(begin))) {
    for (const char* name : {"running_mean", "running_var"}) {
      const auto index = schema.argumentIndexWithName(name);
      if (!index) continue;
      c10::IValue& statistic = (*stack)[begin + static_cast<size_t>(*index)];
      if (!statistic.isTensor() || !statistic.toTensor().defined()) continue;
      if (is_kept(statistic.toTensor())) {
        const UnwatchedScope unwatched;
        const at::NoGradGuard no_grad;
        statistic = statistic.toTensor().clone();
      } else {
        note(statistic.toTensor());
      }
    }
  }
}

void normalize(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard inner_calls_are_part_of_it(kMutationKey);
  keep_or_note_running(op, stack);
  op.callBoxed(stack);
}

// What a segment changes of its own must change again.
bool has_running_of_its_own(const torch::jit::Stack& stack) {
  const auto running = running_statistics(stack);
  return std::any_of(running.begin(), running.end(),
                     [](const at::Tensor& one) { return one.defined() && !is_kept(one); });
}

void normalize_batch(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard inner_calls_are_part_of_it(kMutationKey);
  if (!keeps_statistics(*stack)) {
    keep_or_note_running(op, stack);
    return op.callBoxed(stack);
  }
  const at::Tensor weight = weight_of_norm(*stack);
  const BatchStatistics* const known =
      innermost_kept == nullptr ? nullptr : innermost_kept->next_statistics();
  if (known != nullptr && fit(*known, *stack) && !has_running_of_its_own(*stack)) {
    normalize_by(*known, op, keys, stack);
  } else {
    keep_or_note_running(op, stack);
    op.callBoxed(stack);
  }
  note(statistics_of(weight, *stack));
}

// A counter's `n += 1`.
at::Tensor& add_number(at::Tensor& self, const at::Scalar& other, const at::Scalar& alpha) {
  const c10::impl::ExcludeDispatchKeyGuard inner_calls_are_part_of_it(kMutationKey);
  if (c10::isIntegralType(self.scalar_type(), /*includeBool=*/false)) {
    if (is_kept(self)) return self;
    note(self);
  }
  return self.add_(other, alpha);
}

void register_mutation_recorder() {
  auto* const others = new torch::Library(torch::Library::IMPL, "_", kMutationKey, __FILE__, __LINE__);
  others->fallback(torch::CppFunction::makeFallthrough());
  auto* const watched = new torch::Library(torch::Library::IMPL, "aten", kMutationKey, __FILE__, __LINE__);
  // batch_norm calls one of these. So does instance_norm, but with copies of its statistics.
  for (const char* name : {"_native_batch_norm_legit", "_batch_norm_with_update", "cudnn_batch_norm",
                           "miopen_batch_norm", "instance_norm"}) {
    watched->impl(name, torch::CppFunction::makeFromBoxedFunction<&normalize>());
  }
  watched->impl("native_batch_norm", torch::CppFunction::makeFromBoxedFunction<&normalize_batch>());
  watched->impl("add_.Scalar", TORCH_FN(add_number));
}

const EngineKernels mutation_recorder(&register_mutation_recorder);

}  // namespace

MutationRecorder::MutationRecorder()
    : outer_(std::exchange(innermost_recorder, this)), watched_(kMutationKey) {}

MutationRecorder::~MutationRecorder() {
  innermost_recorder = outer_;
}

void MutationRecorder::note(const at::Tensor& changed) {
  for (MutationRecorder* watch = this; watch != nullptr && changed.has_storage(); watch = watch->outer_) {
    watch->changed_.push_back(changed.storage().getWeakStorageImpl());
  }
}

void MutationRecorder::note(const BatchStatistics& statistics) {
  for (MutationRecorder* watch = this; watch != nullptr; watch = watch->outer_)
    watch->statistics_.push_back(statistics);
}

MutatedBuffers MutationRecorder::mutated(const Tensors& outputs) const {
  MutatedBuffers mutated;
  for (const auto& storage : changed_) {
    const auto is_it = [&](const at::Tensor& output) {
      return output.defined() && output.has_storage() &&
             output.storage().unsafeGetStorageImpl() == storage._unsafe_get_target();
    };
    if (!storage.expired() && std::none_of(outputs.begin(), outputs.end(), is_it)) mutated.push_back(storage);
  }
  return mutated;
}

MutationGuard::MutationGuard(const MutatedBuffers& state, const StatisticsOfCalls& statistics)
    : state_(state),
      statistics_(statistics),
      outer_(std::exchange(innermost_kept, this)),
      watched_(kMutationKey) {}

MutationGuard::~MutationGuard() {
  innermost_kept = outer_;
}

bool MutationGuard::keeps(const at::Tensor& tensor) const {
  if (!tensor.has_storage()) return false;
  const auto is_it = [&](const auto& storage) {
    return storage._unsafe_get_target() == tensor.storage().unsafeGetStorageImpl();
  };
  return std::any_of(state_.begin(), state_.end(), is_it) || (outer_ != nullptr && outer_->keeps(tensor));
}

const BatchStatistics* MutationGuard::next_statistics() {
  return next_ < statistics_.size() ? &statistics_[next_++] : nullptr;
}

void pass_over(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const bool is_batch_norm = op.operator_name().name == "aten::native_batch_norm";
  if (is_batch_norm && innermost_kept != nullptr && keeps_statistics(stack))
    innermost_kept->next_statistics();
}

}  // namespace dtk::policies
