// The options of policies that a program registers (policy_kind.h), and of whatever else is configured by
// structs of unknown types. Free of LibTorch.
#pragma once
#include <dtk/policies/enum_text.h>
#include <dtk/policies/internal/enabled.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace dtk::policies {

/// What a key can be. An entry of a struct's list is visit(name, member, allowed, meaning): `allowed` says
/// what values, or "" where its type does, and `meaning`, which may be left out, what the key is for.
using OptionField =
    std::variant<bool*, int64_t*, double*, std::string*, std::optional<bool>*, std::optional<int64_t>*,
                 std::optional<double>*, std::optional<std::string>*, std::vector<std::string>*,
                 std::array<double, 4>*, std::optional<std::array<int64_t, 4>>*, Enabled*>;

/// visit(name, member, allowed, meaning) for each entry of a struct's list, of an enum as a text that is one
/// of its choices. An enum is written only where the text was changed, so that a walk that changes nothing
/// may be over what others read.
template <class Options, class Visit>
void visit_as_keys(Options& options, Visit&& visit) {
  Options::fields(
      options, [&](std::string_view key, auto& member, std::string_view allowed, const char* meaning = "") {
        const std::string name(key);
        using Value = std::decay_t<decltype(member)>;
        if constexpr (TextEnum<Value>) {
          const std::string before = text_of(member);
          std::string text = before;
          visit(name, text, choices_of<Value>(), meaning);
          if (text != before) member = parse_enum<Value>(text).value();
        } else {
          visit(name, member, std::string(allowed), meaning);
        }
      });
}

/// Calls visit(member) for what a variant of pointers holds; it is const where `Self` is.
template <class Self, class Field, class Visit>
void visit_member(const Field& field, Visit&& visit) {
  std::visit(
      [&](auto* member) {
        using Member = std::remove_pointer_t<decltype(member)>;
        visit(static_cast<std::conditional_t<std::is_const_v<Self>, const Member, Member>&>(*member));
      },
      field);
}

/// Objects behind an interface with copy() and equals(), copied and compared as values.
template <class Interface>
class ValueList {
 public:
  ValueList() = default;
  ValueList(const ValueList& other) {
    for (const auto& one : other.all) all.push_back(one->copy());
  }
  ValueList& operator=(const ValueList& other) {
    if (this != &other) *this = ValueList(other);
    return *this;
  }
  ValueList(ValueList&&) noexcept = default;
  ValueList& operator=(ValueList&&) noexcept = default;
  ~ValueList() = default;
  friend bool operator==(const ValueList& a, const ValueList& b) {
    return std::equal(a.all.begin(), a.all.end(), b.all.begin(), b.all.end(),
                      [](const auto& one, const auto& other) { return one->equals(*other); });
  }

  /// The options of the one of type `Holder`. Throws std::logic_error if there is none.
  template <class Holder>
  auto& options_of() const {
    for (const auto& one : all) {
      if (auto* const found = dynamic_cast<Holder*>(one.get())) return found->options;
    }
    throw std::logic_error("nothing that is registered has such options");
  }

  std::vector<std::unique_ptr<Interface>> all;
};

/// One policy's table.
class OwnTable {
 public:
  using Visit = std::function<void(const std::string& name, OptionField field, const std::string& allowed,
                                   const char* meaning)>;
  OwnTable(const std::string& name, Enabled& switched) : policy(name), enabled(switched) {}
  virtual ~OwnTable() = default;
  virtual std::unique_ptr<OwnTable> copy() const = 0;
  /// Whether the other is of the same options type, with equal values.
  virtual bool equals(const OwnTable& other) const = 0;
  /// Each field but the policy's name: `enabled` and those of its options, in their order.
  virtual void visit_fields(const Visit& visit) = 0;

  template <class Self, class Visitor>
  static void fields(Self& self, Visitor&& visit) {
    const_cast<OwnTable&>(self).visit_fields(
        [&](const std::string& name, OptionField field, const std::string& allowed, const char* meaning) {
          visit_member<Self>(field, [&](auto& member) { visit(name, member, allowed, meaning); });
        });
  }

  const std::string policy;  // its name
  Enabled& enabled;          // of its options
};

/// A base, so that options live before the table that refers to them.
template <class Options>
struct OptionsMember {
  Options options;
};

/// That of a struct with one list of its fields, `enabled` among them, as EmaOptions has it.
template <class Options>
class OwnTableOf final : public OptionsMember<Options>, public OwnTable {
 public:
  using OptionsMember<Options>::options;
  explicit OwnTableOf(const std::string& name) : OwnTable(name, options.enabled) {}
  OwnTableOf(const OwnTableOf& other)
      : OptionsMember<Options>(other), OwnTable(other.policy, options.enabled) {}
  std::unique_ptr<OwnTable> copy() const override { return std::make_unique<OwnTableOf>(*this); }
  bool equals(const OwnTable& other) const override {
    const auto* const same = dynamic_cast<const OwnTableOf*>(&other);
    return same != nullptr && options == same->options;
  }
  void visit_fields(const Visit& visit) override {
    visit_as_keys(options, [&](const std::string& name, auto& member, const std::string& allowed,
                               const char* meaning) { visit(name, &member, allowed, meaning); });
  }
};

/// Those of all registered policies, each at its defaults to begin with.
class OwnOptions {
 public:
  OwnOptions();
  friend bool operator==(const OwnOptions&, const OwnOptions&) = default;

  /// Those of the policy that has such. Throws std::logic_error if there is none.
  template <class Options>
  Options& of() {
    return tables_.options_of<OwnTableOf<Options>>();
  }
  template <class Options>
  const Options& of() const {
    return tables_.options_of<OwnTableOf<Options>>();
  }

  /// visit(policy, table) for each.
  template <class Self, class Visit>
  static void tables(Self& self, Visit&& visit) {
    for (const auto& table : self.tables_.all)
      visit(table->policy.c_str(),
            static_cast<std::conditional_t<std::is_const_v<Self>, const OwnTable, OwnTable>&>(*table));
  }

 private:
  ValueList<OwnTable> tables_;
};

}  // namespace dtk::policies
