#include "toolkit/commands/plan_arguments.h"

#include <algorithm>

#include "toolkit/commands/given.h"
#include "toolkit/core/numbers.h"

namespace dtk {
namespace {

const std::vector<Option>& plan_options() {
  static const std::vector<Option> options = {
      {"config", Option::value},     {"set", Option::repeated},    {"device", Option::value},
      {"table", Option::flag},       {"explain", Option::flag},    {"max-batch", Option::value},
      {"json", Option::flag},        {"no-fold", Option::flag},    {"help", Option::flag},
      {"version", Option::flag},     {"calibrate", Option::value}, {"calibration", Option::value},
      {"no-term", Option::repeated},
  };
  return options;
}

void check_one_question(const Given& given) {
  std::vector<std::string> seen;
  for (const char* name : {"table", "explain", "max-batch"}) {
    if (given.has(name)) seen.push_back(std::string("--") + name);
  }
  if (seen.size() > 1) fail_argument(listed(seen, " and "), "each is a report of its own; give one of them");
  if (!given.has("calibrate")) return;
  for (const char* name : {"table", "explain", "max-batch", "json", "no-fold", "calibration", "no-term"}) {
    if (given.has(name))
      fail_argument(std::string("--calibrate and --") + name, "measuring is no report; give one of them");
  }
}

std::vector<std::string> terms_left_out(const Given& given) {
  const std::vector<std::string> known = {
      "rounding",       "attention_scratch", "workspaces", "convolution_workspaces",
      "kernel_scratch", "context",           "pinned"};
  const std::vector<std::string> names = given.all("no-term");
  for (const std::string& name : names) {
    if (std::find(known.begin(), known.end(), name) == known.end())
      fail_argument("--no-term " + name, "no term that a device adds; allowed: " + listed(known, " and "));
  }
  return names;
}

// What a device adds does not depend on a job; which kernels the CPU calls does.
std::string config_of(const Given& given, PlannedDevice device) {
  if (!given.has("calibrate")) return required_config(given, "dit-plan");
  if (device == PlannedDevice::cpu) {
    if (given.has("config")) return given.text("config");
    fail_argument("--calibrate with --device cpu: --config FILE is missing",
                  "measured are the kernels that a job calls; write for example dit-plan --config "
                  "configs/base.toml --device cpu --calibrate " +
                      given.text("calibrate"));
  }
  for (const char* name : {"config", "set"}) {
    if (given.has(name)) {
      fail_argument(std::string("--calibrate and --") + name,
                    "what a GPU adds does not depend on a job; leave --" + std::string(name) +
                        " out, or measure the kernels of the job with --device cpu");
    }
  }
  return "";
}

}  // namespace

PlanArguments parse_plan_arguments(int argc, const char* const* argv) {
  const Given given("dit-plan", plan_options(), argc, argv);
  PlanArguments arguments;
  if (wants_text_only(given, arguments)) return arguments;
  check_one_question(given);
  const auto device = policies::parse_enum<PlannedDevice>(given.text("device", "cuda"));
  if (!device)
    fail_argument(given.place("device"), "no device to plan for; allowed: cuda, the default, or cpu");
  arguments.device = *device;
  arguments.config = config_of(given, arguments.device);
  arguments.set = given.all("set");
  arguments.max_batch = given.text("max-batch");
  if (given.has("max-batch") && !is_byte_size(arguments.max_batch)) {
    fail_argument(given.place("max-batch"),
                  "\"" + arguments.max_batch + "\" is not a size; allowed: " + wanted(ByteSize{}, ""));
  }
  arguments.calibrate = given.text("calibrate");
  arguments.calibration = given.text("calibration");
  if (measures_here(arguments) && arguments.device != PlannedDevice::cpu)
    fail_argument(
        "--calibration here",
        "measures the scratch of the CPU's kernels; use it with --device cpu, or give the file that "
        "dit-plan --calibrate FILE wrote on the GPU");
  arguments.without = terms_left_out(given);
  if (arguments.device == PlannedDevice::cpu && !arguments.without.empty())
    fail_argument("--no-term " + arguments.without.front(),
                  "nothing is added on the CPU; use it with --device cuda");
  arguments.table = given.has("table");
  arguments.explain = given.has("explain");
  arguments.json = given.has("json");
  arguments.fold = !given.has("no-fold");
  return arguments;
}

std::string plan_help() {
  return R"(dit-plan: the memory that a configured training job takes, before it is run.

Usage: dit-plan --config FILE [options]

  --config FILE         configuration of the run; no weights or data are read
  --set KEY=VALUE       replaces one value of the configuration; may be repeated
  --device cuda|cpu     device to plan for; default cuda, present or not
Instead of the plain report, one of:
  --table               all 16 combinations of the four policies, by peak
  --explain             what each policy and each module changes, and why
  --max-batch SIZE      the largest data.batch that fits; 24GB, 24GiB, 24e9, or
                        80% of the device present
With any of them:
  --json                as memory.json; with --table an array of 16
  --no-term NAME        leaves out one of what a device adds; may be repeated
  --calibration FILE    what only a measurement tells; "here": measured now
  --no-fold             plans every pass of a loop, also those that repeat
  --calibrate FILE      only measures, for it: the CPU's kernels, or the GPU
  --version, -h, --help prints the version, or this text, and ends

Exit codes: 0 done, 1 failure, 2 configuration or usage, 3 does not fit into
memory.budget or --max-batch, 4 data.samples are too few to train on.

Example: dit-plan --config configs/base.toml --device cuda
)";
}

}  // namespace dtk
