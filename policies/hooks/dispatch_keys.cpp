#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DispatchKeySet.h>
#include <dtk/policies/internal/dispatch_keys.h>
#include <torch/version.h>

#include <algorithm>
#include <string_view>
#include <vector>

namespace dtk::policies {
namespace {

// Of what LibTorch prints of an operator, the line on `key`, up to `end`; "" without one.
std::string origin(const std::string& printed, c10::DispatchKey key, std::string_view end) {
  const std::string begin = c10::str("\n", key, ": ");
  const size_t at = printed.find(begin);
  if (at == std::string::npos) return "";
  const size_t first = at + begin.size();
  const std::string line = printed.substr(first, printed.find('\n', first) - first);
  const size_t last = line.find(end);
  return last == std::string::npos ? "" : line.substr(0, last);
}

// LibTorch tells where a fallback comes from only by an operator that would use it.
std::string fallback_on(c10::DispatchKey key) {
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findOp(name);
    const std::string from = op ? origin(op->dumpComputedTable(), key, " [backend fallback]") : "";
    if (!from.empty()) return "a fallback, " + from;
  }
  return "a fallback";
}

std::string kernels_on(c10::DispatchKey key, const std::vector<c10::OperatorName>& names) {
  const auto by_name = [](const auto& a, const auto& b) { return c10::toString(a) < c10::toString(b); };
  const auto first = std::min_element(names.begin(), names.end(), by_name);
  const auto op = c10::Dispatcher::singleton().findOp(*first);
  const size_t more = names.size() - 1;
  return c10::str("a kernel of ", *first, more > 0 ? c10::str(" and ", more, " others") : "", ", ",
                  op ? origin(op->dumpState(), key, " :: ") : "");
}

// On the keys of autograd LibTorch has fallbacks of its own.
bool has_fallback(c10::DispatchKey key) {
  return c10::toFunctionalityKey(key) != c10::DispatchKey::AutogradFunctionality &&
         c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(key);
}

std::string others_on(c10::DispatchKey key) {
  if (has_fallback(key)) return fallback_on(key);
  const std::vector<c10::OperatorName> names =
      c10::Dispatcher::singleton().getRegistrationsForDispatchKey(key);
  return names.empty() ? "" : kernels_on(key, names);
}

}  // namespace

std::string dispatch_key_mismatch(const BorrowedKey& borrowed) {
  const std::string found = c10::toString(borrowed.key);
  if (found == borrowed.name) return "";
  return c10::str("LibTorch's dispatch key ", static_cast<int>(borrowed.key), " is ", found,
                  " in this process, and was ", borrowed.name, " in the LibTorch ", TORCH_VERSION,
                  " that dtk was compiled with; run with that version, or compile dtk with this one");
}

std::string dispatch_key_conflict(KeyUser user) {
  for (const BorrowedKey& borrowed : kBorrowedKeys) {
    if (borrowed.user != user) continue;
    std::string problem = dispatch_key_mismatch(borrowed);
    if (!problem.empty()) return problem;
    const std::string others = others_on(borrowed.key);
    if (others.empty()) continue;
    return c10::str("LibTorch's dispatch key ", borrowed.key, " has two users in this process: dtk, for ",
                    borrowed.use, ", and what has registered ", others,
                    "; only one of them can have it, so leave one out of this process");
  }
  return "";
}

}  // namespace dtk::policies
