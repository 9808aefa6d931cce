// The options of model families in a configuration, which knows none of them: each family has a struct of its
// tables, and each table one list of its fields (config.h).
#pragma once
#include <dtk/policies/options/own_options.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>

namespace dtk {

using policies::OptionField;

/// The tables of one family.
class OptionTables {
 public:
  using Visit = std::function<void(const std::string& table, const std::string& name, OptionField field,
                                   const std::string& allowed, const char* meaning)>;
  virtual ~OptionTables() = default;
  virtual std::unique_ptr<OptionTables> copy() const = 0;
  virtual bool equals(const OptionTables& other) const = 0;
  /// All fields in the order in which they are printed.
  virtual void visit_fields(const Visit& visit) = 0;
};

/// Those of a struct with tables(self, visit), which calls visit(table name, struct) for each.
template <class Options>
class TablesOf final : public OptionTables {
 public:
  std::unique_ptr<OptionTables> copy() const override { return std::make_unique<TablesOf>(*this); }
  bool equals(const OptionTables& other) const override {
    const auto* const same = dynamic_cast<const TablesOf*>(&other);
    return same != nullptr && options == same->options;
  }
  void visit_fields(const Visit& visit) override {
    Options::tables(options, [&](const std::string& table, auto& fields) {
      policies::visit_as_keys(fields,
                              [&](const std::string& name, auto& member, const std::string& allowed,
                                  const char* meaning) { visit(table, name, &member, allowed, meaning); });
    });
  }

  Options options;
};

/// Those of all families (families.h), each at its defaults to begin with.
class FamilyOptions {
 public:
  FamilyOptions();
  friend bool operator==(const FamilyOptions&, const FamilyOptions&) = default;

  /// Those of the family that has such. Throws std::logic_error if there is none.
  template <class Options>
  Options& of() {
    return tables_.options_of<TablesOf<Options>>();
  }
  template <class Options>
  const Options& of() const {
    return tables_.options_of<TablesOf<Options>>();
  }

  /// visit(table, name, member, allowed, meaning) for every field.
  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    for (const auto& tables : self.tables_.all) {
      tables->visit_fields([&](const std::string& table, const std::string& name, OptionField field,
                               const std::string& allowed, const char* meaning) {
        policies::visit_member<Self>(field,
                                     [&](auto& member) { visit(table, name, member, allowed, meaning); });
      });
    }
  }

 private:
  policies::ValueList<OptionTables> tables_;
};

}  // namespace dtk
