// The model families that a run can train, and what the configuration knows of each.
#pragma once
#include <string>
#include <vector>

namespace dtk {

/// What the configuration knows of a family. ModelFamily (toolkit/train/model_family.h) is all of it.
class ConfiguredFamily {
 public:
  virtual ~ConfiguredFamily() = default;
  /// As train.model says it.
  virtual std::string name() const = 0;
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

}  // namespace dtk
