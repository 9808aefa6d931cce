#include "ledger/owners.h"

#include <ATen/Parallel.h>
#include <dtk/policies/memory_ledger.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <string_view>

namespace dtk::policies {
namespace {

thread_local std::optional<OwnerId> scope_owner;
thread_local std::optional<OwnerId> unpacked;

// Names of the operators this thread is inside of. Names outlive their RecordFunction, which outlives the
// entry. Deeper calls than the array holds are attributed to the deepest entry.
struct OperatorStack {
  struct Call {
    const char* name;
    uint64_t id;  // unique in the process
  };
  std::array<Call, 128> calls;
  size_t depth = 0;
};
thread_local OperatorStack operators;
std::atomic<uint64_t> operator_calls{0};

std::unique_ptr<at::ObserverContext> enter_operator(const at::RecordFunction& fn) {
  auto& stack = operators;
  if (stack.depth < stack.calls.size()) stack.calls[stack.depth] = {fn.name(), ++operator_calls};
  ++stack.depth;
  return nullptr;
}

void leave_operator(const at::RecordFunction&, at::ObserverContext*) {
  // An operator entered before the tracker was installed leaves without an entry.
  if (operators.depth > 0) --operators.depth;
}

bool is_factory(const char* name) {
  constexpr char kEmpty[] = "aten::empty";
  constexpr char kResize[] = "aten::resize";
  return std::strncmp(name, kEmpty, sizeof kEmpty - 1) == 0 ||
         std::strncmp(name, kResize, sizeof kResize - 1) == 0;
}

bool is(const char* name, std::string_view one) {
  return name == one;
}

// Where oneDNN computes a convolution in channels last, as it likes to on a processor with matrix tiles,
// LibTorch clones the result into its own layout: there the clone is what is elsewhere the convolution's. So
// clones within a convolution count as its own everywhere. Null for all others.
const char* convolution_around(const OperatorStack& stack, size_t clone) {
  size_t i = clone;
  while (i > 0 && is(stack.calls[i - 1].name, "aten::contiguous")) --i;
  const char* const caller = i > 0 ? stack.calls[i - 1].name : "";
  return is(caller, "aten::mkldnn_convolution") || is(caller, "aten::convolution_backward") ? caller
                                                                                            : nullptr;
}

bool is_operator(const char* name) {
  return std::strncmp(name, "aten::", 6) == 0;
}

}  // namespace

Birthplace birthplace() {
  if (scope_owner) return {*scope_owner, 0};
  const auto& stack = operators;
  const size_t depth = std::min(stack.depth, stack.calls.size());
  for (size_t i = depth; i > 0; --i) {
    const auto& call = stack.calls[i - 1];
    if (is_factory(call.name)) continue;
    const char* const convolution = is(call.name, "aten::clone") ? convolution_around(stack, i - 1) : nullptr;
    if (convolution != nullptr) return {owner_id(Category::temporaries, convolution), call.id};
    // The engine's own entries ("autograd::engine::…") are no operators: what dies in them is no kernel's
    // scratch.
    return {owner_id(Category::temporaries, call.name), is_operator(call.name) ? call.id : 0};
  }
  // A thread that works for an operator of another one: what it allocates dies before the loop ends.
  if (at::in_parallel_region()) return {owner_id(Category::scratch, "threads of an operator"), 0};
  if (depth > 0) return {owner_id(Category::temporaries, stack.calls[0].name), 0};
  return {owner_id(Category::other, "outside any operator"), 0};
}

bool is_running(uint64_t operation) {
  const auto& stack = operators;
  for (size_t i = 0; operation != 0 && i < std::min(stack.depth, stack.calls.size()); ++i) {
    if (stack.calls[i].id == operation) return true;
  }
  return false;
}

at::CallbackHandle track_operators() {
  return at::addGlobalCallback(
      at::RecordFunctionCallback(&enter_operator, &leave_operator).scopes({at::RecordScope::FUNCTION}));
}

std::optional<OwnerId> last_unpacked() {
  return unpacked;
}

void note_unpacked(OwnerId owner) {
  unpacked = owner;
}

OwnerScope::OwnerScope(Category category, std::string_view label)
    : owner_(scope_owner, owner_id(category, label)) {}

}  // namespace dtk::policies
