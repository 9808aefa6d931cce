// Books the scratch of a call that is planned for the CPU.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <dtk/planner/scratch.h>
#include <dtk/policies/internal/scoped.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

namespace dtk::planner {

struct NotedCall {
  c10::OperatorHandle op;
  std::vector<c10::IValue> arguments;  // tensors on Meta
};
struct NotedCalls {
  std::map<OperatorCall, NotedCall> by_call;
};

/// The fused operators of dtk (dtk/models/ops.h) get what their kernels need as an argument `partial`, which
/// is counted like all else.
bool is_given_its_scratch(const c10::OperatorHandle& op);

// none: what there is of it, such as the tensor made of a number, the operator's shape kernel makes too.
enum class ScratchKind { none, formula, open };
/// Of an operator with any arguments; `own`: it has a kernel in cpu_kernels.cpp. What is open may still have
/// a formula for some arguments.
ScratchKind scratch_kind(const c10::OperatorHandle& op, bool own);

/// Those that are not element-wise and take none all the same, as "aten::cat".
const std::unordered_set<std::string>& operators_without_scratch();

/// The calls of the plan under way. Thread-safe.
class ScratchBook {
 public:
  /// The process's one. Never destroyed.
  static ScratchBook& instance();
  /// `measured` must live until the plan ends; may be null. `keep_calls`: for PlannedScratch::calls.
  void begin(const MeasuredScratch* measured, bool keep_calls);
  PlannedScratch planned() const;
  /// What was measured, if it was. `nested`: a call within one that is noted, whose measurement holds it too.
  /// Cheap unless there is a measurement or calls are kept: a call is then not spelt out.
  std::optional<ScratchBytes> note(const c10::OperatorHandle& op, const torch::jit::Stack& stack, bool known,
                                   bool nested);

 private:
  std::optional<ScratchBytes> measured(const c10::OperatorHandle& op, const torch::jit::Stack& stack,
                                       bool nested);

  mutable std::mutex mutex_;  // guards everything below
  const MeasuredScratch* measured_ = nullptr;
  std::shared_ptr<NotedCalls> calls_;  // null unless calls are kept
  PlannedScratch planned_;
  std::set<OperatorCall> taken_;
};

enum class WithinCall : uint8_t;

/// While alive, what a call was seen to take beside its results is booked, if there is a measurement, and
/// before that for an instant the most that it took; formulas then have to book nothing
/// (scratch_is_measured()), nor have the calls within it.
class CallScratch : policies::NotCopied {
 public:
  [[nodiscard]] CallScratch(ScratchKind kind, const c10::OperatorHandle& op, const torch::jit::Stack& stack);
  ~CallScratch();

 private:
  const WithinCall outer_;
  at::Tensor bytes_;
};

/// Of the call that this thread plans.
bool scratch_is_measured();

}  // namespace dtk::planner
