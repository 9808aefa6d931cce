// forum_cnn: what checkpointing does for a network whose memory is its weights. Trains it, or plans it where
// it is too large, in one of the ways that were tried, and prints what was kept for backward and the peak.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cxxopts.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "forum_cnn/training.h"
#include "support/arguments.h"
#include "toolkit/core/errors.h"
#include "toolkit/plan/explanation_json.h"
#include "toolkit/programs/terminal.h"
#include "toolkit/report/memory_report.h"

namespace {

using namespace examples;
using dtk::ConfigError;

template <class Value>
using Choices = std::map<std::string, Value>;

const Choices<Variant> kVariants = {{"plain", Variant::plain},
                                    {"per_op", Variant::per_op},
                                    {"conv_relu", Variant::conv_relu},
                                    {"one_block", Variant::one_block},
                                    {"all_conv", Variant::all_conv}};
const Choices<AdamForm> kOptimizers = {
    {"adam-single", AdamForm::single}, {"adam-foreach", AdamForm::foreach}, {"fused", AdamForm::fused}};
const Choices<Head> kNetworks = {{"small", Head::one}, {"full", Head::three}};
const Choices<bool> kMeasures = {{"run", false}, {"plan", true}};

struct Arguments {
  Job job;
  bool plan = false, explain = false, json = false;
  std::string network, variant, optimizer;  // as given
};

cxxopts::Options make_options() {
  cxxopts::Options options("forum_cnn",
                           "Trains a small CNN with a huge linear head under activation checkpointing, and "
                           "says what that saves.");
  const auto text = [](const char* value) { return cxxopts::value<std::string>()->default_value(value); };
  options.add_options()("input", "batch and sizes of the images [100,20,19,22; full: 100,20,45,43]",
                        cxxopts::value<std::string>(), "B,C,H,W")(
      "channels", "of the results of the three convolutions", text("50,25,10"), "C1,C2,C3")(
      "outputs", "of each linear layer [3258; full: 29913]", cxxopts::value<std::string>(), "N")(
      "variant", "what is a segment: plain, per_op, conv_relu, one_block, all_conv", text("plain"), "V")(
      "network", "small (one linear layer), or full (three, planned unless told to run)", text("small"),
      "NET")("optimizer", "adam-single, adam-foreach, fused", text("adam-single"), "FORM")(
      "measure", "run: train; plan: count the same steps without computing [run; full: plan]",
      cxxopts::value<std::string>(),
      "HOW")("explain", "plan: what each segment saves and why it gains nothing, and where the peak is")(
      "json", "print one JSON object")("help", "this text");
  return options;
}

std::string names(const std::vector<std::string>& list) {
  std::string text;
  for (const std::string& name : list) text += (text.empty() ? "" : ", ") + name;
  return text;
}

template <class Value>
Value choice(const std::string& option, const std::string& given, const Choices<Value>& choices) {
  const auto found = choices.find(given);
  if (found != choices.end()) return found->second;
  std::vector<std::string> allowed;
  for (const auto& [name, value] : choices) allowed.push_back(name);
  throw ConfigError("--" + option + ": \"" + given + "\" is unknown; allowed: " + names(allowed));
}

// As many numbers as `form` has names.
std::vector<int64_t> sizes(const std::string& option, const std::string& given, const std::string& form) {
  constexpr int64_t most = 1 << 30;
  std::vector<int64_t> values;
  const char *at = given.data(), *const end = at + given.size();
  for (bool more = true; more;) {
    int64_t value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    if (error != std::errc() || value < 1 || value > most) {
      values.clear();
      break;
    }
    values.push_back(value);
    more = next != end && *next == ',';
    at = more ? next + 1 : next;
  }
  const auto count = 1 + std::count(form.begin(), form.end(), ',');
  if (at != end || static_cast<int64_t>(values.size()) != count) {
    throw ConfigError("--" + option + ": \"" + given + "\" is not " + form +
                      "; allowed are whole numbers from 1 to " + std::to_string(most));
  }
  return values;
}

// All tensors of a step together stay below what 64 bits count; a plan of that size is still one.
void check_bytes(const NetworkShape& shape) {
  constexpr double most = 1e18;
  const auto [n, c, h, w] = shape.input;
  const auto pixels = static_cast<double>(h) * static_cast<double>(w);
  double from = static_cast<double>(c), weights = 0, activations = from;
  for (const int64_t channels : shape.channels) {
    const auto to = static_cast<double>(channels);
    weights += 9 * from * to;
    activations += 2 * to;
    from = to;
  }
  const auto outputs = static_cast<double>(shape.outputs) * (shape.head == Head::one ? 1 : 3);
  weights += from * pixels * outputs;
  const double bytes = 4 * (4 * weights + static_cast<double>(n) * (2 * activations * pixels + outputs));
  if (bytes <= most) return;
  throw ConfigError(
      "--input, --channels and --outputs: a step of this network would take more than 1e18 bytes; give "
      "smaller "
      "sizes");
}

Arguments read(const cxxopts::ParseResult& given) {
  const auto text = [&](const char* option, const char* otherwise) {
    return given.count(option) != 0 ? given[option].as<std::string>() : std::string(otherwise);
  };
  Arguments arguments;
  arguments.network = text("network", "small");
  arguments.variant = text("variant", "plain");
  arguments.optimizer = text("optimizer", "adam-single");
  const Head head = choice("network", arguments.network, kNetworks);
  const bool full = head == Head::three;
  const auto input = sizes("input", text("input", full ? "100,20,45,43" : "100,20,19,22"), "B,C,H,W");
  const auto channels = sizes("channels", text("channels", "50,25,10"), "C1,C2,C3");
  NetworkShape& shape = arguments.job.shape;
  std::copy(input.begin(), input.end(), shape.input.begin());
  std::copy(channels.begin(), channels.end(), shape.channels.begin());
  shape.outputs = sizes("outputs", text("outputs", full ? "29913" : "3258"), "N").front();
  shape.head = head;
  check_bytes(shape);
  arguments.job.variant = choice("variant", arguments.variant, kVariants);
  arguments.job.optimizer = choice("optimizer", arguments.optimizer, kOptimizers);
  arguments.explain = given["explain"].as<bool>();
  const bool planned = full || arguments.explain;
  arguments.plan = choice("measure", text("measure", planned ? "plan" : "run"), kMeasures);
  if (arguments.explain && !arguments.plan)
    throw ConfigError("--measure run and --explain: what is explained is planned; give one of them");
  arguments.json = given["json"].as<bool>();
  return arguments;
}

// The job with each other optimizer and each other variant.
dtk::planner::Explanation explained(const Arguments& arguments) {
  std::vector<std::pair<std::string, Job>> others;
  for (const auto& [name, optimizer] : kOptimizers) {
    Job other = arguments.job;
    other.optimizer = optimizer;
    if (name != arguments.optimizer) others.emplace_back(name, other);
  }
  for (const auto& [name, variant] : kVariants) {
    Job other = arguments.job;
    other.variant = variant;
    if (name != arguments.variant) others.emplace_back(name, other);
  }
  return explain(arguments.job, others);
}

void print_json(const Arguments& arguments, const Outcome& outcome, const dtk::MemoryReport& report) {
  auto json = dtk::memory_json(report);
  json["network"] = arguments.network;
  json["variant"] = arguments.variant;
  json["optimizer"] = arguments.optimizer;
  json["planned"] = arguments.plan;
  json["parameters"] = outcome.parameters;
  json["saved_bytes"] = outcome.saved_bytes;
  json["gradients_received"] = outcome.gradients_received;
  json["gradients_expected"] = outcome.gradients_expected;
  json["losses"] = outcome.losses;
  if (arguments.explain)
    json["why"] = dtk::explanation_json(explained(arguments));
  std::printf("%s\n", json.dump(1).c_str());
}

// "331.90 MB"; of less than one, "524288 bytes".
std::string size_text(int64_t bytes) {
  if (bytes < 1'000'000) return std::to_string(bytes) + " bytes";
  char text[32];
  std::snprintf(text, sizeof text, "%.2f MB", static_cast<double>(bytes) / 1e6);
  return text;
}

void print_text(const Arguments& arguments, const Outcome& outcome, const dtk::MemoryReport& report) {
  const dtk::policies::PhasePeak peak = report.peak();
  std::printf("%s network, %s, %s: %s\n", arguments.network.c_str(), arguments.variant.c_str(),
              arguments.optimizer.c_str(),
              arguments.plan ? "three steps planned, nothing was computed" : "three steps trained");
  std::printf("parameters  %lld in %lld tensors, of which %lld got a gradient\n",
              static_cast<long long>(outcome.parameters), static_cast<long long>(outcome.gradients_expected),
              static_cast<long long>(outcome.gradients_received));
  std::printf("saved       %lld bytes for backward\n", static_cast<long long>(outcome.saved_bytes));
  std::printf("peak        %s in phase %s, without the scratch of kernels\n\n",
              size_text(peak.peak.bytes).c_str(), peak.name.c_str());
  std::printf("%s", dtk::memory_table(report).c_str());
  if (arguments.explain) std::printf("\n%s", dtk::planner::text_of(explained(arguments)).c_str());
}

dtk::ExitCode run(int argc, const char* const* argv) {
  const cxxopts::ParseResult given = parsed(make_options(), argc, argv);
  if (given.count("help") != 0) {
    std::printf("%s", make_options().help().c_str());
    return dtk::ExitCode::done;
  }
  const Arguments arguments = read(given);
  const auto act = [&] {
    const Outcome outcome = arguments.plan ? plan(arguments.job) : measure(arguments.job);
    dtk::MemoryReport report;
    report.phases = outcome.phases;
    (arguments.json ? print_json : print_text)(arguments, outcome, report);
  };
  arguments.plan ? of_planned(act) : act();
  return dtk::ExitCode::done;
}

}  // namespace

int main(int argc, char** argv) {
  return dtk::run_program("forum_cnn", "give smaller sizes, or --measure plan",
                          [&] { return run(argc, argv); });
}
