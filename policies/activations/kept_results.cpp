#include <ATen/core/dispatch/Dispatcher.h>
#include <dtk/policies/internal/kept_results.h>
#include <dtk/policies/internal/path_globs.h>
#include <dtk/policies/options/checkpoint_options.h>
#include <dtk/policies/report.h>

#include "activations/selective.h"

namespace dtk::policies {
namespace {

std::vector<std::string> all_operators() {
  std::set<std::string> names;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) names.insert(name.name);
  return {names.begin(), names.end()};
}

void check_operator(const std::string& name) {
  bool known = false, made_of_others = false;
  for (const c10::OperatorName& one : c10::Dispatcher::singleton().getAllOpNames()) {
    if (one.name != name) continue;
    const auto op = c10::Dispatcher::singleton().findSchema(one);
    if (!op) continue;
    if (can_be_kept(*op)) return;
    known = true;
    made_of_others |= op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
  }
  const std::string key = "policies.checkpoint.keep", where = ": \"" + name + "\" ";
  if (!known) {
    const std::string base = name.substr(0, name.find('.'));
    const bool overload = base != name && c10::Dispatcher::singleton().findSchema({base, ""});
    throw PolicyError(key, where + "is no operator of LibTorch; near: " +
                               (overload ? base + ", which means all of its overloads"
                                         : nearest_paths(name, all_operators())));
  }
  if (made_of_others) {
    throw PolicyError(key, where +
                               "is made of other operators; name those of them that are to be kept, such as "
                               "aten::addmm of aten::linear, or mark its result in the model by a name");
  }
  throw PolicyError(
      key, where + "returns no new tensor that autograd knows, or a cast, so there is nothing to keep");
}

// What somebody who wrote `entry` for the name of a result may have meant: an operator, or a word that stands
// alone.
std::string meant_by(const std::string& entry) {
  if (entry.find("::") != std::string::npos) return "";
  if (c10::Dispatcher::singleton().findSchema({"aten::" + entry, ""})) return "aten::" + entry;
  for (const char* word : enum_texts(KeepWord{})) {
    if (edit_distance(entry, word) <= 1) return word;
  }
  return "";
}

}  // namespace

KeptResults::KeptResults(const std::vector<std::string>& entries) {
  for (const std::string& entry : entries) {
    if (entry.find("::") == std::string::npos) {
      names_.insert(entry);
    } else {
      check_operator(entry);
      operators_.insert(entry);
    }
  }
}

void KeptResults::met_name(std::string_view name) {
  const std::lock_guard lock(mutex_);
  if (!checked_ && met_names_.count(name) == 0) met_names_.emplace(name);
}

void KeptResults::met_operator(std::string_view name) {
  const std::lock_guard lock(mutex_);
  if (!checked_ && met_operators_.count(name) == 0) met_operators_.emplace(name);
}

void KeptResults::check_met(const std::string& key) {
  const std::lock_guard lock(mutex_);
  if (checked_) return;
  const auto check = [&](const Texts& wanted, const Texts& met, const char* what) {
    for (const std::string& entry : wanted) {
      if (met.count(entry) > 0) continue;
      const std::string meant = meant_by(entry);
      throw PolicyError(key, ": \"" + entry + "\" is " + what + " the segments' forward passes; " +
                                 (!meant.empty() ? "near: " + meant
                                  : met.empty()  ? "there are none"
                                                : "near: " + nearest_paths(entry, {met.begin(), met.end()})));
    }
  };
  check(names_, met_names_, "no name of a result in");
  check(operators_, met_operators_, "an operator that does not run in");
  checked_ = true;
}

}  // namespace dtk::policies
