#include <dtk/policies/policy_kind.h>

#include <algorithm>
#include <stdexcept>

#include "set/built_in_kinds.h"

namespace dtk::policies {
namespace {

struct Kinds {
  std::vector<const PolicyKind*> all = built_in_kinds(), training = {}, alone = {}, inference = {};
  bool listed = false;
};

// Static objects of other files may register theirs before main().
Kinds& kinds() {
  static auto* const registered = new Kinds;
  return *registered;
}

const Kinds& listed_kinds() {
  Kinds& now = kinds();
  if (now.listed) return now;
  now.listed = true;
  for (const PolicyKind* const kind : now.all) {
    if (kind->acts_in_training()) now.training.push_back(kind);
    if (kind->acts_in_training() && kind->acts_alone()) now.alone.push_back(kind);
    if (kind->acts_without_gradient()) now.inference.push_back(kind);
  }
  return now;
}

}  // namespace

void register_policy(const PolicyKind& kind) {
  auto& [all, training, alone, inference, listed] = kinds();
  const std::string name = kind.name();
  if (listed) throw std::logic_error("the policy " + name + " is registered after the list was read");
  if (std::any_of(all.begin(), all.end(), [&](const auto* other) { return other->name() == name; }))
    throw std::logic_error("two policies are called " + name);
  all.push_back(&kind);
}

const std::vector<const PolicyKind*>& policy_kinds() {
  return listed_kinds().training;
}

const std::vector<const PolicyKind*>& policy_kinds(int64_t ranks) {
  return ranks > 1 ? listed_kinds().training : listed_kinds().alone;
}

const std::vector<const PolicyKind*>& inference_kinds() {
  return listed_kinds().inference;
}

const PolicyKind& policy_kind(const std::string& name) {
  for (const PolicyKind* const kind : listed_kinds().all) {
    if (kind->name() == name) return *kind;
  }
  throw std::invalid_argument("no policy is called " + name);
}

const PolicyKind& recomputing_kind() {
  const std::vector<const PolicyKind*>& all = listed_kinds().all;
  return **std::find_if(all.begin(), all.end(), [](const PolicyKind* kind) { return kind->recomputes(); });
}

OwnOptions::OwnOptions() {
  for (const PolicyKind* const kind : listed_kinds().all) {
    if (auto table = kind->new_options()) tables_.all.push_back(std::move(table));
  }
}

Enabled& PolicyKind::enabled(PolicyOptions& options) const {
  Enabled* found = nullptr;
  PolicyOptions::tables(options, [&, own = name()](const char* policy, auto& table) {
    if (policy == own) found = &table.enabled;
  });
  if (found == nullptr)
    throw std::logic_error("the policy " + name() + " is registered without options under its name");
  return *found;
}

bool PolicyKind::is_on(const PolicyOptions& options, c10::Device) const {
  return enabled(options) != Enabled::off;
}

void PolicyKind::switch_to(PolicyOptions& options, c10::Device, bool on) const {
  if (on == (enabled(options) != Enabled::off)) return;
  if (on) {
    enabled(options) = Enabled::by_default;
  } else {
    switch_off(options);
  }
}

PolicySwitches switches_of(const PolicyOptions& options, c10::Device device, int64_t ranks) {
  PolicySwitches on;
  for (const PolicyKind* const kind : policy_kinds(ranks)) on.push_back(kind->is_on(options, device));
  return on;
}

PolicyOptions with_switches(PolicyOptions options, c10::Device device, const PolicySwitches& on,
                            int64_t ranks) {
  for (size_t i = 0; i < on.size(); ++i) policy_kinds(ranks)[i]->switch_to(options, device, on[i]);
  return options;
}

}  // namespace dtk::policies
