// The two runs of a segment that keeps results: forward takes them down, a recomputation puts them in the
// place of the operators that made them.
//
// Operators are watched on a dispatch key above autograd, and numbered: those that autograd knows and that
// return new tensors, as deep as autograd sees. So autograd makes the same nodes in both runs, and a kept
// operator's kernel alone is left out.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <dtk/policies/internal/kept_results.h>
#include <dtk/policies/saved_tensors.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "activations/ambient_state.h"
#include "hooks/operator_watch.h"

namespace dtk::policies {

/// What one operator of a call returned.
struct SavedOperator {
  struct Result {
    std::unique_ptr<SavedTensor> tensor;  // null: `other` is it
    c10::IValue other;
  };
  size_t number;
  c10::OperatorHandle op;
  std::vector<Result> results;
  std::unique_ptr<const RandomStates> random_after;  // null if it drew nothing
};
/// In order of their numbers.
using SavedOperators = std::vector<SavedOperator>;

/// Forward. Keeps by `below`; `keep` may be null: then nothing is kept, nor by a segment around this one.
class SaveScope final : public OperatorScope {
 public:
  using OnKept = std::function<void(const at::Tensor&)>;
  [[nodiscard]] SaveScope(KeptResults* keep, const SavedTensorStack& below, const Devices& devices,
                          const std::string& path, OnKept on_kept);
  void run(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) override;
  void mark(std::string_view name, const at::Tensor& value) override;
  SavedOperators take();

 private:
  // An operator that may have made what is marked next.
  struct Made {
    size_t number;
    c10::OperatorHandle op;
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    std::vector<int64_t> sizes, strides;
    int64_t offset, version;
    bool one_of_several;
  };
  void note(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> results);
  void keep(size_t number, const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> results);
  const Made* maker_of(const at::Tensor& value) const;  // null: none of this segment
  const Made& maker_of(std::string_view name, const at::Tensor& value) const;

  KeptResults* const keep_;
  const std::string& path_;
  const SavedTensorStack& below_;
  const Devices& devices_;
  const OnKept on_kept_;
  size_t number_ = 0;
  SavedOperators kept_;
  std::vector<Made> made_;
  std::vector<c10::IValue> several_;  // the latest operator's results, if it has several
  std::map<size_t, std::unique_ptr<const RandomStates>> random_;  // after those that drew
};

/// A recomputation.
class ReplayScope final : public OperatorScope {
 public:
  ReplayScope(const SavedOperators& kept, const std::string& path);
  void run(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) override;

 private:
  const SavedOperators& kept_;
  const std::string& path_;
  size_t number_ = 0, next_ = 0;
};

}  // namespace dtk::policies
