// Whether weights are those of a model, and what to set where they are not.
#include "toolkit/checkpoint/weights_fit.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/StringUtil.h>
#include <dtk/policies/memory_ledger.h>

#include <cmath>
#include <set>

#include "toolkit/core/errors.h"
#include "toolkit/io/json.h"

namespace dtk {
namespace {

constexpr char class_table[] = "y_embedder.embedding_table.weight";

std::string shape_text(const Shape& shape) {
  return c10::str(at::IntArrayRef(shape));
}

/// "\n  missing (9): a [2, 3], b [4], c [5] and 6 more"
std::string list_line(const std::string& title, const std::vector<std::string>& entries) {
  constexpr size_t shown = 4;
  if (entries.empty()) return "";
  std::string line = "\n  " + title + " (" + std::to_string(entries.size()) + "): ";
  for (size_t i = 0; i < std::min(shown, entries.size()); ++i) line += (i > 0 ? ", " : "") + entries[i];
  if (entries.size() > shown) line += " and " + std::to_string(entries.size() - shown) + " more";
  return line;
}

/// What the differences of a file from a model mean, in the terms of the configuration. Only shapes that
/// differ are looked at.
class Hints {
 public:
  Hints(const Shapes& file, const Shapes& model, const models::DitOptions& options)
      : file_(file), model_(model), options_(options) {}

  std::string text() const { return classes() + positions() + size() + variance(); }

 private:
  bool both(const std::string& name, size_t dimensions, Shape& in_file, Shape& in_model) const {
    return in_both(file_, model_, name, dimensions, in_file, in_model);
  }

  std::string classes() const {
    Shape file, model;
    if (!both(class_table, 2, file, model) || file[0] == model[0]) return "";
    const int64_t rows = file[0];
    std::string text = c10::str("\n  The weights' label table has ", rows, " rows: set model.classes = ");
    if (options_.class_dropout > 0) {
      return text + c10::str(rows - 1, ", or ", rows,
                             " with model.class_dropout = 0 if none of them is for the null label");
    }
    return text + c10::str(rows, ", or ", rows - 1,
                           " with model.class_dropout above 0 if one of them is for the null label");
  }

  std::string positions() const {
    Shape file, model;
    if (!both("pos_embed", 3, file, model) || file[1] == model[1]) return "";
    std::string text =
        c10::str("\n  pos_embed is a fixed table with one row a token: the weights are for ", file[1],
                 " tokens, this model has ", model[1], ", (model.image_size / model.patch) squared; set ");
    Shape file_patch, model_patch;
    const auto grid = static_cast<int64_t>(std::llround(std::sqrt(static_cast<double>(file[1]))));
    if (both("x_embedder.proj.weight", 4, file_patch, model_patch) && grid * grid == file[1]) {
      return text +
             c10::str("model.image_size = ", grid * file_patch[2], " with model.patch = ", file_patch[2]);
    }
    return text + "both as the weights were trained";
  }

  std::string size() const {
    Shape file, model;
    if (!both("x_embedder.proj.weight", 4, file, model)) return "";
    const int64_t in_file = count_parts(file_, "blocks."), in_model = count_parts(model_, "blocks.");
    if (file[0] == model[0] && in_file == in_model) return "";
    return c10::str("\n  The weights have ", in_file, " blocks of ", file[0], " channels, this model ",
                    in_model, " of ", model[0], "; set model.depth and model.hidden, or model.name");
  }

  std::string variance() const {
    Shape file, model;
    if (!both("final_layer.linear.bias", 1, file, model)) return "";
    if (file[0] == 2 * model[0])
      return "\n  The weights predict a variance too; set model.learn_sigma = true";
    if (2 * file[0] == model[0]) return "\n  The weights predict no variance; set model.learn_sigma = false";
    return "";
  }

  const Shapes& file_;
  const Shapes& model_;
  const models::DitOptions& options_;
};

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

void check_fit(const Weights& weights, const models::NamedTensors& parameters, const FitHints& hints,
               int64_t heads, const std::string& heads_option) {
  Shapes in_file, in_model;
  std::vector<std::string> missing, unknown, misshapen, mistyped;
  std::set<std::string> trained;
  for (const auto& [name, parameter] : parameters) {
    in_model[name] = parameter.sizes().vec();
    if (parameter.requires_grad()) trained.insert(name);
  }
  for (const StoredTensor& tensor : weights.tensors) {
    in_file[tensor.name] = tensor.shape;
    const auto expected = in_model.find(tensor.name);
    if (expected == in_model.end()) {
      unknown.push_back(in_quotes(tensor.name) + " " + shape_text(tensor.shape));
    } else if (expected->second != tensor.shape) {
      misshapen.push_back(tensor.name + " is " + shape_text(tensor.shape) + ", not " +
                          shape_text(expected->second));
    } else if (!c10::isFloatingType(tensor.type)) {
      mistyped.push_back(tensor.name + " holds " + c10::toString(tensor.type));
    }
  }
  for (const auto& [name, parameter] : parameters) {
    if (in_file.count(name) > 0 || trained.count(name) == 0) continue;
    missing.push_back(name + " " + shape_text(in_model[name]));
  }
  const std::string begin = (weights.place.empty() ? "" : weights.place + ": ") + weights.name;
  if (missing.empty() && unknown.empty() && misshapen.empty() && mistyped.empty()) {
    if (!weights.heads || *weights.heads == heads) return;
    throw ConfigError(c10::str(begin, " were trained with ", heads_option, " = ", *weights.heads,
                               ", and this model has ", heads, ", whose attention is another; set ",
                               heads_option, " = ", *weights.heads));
  }
  throw ConfigError(begin + " are not those of this model" + list_line("missing", missing) +
                    list_line("unknown", unknown) + list_line("of another shape", misshapen) +
                    list_line("not floating-point", mistyped) +
                    "\n  Allowed are the parameters of this model, all that are trained and no others, in "
                    "floating point; name such weights, or set [model] as these were trained" +
                    hints(in_file, in_model));
}

void check_fit(const Weights& weights, const models::Dit& model) {
  const auto hints = [&](const Shapes& file, const Shapes& own) {
    return Hints(file, own, model.options()).text();
  };
  check_fit(weights, model.parameters(), hints, model.options().heads.value(), "model.heads");
}

void copy_weights(const Weights& weights, const models::NamedTensors& parameters) {
  const ByName stored = by_name(weights);
  const policies::OwnerScope owner(policies::Category::data, "weights being read");
  for (const auto& [name, parameter] : parameters) {
    const auto found = stored.find(name);
    if (found != stored.end()) copy_stored(*found->second, parameter);
  }
}

std::vector<NamedTensor> in_order(const Weights& weights, const models::NamedTensors& parameters,
                                  const std::function<at::Tensor(const std::string& name)>& missing) {
  const ByName stored = by_name(weights);
  std::vector<NamedTensor> tensors;
  for (const auto& [name, parameter] : parameters) {
    const auto found = stored.find(name);
    tensors.push_back({name, found != stored.end() ? found->second->read().to(at::kFloat) : missing(name)});
  }
  return tensors;
}

}  // namespace dtk
