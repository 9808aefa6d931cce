// The model families that a run can train, and what the configuration knows of each.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "toolkit/config/family_options.h"

namespace dtk {

class RuleCheck;
struct LoadedConfig;
struct RunConfig;

/// Samples that a run does not train on.
struct HeldOut {
  bool some = false;
  std::string key;   // that says which
  std::string none;  // "data.validation = 0 holds none out": why there are none
};

/// What the configuration knows of a family. ModelFamily (toolkit/train/model_family.h) is all of it.
class ConfiguredFamily {
 public:
  virtual ~ConfiguredFamily() = default;
  /// As train.model says it.
  virtual std::string name() const = 0;
  /// Whether its runs have no use for `key`, although all runs have it: "data.samples".
  virtual bool ignores(const std::string& /*key*/) const { return false; }
  /// What train.parts may name; empty: all of the model is trained.
  virtual std::vector<std::string> parts() const { return {}; }
  /// What of data.kind it is trained on: "idx | images".
  virtual std::string data_kinds() const = 0;
  virtual HeldOut held_out(const RunConfig& config) const = 0;
  /// Whether its samples are of different lengths, so that data.order has a use.
  virtual bool has_lengths() const { return false; }
  /// Its tables in a configuration, at their defaults, which may add to common ones, such as [data]; null if
  /// it has no key of its own. No two families have the same key.
  virtual std::unique_ptr<OptionTables> new_options() const { return nullptr; }
  /// Whether its models are of use where nobody trains them: a configuration may then say no end of a run.
  virtual bool infers() const { return false; }
  /// Of its attention; weights of a run are for as many. Absent for options of which no model can be built.
  virtual std::optional<int64_t> heads(const RunConfig& config) const = 0;

  /// Gives keys that the user did not write what suits others (settle()). Leaves alone what follows from a
  /// value that the rules refuse.
  virtual void settle_defaults(LoadedConfig&) const {}
  /// Throws for the first rule that the options of the model break.
  virtual void check_model(const RuleCheck&) const {}
  /// The same of what is its own of [data], before held-out samples are looked at.
  virtual void check_data(const RuleCheck&) const {}
  /// The same of what else is its own, once the rules of length and data hold.
  virtual void check_samples(const RuleCheck&) const {}
  /// As dtk::useless_because(), of what only this family knows.
  virtual std::string useless_because(const RunConfig&, const std::string& /*key*/) const { return ""; }
  /// Whether a run that is resumed may have another value of `key`, one of this family's. Of its own tables,
  /// which say what is trained, none may unless it is known that what was trained stays of use.
  virtual bool may_change_on_resume(const std::string& key) const;
  /// "hidden = 384 (DiT-S/4)": what is said of `key`, which is not set and follows from another; "": nothing
  /// does.
  virtual std::string derived_value(const RunConfig&, const std::string& /*key*/) const { return ""; }
};

/// Of toolkit/families, each of whose folders defines `const ModelFamily& dtk::<folder>::family()`: CMake
/// writes the list.
std::vector<const ConfiguredFamily*> built_in_families();

/// Adds a family of a program's own, which must outlive all runs. Throws std::logic_error once families() was
/// called: call it first in main(), or by a static object.
void register_family(const ConfiguredFamily& family);

/// The default of train.model first, then by name. Throws std::logic_error if two have the same name.
const std::vector<const ConfiguredFamily*>& families();

/// Throws std::invalid_argument if there is none.
const ConfiguredFamily& family_named(const std::string& name);

/// The one among whose own keys `key` is; null for a common key.
const ConfiguredFamily* owner_of(const std::string& key);

/// "dit | diffusion_planner", "idx | images | ... | frames": of all families.
const std::string& family_choices();
const std::string& data_kind_choices();

}  // namespace dtk
