#include "hooks/operator_watch.h"

#include <dtk/policies/internal/dispatch_keys.h>
#include <torch/library.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace dtk::policies {
namespace {

thread_local OperatorScope* innermost_scope = nullptr;

bool kept_kind(const c10::OperatorHandle& op) {
  thread_local std::unordered_map<const void*, bool> known;
  const auto [found, is_new] = known.try_emplace(&op.schema(), false);
  if (is_new) found->second = can_be_kept(op);
  return found->second;
}

void watch(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::DispatchKeySet below =
      keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kOperatorWatchKey);
  // Both come here again: autocast with what it calls, an operator made of others with those.
  const bool calls_others = below.has_any(c10::autocast_dispatch_keyset) ||
                            op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
  if (innermost_scope == nullptr || calls_others) return op.redispatchBoxed(below, stack);
  const c10::impl::ExcludeDispatchKeyGuard inner_calls_are_part_of_it(kOperatorWatchKey);
  if (kept_kind(op)) return innermost_scope->run(op, below, stack);
  op.redispatchBoxed(below, stack);
}

void register_operator_watch() {
  auto* library = new torch::Library(torch::Library::IMPL, "_", kOperatorWatchKey, __FILE__, __LINE__);
  library->fallback(torch::CppFunction::makeFromBoxedFunction<&watch>());
}

// Filled by static objects, in any order.
std::vector<void (*)()>& waiting() {
  static auto* kernels = new std::vector<void (*)()>;  // leaked: a guard may be made after static destruction
  return *kernels;
}

std::mutex& kernels_lock() {
  static auto* lock = new std::mutex;
  return *lock;
}

const EngineKernels operator_watch(&register_operator_watch);

}  // namespace

EngineKernels::EngineKernels(void (*add)()) {
  const std::lock_guard lock(kernels_lock());
  waiting().push_back(add);
}

// Nobody goes on before all are in; what throws is tried again by the next.
void register_engine_kernels() {
  const std::lock_guard lock(kernels_lock());
  for (auto& kernels = waiting(); !kernels.empty(); kernels.pop_back()) kernels.back()();
}

bool can_be_kept(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  const auto is_alias = [](const c10::Argument& one) { return one.alias_info() != nullptr; };
  const auto is_list = [](const c10::Argument& one) {
    return one.type()->kind() == c10::TypeKind::ListType || one.type()->kind() == c10::TypeKind::OptionalType;
  };
  const auto& returns = schema.returns();
  const auto& arguments = schema.arguments();
  // How many casts autocast makes depends on those of weights that it has already.
  const bool is_cast = op.operator_name().name == "aten::_to_copy";
  return !is_cast && !returns.empty() && returns[0].type()->kind() == c10::TypeKind::TensorType &&
         std::none_of(returns.begin(), returns.end(), is_alias) &&
         std::none_of(returns.begin(), returns.end(), is_list) &&
         std::none_of(arguments.begin(), arguments.end(), is_alias) &&
         op.hasKernelForDispatchKey(c10::DispatchKey::Autograd) &&
         !op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
}

OperatorScope::OperatorScope(bool watch_operators)
    : outer_(std::exchange(innermost_scope, watch_operators ? this : nullptr)) {
  if (!watch_operators) return;
  watched_.emplace(kOperatorWatchKey);
}

OperatorScope::~OperatorScope() {
  innermost_scope = outer_;
}

OperatorScope* OperatorScope::innermost() {
  return innermost_scope;
}

UnwatchedScope::UnwatchedScope() : unwatched_(kOperatorWatchKey) {}

}  // namespace dtk::policies
