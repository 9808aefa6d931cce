// Whether weights are those of a DiT, and what to set where they are not.
#include <c10/util/StringUtil.h>
#include <dtk/policies/advice.h>

#include <cmath>

#include "toolkit/checkpoint/weights_fit.h"
#include "toolkit/families/dit/trainable.h"

namespace dtk::dit {
namespace {

using policies::advise;

constexpr char class_table[] = "y_embedder.embedding_table.weight";

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
    std::string text = c10::str("\n  The weights' label table has ", rows, " rows: ");
    if (options_.class_dropout > 0) {
      return text + c10::str(advise("model.classes", std::to_string(rows - 1)), ", or ", rows,
                             " with model.class_dropout = 0 if none of them is for the null label");
    }
    return text + c10::str(advise("model.classes", std::to_string(rows)), ", or ", rows - 1,
                           " with model.class_dropout above 0 if one of them is for the null label");
  }

  std::string positions() const {
    Shape file, model;
    if (!both("pos_embed", 3, file, model) || file[1] == model[1]) return "";
    std::string text =
        c10::str("\n  pos_embed is a fixed table with one row a token: the weights are for ", file[1],
                 " tokens, this model has ", model[1], ", (model.image_size / model.patch) squared; ");
    Shape file_patch, model_patch;
    const auto grid = static_cast<int64_t>(std::llround(std::sqrt(static_cast<double>(file[1]))));
    if (both("x_embedder.proj.weight", 4, file_patch, model_patch) && grid * grid == file[1]) {
      return text + c10::str(advise("model.image_size", std::to_string(grid * file_patch[2])),
                             " with model.patch = ", file_patch[2]);
    }
    return text + "set both as the weights were trained";
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
      return "\n  The weights predict a variance too; " + advise("model.learn_sigma", "true");
    if (2 * file[0] == model[0])
      return "\n  The weights predict no variance; " + advise("model.learn_sigma", "false");
    return "";
  }

  const Shapes& file_;
  const Shapes& model_;
  const models::DitOptions& options_;
};

}  // namespace

void TrainableDit::check_fit(const Weights& weights) const {
  const models::DitOptions& options = dit_.options();
  const auto hints = [&](const Shapes& file, const Shapes& own) { return Hints(file, own, options).text(); };
  dtk::check_fit(weights, parameters(), derived(), hints, options.heads.value(), "model.heads");
}

}  // namespace dtk::dit
