// densenet_checkpoint: memory-efficient DenseNet-BC trained plainly, under dtk::policies::checkpoint() and in
// the form of 2018, side by side: bytes kept for backward, peak, time, running statistics and gradients.
#include <cstdio>
#include <cxxopts.hpp>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "densenet_checkpoint/comparison.h"
#include "densenet_checkpoint/explained.h"
#include "support/arguments.h"
#include "toolkit/core/errors.h"
#include "toolkit/io/json.h"
#include "toolkit/plan/explanation_json.h"
#include "toolkit/programs/process_settings.h"
#include "toolkit/programs/terminal.h"

namespace {

using namespace examples;
using dtk::ConfigError;

cxxopts::Options make_options() {
  cxxopts::Options options(
      "densenet_checkpoint",
      "Trains DenseNet-BC on random images with and without recomputation, side by side.");
  const auto number = [](const char* value) { return cxxopts::value<int64_t>()->default_value(value); };
  options.add_options()("batch", "images in a step", number("64"), "N")(
      "depth", "10, 16, 22 and so on in steps of 6", number("100"), "D")(
      "rounds", "timed steps of each form, in turns", number("5"), "N")(
      "explain", "train nothing; plan what each segment saves, and where the peak is")(
      "json", "print one JSON object")("help", "this text");
  return options;
}

int64_t in_range(const cxxopts::ParseResult& given, const char* option, int64_t most) {
  const auto value = given[option].as<int64_t>();
  if (value < 1 || value > most) {
    throw ConfigError(std::string("--") + option + ": " + std::to_string(value) +
                      " is out of range; allowed: 1 to " + std::to_string(most));
  }
  return value;
}

template <class Act>
auto of_known_depth(Act act) {
  try {
    return act();
  } catch (const std::invalid_argument& error) {
    throw ConfigError(std::string("--") + error.what());
  }
}

void print_json(const Settings& settings, const Comparison& comparison) {
  nlohmann::ordered_json json;
  json["depth"] = settings.depth;
  json["batch"] = settings.batch;
  json["parameters"] = comparison.parameters;
  json["parameter_tensors"] = comparison.tensors;
  for (const FormOutcome& form : comparison.forms) {
    json["forms"].push_back({{"name", name_of(form.form)},
                             {"saved_bytes_per_image", form.saved_per_image},
                             {"peak_activation_bytes", form.peak},
                             {"ms", form.ms},
                             {"ms_ratio", form.ms_ratio},
                             {"gradient_error", form.gradient_error},
                             {"equal_statistics", form.equal_statistics},
                             {"steps", form.steps},
                             {"batches_tracked", form.batches_tracked}});
  }
  std::printf("%s\n", json.dump(1).c_str());
}

void print_row(const FormOutcome& form, const FormOutcome& plain) {
  char gradients[32];
  std::snprintf(gradients, sizeof gradients, form.gradient_error == 0 ? "bit-equal" : "off by %.1e",
                form.gradient_error);
  const std::string statistics =
      (form.equal_statistics ? "equal, " : "differ, ") + std::to_string(form.batches_tracked) + " batches";
  std::printf("| %-17s | %10lld | %9.1f | %5.3f | %7.0f | %5.3f | %-9s | %-18s |\n", name_of(form.form),
              static_cast<long long>(form.saved_per_image), static_cast<double>(form.peak) / 1e6,
              static_cast<double>(form.peak) / static_cast<double>(plain.peak), form.median_ms, form.ms_ratio,
              gradients, statistics.c_str());
}

void print_table(const Settings& settings, const Comparison& comparison) {
  std::printf(
      "DenseNet-BC, depth %lld: %lld parameters in %lld tensors; batch %lld, %lld steps of each form\n\n",
      static_cast<long long>(settings.depth), static_cast<long long>(comparison.parameters),
      static_cast<long long>(comparison.tensors), static_cast<long long>(settings.batch),
      static_cast<long long>(comparison.forms.front().steps));
  std::printf(
      "| form              | saved/image | peak, MB | ratio | step ms | ratio | gradients | "
      "running statistics |\n|---|---:|---:|---:|---:|---:|---|---|\n");
  for (const FormOutcome& form : comparison.forms) print_row(form, comparison.forms.front());
}

dtk::ExitCode run(int argc, const char* const* argv) {
  const cxxopts::ParseResult given = parsed(make_options(), argc, argv);
  if (given.count("help") != 0) {
    std::printf("%s", make_options().help().c_str());
    return dtk::ExitCode::done;
  }
  constexpr int64_t max_images = 1 << 20, max_rounds = 1000, deepest = 1000;
  const Settings settings{.depth = in_range(given, "depth", deepest),
                          .batch = in_range(given, "batch", max_images),
                          .rounds = in_range(given, "rounds", max_rounds)};
  if (given["explain"].as<bool>()) {
    if (given.count("rounds") != 0)
      throw ConfigError("--rounds and --explain: what is explained is planned, not timed; give one of them");
    const bool json = given["json"].as<bool>();
    dtk::planner::Explanation why;
    of_planned([&] { why = of_known_depth([&] { return explain(settings); }); });
    std::printf("%s",
                (json ? dtk::json_text(dtk::explanation_json(why)) : dtk::planner::text_of(why)).c_str());
    return dtk::ExitCode::done;
  }
  const Comparison comparison = of_known_depth([&] { return compare(settings); });
  (given["json"].as<bool>() ? print_json : print_table)(settings, comparison);
  return dtk::ExitCode::done;
}

}  // namespace

int main(int argc, char** argv) {
  // Else each step of the plain form, the largest, would pay for pages that glibc gave back.
  dtk::apply_process_settings();
  return dtk::run_program("densenet_checkpoint", "give a smaller --batch", [&] { return run(argc, argv); });
}
