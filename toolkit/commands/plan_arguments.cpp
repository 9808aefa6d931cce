#include <dtk/policies/policy_kind.h>

#include <algorithm>
#include <charconv>

#include "toolkit/commands/arguments.h"
#include "toolkit/commands/given.h"
#include "toolkit/core/format.h"
#include "toolkit/core/numbers.h"
#include "toolkit/core/text.h"
#include "toolkit/device/cards.h"
#include "toolkit/distributed/launch.h"

namespace dtk {
namespace {

void check_one_question(const Given& given) {
  std::vector<std::string> seen;
  for (const char* name : {"table", "explain", "claims", "max-batch", "max-frames", "worlds"}) {
    if (given.has(name)) seen.push_back(std::string("--") + name);
  }
  if (seen.size() > 1) fail_argument(listed(seen, " and "), "each is a report of its own; give one of them");
  if (!given.has("calibrate")) return;
  for (const char* name :
       {"table", "explain", "claims", "max-batch", "json", "no-fold", "calibration", "no-term"}) {
    if (given.has(name))
      fail_argument(std::string("--calibrate and --") + name, "measuring is no report; give one of them");
  }
}

// One number of a list. `kind`: "frames; allowed: ..."
int64_t count_in(const Given& given, const char* argument, const std::string& text, int64_t most,
                 const std::string& kind) {
  int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error == std::errc() && end == text.data() + text.size() && count >= 1 && count <= most) return count;
  fail_argument(given.place(argument), fmt::format("\"{}\" is no number of {}", text, kind));
}

std::vector<int64_t> counts_of(const Given& given) {
  std::vector<int64_t> counts;
  std::string list = given.text("frames");
  while (!list.empty()) {
    const size_t end = std::min(list.find(','), list.size());
    counts.push_back(count_in(given, "frames", list.substr(0, end), 1 << 24,
                              "frames; allowed: numbers in [1, 16777216], separated by commas"));
    list.erase(0, end + 1);
  }
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  return counts;
}

// As it was written; "": not given.
std::string size_or_card(const Given& given, const char* name) {
  std::string text = given.text(name);
  if (given.has(name) && !is_byte_size(text) && find_card(text) == nullptr) {
    std::vector<std::string> names;
    for (const Card& card : cards()) names.push_back(card.name);
    fail_argument(given.place(name), fmt::format("\"{}\" is not a size; allowed: {}; or a card: {}", text,
                                                 wanted(ByteSize{}, ""), listed(names, " or ")));
  }
  return text;
}

// --infer with one of --frames and --max-frames, and what has no use beside it.
void parse_inference(const Given& given, PlanArguments& arguments) {
  arguments.infer = given.has("infer");
  for (const char* name : {"frames", "max-frames"}) {
    if (given.has(name) && !arguments.infer)
      fail_argument(given.place(name), "is of a job that only infers; add --infer, or leave it out");
  }
  if (!arguments.infer) return;
  for (const char* name : {"max-batch", "report", "calibrate", "calibration"}) {
    if (given.has(name))
      fail_argument(std::string("--infer and --") + name,
                    "nothing is trained in such a job; give one of them");
  }
  if (given.has("frames") && given.has("max-frames"))
    fail_argument("--frames and --max-frames", "each says how many; give one of them");
  if (given.has("frames") == given.has("max-frames"))
    fail_argument("--infer", "of how many frames? Give --frames N, --frames N,M,... or --max-frames SIZE");
  arguments.frames = counts_of(given);
  if (given.has("frames") && arguments.frames.empty())
    fail_argument("--frames", "names no number; write for example --frames 1,10,100");
  arguments.max_frames = size_or_card(given, "max-frames");
  if (arguments.frames.size() > 1 && (given.has("table") || given.has("explain") || given.has("claims")))
    fail_argument(given.place("frames"), "--table, --explain and --claims are of one number; name one");
  if (given.has("claims") && given.has("json"))
    fail_argument("--infer --claims --json", "is a text alone; leave --json out");
}

int64_t ranks_in(const Given& given, const char* argument, const std::string& text) {
  return count_in(given, argument, text, kMaxRanks, fmt::format("ranks; allowed: [1, {}]", kMaxRanks));
}

// --world N
int64_t world_of(const Given& given) {
  for (const char* argument : {"world", "worlds"}) {
    for (const char* name : {"infer", "calibrate"}) {
      if (given.has(argument) && given.has(name))
        fail_argument(fmt::format("--{} and --{}", argument, name),
                      fmt::format("only what trains has ranks; leave --{} out", argument));
    }
  }
  if (given.has("world") && given.has("worlds"))
    fail_argument("--world and --worlds", "each says how many ranks; give one of them");
  return given.has("world") ? ranks_in(given, "world", given.text("world")) : 1;
}

// --worlds N,M
std::vector<int64_t> worlds_of(const Given& given) {
  std::vector<int64_t> worlds;
  if (!given.has("worlds")) return worlds;
  const std::string list = given.text("worlds") + ",";
  for (size_t begin = 0, end = 0; (end = list.find(',', begin)) != list.npos; begin = end + 1)
    worlds.push_back(ranks_in(given, "worlds", list.substr(begin, end - begin)));
  return worlds;
}

// --no-term NAME: each leaves one out.
planner::DeviceTermOptions terms_of(const Given& given, PlannedDevice device) {
  using Terms = planner::DeviceTermOptions;
  static const std::vector<std::pair<std::string, bool Terms::*>> switches = {
      {"rounding", &Terms::rounding},
      {"attention_scratch", &Terms::attention_scratch},
      {"reduction_scratch", &Terms::reduction_scratch},
      {"workspaces", &Terms::workspaces},
      {"convolution_workspaces", &Terms::convolution_workspaces},
      {"kernel_scratch", &Terms::kernel_scratch},
      {"context", &Terms::context},
      {"pinned", &Terms::pinned}};
  Terms terms;
  for (const std::string& name : given.all("no-term")) {
    std::vector<std::string> known;
    for (const auto& [term, member] : switches) {
      known.push_back(term);
      if (name == term) terms.*member = false;
    }
    if (std::find(known.begin(), known.end(), name) == known.end())
      fail_argument("--no-term " + name, "no term that a device adds; allowed: " + listed(known, " and "));
  }
  if (device == PlannedDevice::cpu && given.has("no-term"))
    fail_argument(given.place("no-term"), "nothing is added on the CPU; use it with --device cuda");
  return terms;
}

// What a device adds does not depend on a job; which kernels the CPU calls does.
std::string config_of(const Given& given, PlannedDevice device) {
  if (!given.has("calibrate")) return required_config(given, "dit-plan");
  if (device == PlannedDevice::cpu) {
    if (given.has("config")) return given.text("config");
    fail_argument("--calibrate with --device cpu: --config FILE is missing",
                  "measured are the kernels that a job calls; write for example dit-plan --config "
                  "base --device cpu --calibrate " +
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
  const Given given("dit-plan",
                    {{"config", Option::value},
                     {"set", Option::repeated},
                     {"device", Option::value},
                     {"table", Option::flag},
                     {"explain", Option::flag},
                     {"claims", Option::flag},
                     {"report", Option::value},
                     {"infer", Option::flag},
                     {"frames", Option::value},
                     {"max-frames", Option::value},
                     {"max-batch", Option::value},
                     {"world", Option::value},
                     {"worlds", Option::value},
                     {"json", Option::flag},
                     {"no-fold", Option::flag},
                     {"calibrate", Option::value},
                     {"calibration", Option::value},
                     {"no-term", Option::repeated}},
                    argc, argv);
  PlanArguments arguments;
  if (wants_text_only(given, arguments)) return arguments;
  check_one_question(given);
  const auto device = policies::parse_enum<PlannedDevice>(given.text("device", "cuda"));
  if (!device)
    fail_argument(given.place("device"), "no device to plan for; allowed: cuda, the default, or cpu");
  arguments.device = *device;
  arguments.config = config_of(given, arguments.device);
  arguments.set = given.all("set");
  arguments.max_batch = size_or_card(given, "max-batch");
  arguments.calibrate = given.text("calibrate");
  arguments.calibration = given.text("calibration");
  if (measures_here(arguments) && arguments.device != PlannedDevice::cpu)
    fail_argument(
        "--calibration here",
        "measures the scratch of the CPU's kernels; use it with --device cpu, or give the file that "
        "dit-plan --calibrate FILE wrote on the GPU");
  arguments.terms = terms_of(given, arguments.device);
  arguments.table = given.has("table");
  arguments.explain = given.has("explain");
  arguments.claims = given.has("claims");
  arguments.report = given.text("report");
  if (given.has("report") && !arguments.claims)
    fail_argument("--report", "is laid beside what others claim; add --claims, or leave it out");
  parse_inference(given, arguments);
  arguments.world = world_of(given);
  arguments.worlds = worlds_of(given);
  arguments.json = given.has("json");
  arguments.fold = !given.has("no-fold");
  return arguments;
}

std::string plan_help() {
  const std::size_t policies = policies::policy_kinds(/*ranks=*/1).size();
  return fmt::format(
      R"(dit-plan: the memory that a configured training job takes, before it is run.

Usage: dit-plan --config FILE [options]

  --config FILE|NAME    configuration of the run; no weights are read
  --set KEY=VALUE       replaces one value of the configuration; may be repeated
  --device cuda|cpu     device to plan for; default cuda, present or not
Instead of the plain report, one of:
  --table               all {0} combinations of the {1} policies, by peak
  --explain             what each policy and each module changes, and why
  --claims [--report R] what others claim, beside plans and the times of run R
  --max-batch SIZE      the largest data.batch that fits: 24GB, 80%, h100
  --infer --frames N,M  passes that train nothing; or --max-frames SIZE
With any of them:
  --world N             of one of N ranks that train it together; --worlds N,M
  --json                as memory.json; with --table an array of {0}
  --no-term NAME        leaves out one of what a device adds; may be repeated
  --calibration FILE    what only a measurement tells; "here": measured now
  --no-fold             plans every pass of a loop, also those that repeat
  --calibrate FILE      only measures, for it: the CPU's kernels, or the GPU
  --version, -h, --help prints the version, or this text, and ends
Exit codes: 0 done, 1 failure, 2 configuration or usage, 3 does not fit into
memory.budget or what is asked for, 4 data.samples are too few to train on.
Example: dit-plan --config base --device cuda
)",
      1 << policies, policies);
}

}  // namespace dtk
