// Whether weights are those of a model, and what to set where they are not.
#include "toolkit/checkpoint/weights_fit.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/StringUtil.h>
#include <dtk/policies/memory_ledger.h>

#include <set>

#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/core/text.h"
#include "toolkit/io/json.h"

namespace dtk {
namespace {

std::string shape_text(const Shape& shape) {
  return c10::str(at::IntArrayRef(shape));
}

/// "\n  missing (9): a [2, 3], b [4], c [5] and 6 more"
std::string entries_line(const std::string& title, std::vector<std::string> entries) {
  constexpr size_t shown = 4;
  const size_t all = entries.size();
  if (all == 0) return "";
  entries.resize(std::min(shown, all));
  const std::string more = all > shown ? fmt::format(" and {} more", all - shown) : "";
  return fmt::format("\n  {} ({}): {}{}", title, all, c10::Join(", ", entries), more);
}

using ByName = std::map<std::string, const StoredTensor*>;

ByName by_name(const Weights& weights) {
  ByName stored;
  for (const StoredTensor& tensor : weights.tensors) stored[tensor.name] = &tensor;
  return stored;
}

}  // namespace

bool in_both(const Shapes& file, const Shapes& model, const std::string& name, size_t dimensions,
             Shape& in_file, Shape& in_model) {
  const auto a = file.find(name), b = model.find(name);
  if (a == file.end() || b == model.end()) return false;
  in_file = a->second;
  in_model = b->second;
  return in_file.size() == dimensions && in_model.size() == dimensions;
}

int64_t count_parts(const Shapes& shapes, const std::string& prefix) {
  std::set<std::string> parts;
  for (const auto& [name, shape] : shapes) {
    if (name.starts_with(prefix)) {
      parts.insert(name.substr(prefix.size(), name.find('.', prefix.size()) - prefix.size()));
    }
  }
  return static_cast<int64_t>(parts.size());
}

void check_fit(const Weights& weights, const models::NamedTensors& parameters,
               const std::vector<std::string>& derived, const FitHints& hints, int64_t heads,
               const std::string& heads_option) {
  Shapes in_file, in_model;
  std::vector<std::string> missing, unknown, misshapen, mistyped;
  for (const auto& [name, parameter] : parameters) in_model[name] = parameter.sizes().vec();
  for (const StoredTensor& tensor : weights.tensors) {
    in_file[tensor.name] = tensor.shape;
    const auto expected = in_model.find(tensor.name);
    if (expected == in_model.end()) {
      unknown.push_back(in_quotes(tensor.name) + " " + shape_text(tensor.shape));
    } else if (expected->second != tensor.shape) {
      misshapen.push_back(fmt::format("{} is {}, not {}", tensor.name, shape_text(tensor.shape),
                                      shape_text(expected->second)));
    } else if (!c10::isFloatingType(tensor.type)) {
      mistyped.push_back(tensor.name + " holds " + c10::toString(tensor.type));
    }
  }
  for (const auto& [name, parameter] : parameters) {
    if (in_file.count(name) > 0 || contains(derived, name)) continue;
    missing.push_back(name + " " + shape_text(in_model[name]));
  }
  const std::string begin = (weights.place.empty() ? "" : weights.place + ": ") + weights.name;
  if (missing.empty() && unknown.empty() && misshapen.empty() && mistyped.empty()) {
    if (!weights.heads || *weights.heads == heads) return;
    throw ConfigError(c10::str(begin, " were trained with ", heads_option, " = ", *weights.heads,
                               ", and this model has ", heads, ", whose attention is another; set ",
                               heads_option, " = ", *weights.heads));
  }
  throw ConfigError(fmt::format(
      "{} are not those of this model{}{}{}{}\n  Allowed are the parameters of this model, all of them and "
      "no others, in floating point; name such weights, or set [{}] as these were trained{}",
      begin, entries_line("missing", missing), entries_line("unknown", unknown),
      entries_line("of another shape", misshapen), entries_line("not floating-point", mistyped),
      heads_option.substr(0, heads_option.find('.')), hints(in_file, in_model)));
}

void copy_weights(const Weights& weights, const models::NamedTensors& parameters) {
  const ByName stored = by_name(weights);
  const policies::OwnerScope owner(policies::Category::data, "weights being read");
  for (const auto& [name, parameter] : parameters) {
    const auto found = stored.find(name);
    if (found != stored.end()) copy_stored(*found->second, parameter);
  }
}

}  // namespace dtk
