#include <dtk/models/dit_options.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "seam/option_text.h"

namespace dtk::models {
namespace {

/// By preset; that of `custom` is none.
constexpr DitSize published_sizes[] = {{},
                                       {12, 384, 6, 2},
                                       {12, 384, 6, 4},
                                       {12, 384, 6, 8},
                                       {12, 768, 12, 2},
                                       {12, 768, 12, 4},
                                       {12, 768, 12, 8},
                                       {24, 1024, 16, 2},
                                       {24, 1024, 16, 4},
                                       {24, 1024, 16, 8},
                                       {28, 1152, 16, 2},
                                       {28, 1152, 16, 4},
                                       {28, 1152, 16, 8}};
static_assert(std::size(published_sizes) == enum_texts(DitPreset()).size());

/// What model.hidden must be a multiple of.
int64_t hidden_step(int64_t heads) {
  const int64_t times = 4 / std::gcd(heads, int64_t{4});
  return heads > std::numeric_limits<int64_t>::max() / times ? heads : heads * times;
}

DitOptions with_published_size(DitOptions options, const DitSize& size) {
  options.depth = size.depth;
  options.hidden = size.hidden;
  options.heads = size.heads;
  options.patch = size.patch;
  return options;
}

/// Collects broken rules; the order of the calls is the order of the fields.
class DitChecker {
 public:
  explicit DitChecker(const DitOptions& options) : options_(options) {}

  std::vector<DitProblem> run() {
    const std::optional<DitSize> size = published_size(options_.name);
    if (size) {
      check_fixed_by_name(*size);
      if (found_.empty()) options_ = with_published_size(options_, *size);
    } else {
      check_custom_size();
    }
    check_ranges();
    if (found_.empty()) check_divisions();
    return std::move(found_);
  }

 private:
  void add(const char* field, const std::string& message) { found_.push_back({field, message}); }

  // What resolved() returned has all four fields and they agree with the name: that is no contradiction.
  void check_fixed_by_name(const DitSize& size) {
    if (with_published_size(options_, size) == options_) return;
    const auto check = [&](const char* field, const std::optional<int64_t>& value) {
      if (!value) return;
      add(field, std::string("model.") + field + " is fixed by model.name = \"" + text(options_.name) +
                     "\"; remove it, or use name = \"custom\"");
    };
    check("depth", options_.depth);
    check("hidden", options_.hidden);
    check("heads", options_.heads);
    check("patch", options_.patch);
  }

  void check_custom_size() {
    std::string missing;
    const auto check = [&](const char* field, const std::optional<int64_t>& value) {
      if (!value) missing += (missing.empty() ? "model." : ", model.") + std::string(field);
    };
    check("depth", options_.depth);
    check("hidden", options_.hidden);
    check("heads", options_.heads);
    check("patch", options_.patch);
    if (missing.empty()) return;
    add("name",
        "model.name = \"custom\" needs model.depth, model.hidden, model.heads and model.patch; missing: " +
            missing + "; set them, or give a published name such as \"DiT-S/4\"");
  }

  // Options made in code have passed no reader that knows the intervals of `fields`.
  void check_ranges() {
    const auto positive = [&](const char* field, int64_t value) {
      if (value >= 1) return;
      add(field, std::string("model.") + field + " = " + std::to_string(value) + " must be at least 1");
    };
    const auto probability = [&](const char* field, double value) {
      if (value >= 0 && value < 1) return;
      add(field, std::string("model.") + field + " = " + text(value) + " must be in [0, 1)");
    };
    positive("depth", options_.depth.value_or(1));
    positive("hidden", options_.hidden.value_or(1));
    positive("heads", options_.heads.value_or(1));
    positive("patch", options_.patch.value_or(1));
    positive("image_size", options_.image_size);
    positive("channels", options_.channels);
    positive("classes", options_.classes);
    probability("class_dropout", options_.class_dropout);
    if (!(options_.mlp_ratio > 0) || !std::isfinite(options_.mlp_ratio)) {
      add("mlp_ratio", "model.mlp_ratio = " + text(options_.mlp_ratio) + " must be in (0, inf)");
    }
    probability("mlp_dropout", options_.mlp_dropout);
  }

  void check_divisions() {
    const int64_t hidden = *options_.hidden;
    const std::string hidden_text = "model.hidden = " + std::to_string(hidden);
    const std::string fitting_hidden =
        "; set model.hidden = " + near_multiples(hidden, hidden_step(*options_.heads));
    if (hidden % *options_.heads != 0) {
      add("hidden", hidden_text + " is not divisible by model.heads = " + std::to_string(*options_.heads) +
                        fitting_hidden + ", or model.heads to a divisor of " + std::to_string(hidden));
    }
    if (hidden % 4 != 0) {
      add("hidden",
          hidden_text + " is not divisible by 4, which the position embedding needs" + fitting_hidden);
    }
    if (options_.image_size % *options_.patch != 0) {
      add("image_size",
          "model.image_size = " + std::to_string(options_.image_size) +
              " is not divisible by model.patch = " + std::to_string(*options_.patch) +
              "; set model.image_size = " + near_multiples(options_.image_size, *options_.patch) +
              ", or use a patch that divides " + std::to_string(options_.image_size));
    }
    const double width = static_cast<double>(hidden) * options_.mlp_ratio;
    if (width != std::floor(width)) {
      add("mlp_ratio", "model.mlp_ratio = " + text(options_.mlp_ratio) + " times " + hidden_text + " is " +
                           text(width) + ", not a whole number; set a ratio that makes it one, such as " +
                           text(std::max(1.0, std::round(options_.mlp_ratio))));
    }
  }

  DitOptions options_;
  std::vector<DitProblem> found_;
};

}  // namespace

std::optional<DitSize> published_size(DitPreset name) {
  if (name == DitPreset::custom) return std::nullopt;
  return published_sizes[static_cast<size_t>(name)];
}

std::vector<DitProblem> problems(const DitOptions& options) {
  return DitChecker(options).run();
}

DitOptions resolved(const DitOptions& options) {
  const std::vector<DitProblem> found = problems(options);
  if (!found.empty()) throw std::invalid_argument(found.front().message);
  const std::optional<DitSize> size = published_size(options.name);
  return size ? with_published_size(options, *size) : options;
}

int64_t DitOptions::tokens() const {
  const DitOptions all = resolved(*this);
  const int64_t side = all.image_size / *all.patch;
  return side * side;
}

int64_t DitOptions::out_channels() const {
  return learn_sigma ? 2 * channels : channels;
}

}  // namespace dtk::models
