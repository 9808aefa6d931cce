#include "activations/selective.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/as_strided.h>
#include <dtk/policies/internal/dispatch_keys.h>
#include <dtk/policies/internal/scoped.h>
#include <torch/library.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "activations/mutated_buffers.h"

namespace dtk::policies {
namespace {

constexpr c10::DispatchKeySet kAutogradOfKept({kKeptResultAutogradKey, kKeptResultKey});

thread_local const SavedOperator* handed_out = nullptr;

void hand_out(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  torch::jit::drop(*stack, op.schema().arguments().size());
  for (const SavedOperator::Result& result : handed_out->results) {
    // A tensor of its own, since autograd ties it to a node.
    if (result.tensor == nullptr) {
      stack->push_back(result.other);
    } else {
      stack->emplace_back(result.tensor->unpack().tensor_data());
    }
  }
}

// A kernel of its own for each operator, made when it is first kept: kernels for all backends come before a
// fallback.
void register_kept(const c10::OperatorHandle& op) {
  static std::mutex mutex;
  static auto* const registered =
      new std::set<c10::OperatorName, bool (*)(const c10::OperatorName&, const c10::OperatorName&)>(
          [](const c10::OperatorName& a, const c10::OperatorName& b) {
            return std::tie(a.name, a.overload_name) < std::tie(b.name, b.overload_name);
          });
  const std::lock_guard lock(mutex);
  if (!registered->insert(op.operator_name()).second) return;
  const std::string space(*op.operator_name().getNamespace());
  auto* library = new torch::Library(torch::Library::IMPL, space, kKeptResultKey, __FILE__, __LINE__);
  library->impl(c10::toString(op.operator_name()).c_str(),
                torch::CppFunction::makeFromBoxedFunction<&hand_out>());
}

}  // namespace

at::Tensor named(std::string_view name, at::Tensor value) {
  if (OperatorScope* const scope = OperatorScope::innermost()) scope->mark(name, value);
  return value;
}

SaveScope::SaveScope(KeptResults* keep, const SavedTensorStack& below, const Devices& devices,
                     const std::string& path, OnKept on_kept)
    : OperatorScope(keep != nullptr),
      keep_(keep),
      path_(path),
      below_(below),
      devices_(devices),
      on_kept_(std::move(on_kept)) {}

void SaveScope::run(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  several_.clear();
  const std::string& name = op.operator_name().name;
  keep_->met_operator(name);
  const RandomStates before(devices_);
  op.redispatchBoxed(keys, stack);
  if (!before.still_so()) random_[number_] = std::make_unique<const RandomStates>(devices_);
  const size_t count = op.schema().returns().size();
  const auto results = c10::ArrayRef<c10::IValue>(*stack).slice(stack->size() - count);
  if (keep_->keeps_operator(name)) keep(number_, op, results);
  if (keep_->has_names()) note(op, results);
  ++number_;
}

void SaveScope::note(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> results) {
  if (results.size() > 1) several_.assign(results.begin(), results.end());
  for (const c10::IValue& result : results) {
    if (!result.isTensor() || !result.toTensor().defined() || !result.toTensor().has_storage()) continue;
    const at::Tensor& tensor = result.toTensor();
    // Views in all but their schema, such as _unsafe_view: whoever made the storage made the value.
    if (maker_of(tensor) != nullptr) continue;
    made_.push_back({number_, op, tensor.storage().getWeakStorageImpl(), tensor.sizes().vec(),
                     tensor.strides().vec(), tensor.storage_offset(), version_of(tensor),
                     results.size() > 1});
  }
}

void SaveScope::keep(size_t number, const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> results) {
  register_kept(op);
  SavedOperator kept{number, op, {}, nullptr};
  for (const c10::IValue& result : results) {
    const bool tensor = result.isTensor() && result.toTensor().defined();
    kept.results.push_back(
        {tensor ? below_.pack(result.toTensor().tensor_data()) : nullptr, tensor ? c10::IValue() : result});
    if (tensor) on_kept_(result.toTensor());
  }
  const auto drew = random_.find(number);
  if (drew != random_.end()) kept.random_after = std::move(drew->second);
  kept_.push_back(std::move(kept));
}

void SaveScope::mark(std::string_view name, const at::Tensor& value) {
  keep_->met_name(name);
  if (!keep_->keeps_name(name)) return;
  const Made& made = maker_of(name, value);
  const bool kept_already = std::any_of(kept_.begin(), kept_.end(),
                                        [&](const SavedOperator& one) { return one.number == made.number; });
  if (kept_already) return;
  const UnwatchedScope unwatched;
  const at::NoGradGuard no_grad;
  if (made.one_of_several) {
    keep(made.number, made.op, several_);
    return;
  }
  const c10::IValue whole(value.tensor_data().as_strided(made.sizes, made.strides, made.offset));
  keep(made.number, made.op, whole);
}

const SaveScope::Made* SaveScope::maker_of(const at::Tensor& value) const {
  const auto made = std::find_if(made_.rbegin(), made_.rend(), [&](const Made& one) {
    return value.has_storage() && one.storage._unsafe_get_target() == value.storage().unsafeGetStorageImpl();
  });
  return made == made_.rend() ? nullptr : &*made;
}

const SaveScope::Made& SaveScope::maker_of(std::string_view name, const at::Tensor& value) const {
  const std::string where =
      c10::str("checkpoint ", path_, ": the result \"", name, "\" ", value.sizes(), " ");
  const Made* const made = maker_of(value);
  TORCH_CHECK(made != nullptr, where,
              "is not made by an operator of this segment (but an input, a parameter or a cast), so there is "
              "nothing to keep; name what the segment computes, or leave the name out of what is kept");
  TORCH_CHECK(version_of(value) == made->version, where, "was changed in place after ",
              made->op.operator_name().name,
              " made it, so the recomputation could not take it; make that change out of place (relu, not "
              "relu_) or name the result before it");
  const auto is_value = [&](const c10::IValue& one) {
    return one.isTensor() && one.toTensor().defined() &&
           one.toTensor().storage().unsafeGetStorageImpl() == value.storage().unsafeGetStorageImpl();
  };
  TORCH_CHECK(!made->one_of_several || std::any_of(several_.begin(), several_.end(), is_value), where,
              "is one of several that ", made->op.operator_name().name,
              " returned, and others ran since; name it at once, or keep \"", made->op.operator_name().name,
              "\" instead");
  return *made;
}

SavedOperators SaveScope::take() {
  std::sort(kept_.begin(), kept_.end(),
            [](const SavedOperator& a, const SavedOperator& b) { return a.number < b.number; });
  return std::move(kept_);
}

ReplayScope::ReplayScope(const SavedOperators& kept, const std::string& path)
    : OperatorScope(!kept.empty()), kept_(kept), path_(path) {}

void ReplayScope::run(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const size_t number = number_++;
  if (next_ == kept_.size() || kept_[next_].number != number) return op.redispatchBoxed(keys, stack);
  const SavedOperator& kept = kept_[next_++];
  TORCH_CHECK(op.operator_name() == kept.op.operator_name(), "checkpoint ", path_,
              ": the recomputation runs ", op.operator_name(), " where forward ran ", kept.op.operator_name(),
              ", whose result is kept; a segment must recompute the same: look for a branch on a flag, "
              "such as training mode, and for work done in the first call only");
  pass_over(op, *stack);
  {
    const ScopedValue<const SavedOperator*> of_call(handed_out, &kept);
    if (keys.has_any(c10::autograd_dispatch_keyset)) {
      op.redispatchBoxed(kAutogradOfKept, stack);
    } else {
      hand_out(op, keys, stack);
    }
  }
  if (kept.random_after != nullptr) kept.random_after->restore();
}

}  // namespace dtk::policies
