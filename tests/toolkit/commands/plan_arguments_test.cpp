#include <sstream>

#include "support/catch.h"
#include "support/error_text.h"
#include "toolkit/commands/arguments.h"
#include "toolkit/core/errors.h"

using namespace dtk;
using Words = std::vector<const char*>;

namespace {

PlanArguments plan(Words words) {
  words.insert(words.begin(), "dit-plan");
  return parse_plan_arguments(static_cast<int>(words.size()), words.data());
}

std::string plan_error(const Words& words) {
  return test::error_text<ConfigError>([&] { plan(words); });
}

}  // namespace

TEST_CASE("dit-plan: a configuration is enough") {
  const PlanArguments arguments = plan({"--config", "a.toml"});
  CHECK(arguments.config == "a.toml");
  CHECK(arguments.device == dtk::PlannedDevice::cuda);
  CHECK(arguments.fold);
  CHECK_FALSE((arguments.table || arguments.explain || arguments.json || arguments.help));
  CHECK(arguments.max_batch.empty());
}

TEST_CASE("dit-plan: every option") {
  const PlanArguments arguments = plan({"--config", "a.toml", "--set", "data.batch=2", "--set", "x=1",
                                        "--device", "cpu", "--max-batch", "24GB", "--json", "--no-fold"});
  CHECK(arguments.set == std::vector<std::string>{"data.batch=2", "x=1"});
  CHECK(arguments.device == dtk::PlannedDevice::cpu);
  CHECK(arguments.max_batch == "24GB");
  CHECK(arguments.json);
  CHECK_FALSE(arguments.fold);
  CHECK(plan({"--config", "a.toml", "--table"}).table);
  CHECK(plan({"--config", "a.toml", "--explain"}).explain);
  CHECK(plan({"--config", "a.toml", "--claims"}).claims);
  CHECK(plan({"--config", "a.toml", "--claims", "--report", "runs/a"}).report == "runs/a");
  CHECK(plan({"--config", "a.toml", "--calibration", "b.json"}).calibration == "b.json");
  CHECK(measures_here(plan({"--config", "a.toml", "--device", "cpu", "--calibration", "here"})));
  CHECK(plan({"--config", "a.toml", "--device", "cpu", "--calibrate", "b.json"}).calibrate == "b.json");
  CHECK(plan({"--calibrate", "b.json"}).config.empty());
  const auto terms = plan({"--config", "a.toml", "--no-term", "context", "--no-term", "pinned"}).terms;
  CHECK((!terms.context && !terms.pinned && terms.rounding && terms.workspaces));
  CHECK(plan({"--help"}).help);
  CHECK(plan({"--version"}).version);
}

TEST_CASE("dit-plan: what is wrong is said with what is allowed") {
  CHECK(plan_error({}) == "--config FILE is missing: write for example dit-plan --config base");
  CHECK(plan_error({"--config", "a", "--device", "auto"}) ==
        "--device auto: no device to plan for; allowed: cuda, the default, or cpu");
  CHECK(plan_error({"--config", "a", "--table", "--max-batch", "1GB"}) ==
        "--table and --max-batch: each is a report of its own; give one of them");
  CHECK(plan_error({"--calibrate", "b.json", "--device", "cpu"}) ==
        "--calibrate with --device cpu: --config FILE is missing: measured are the kernels that a job calls; "
        "write for example dit-plan --config base --device cpu --calibrate b.json");
  CHECK(plan_error({"--calibrate", "b.json", "--config", "a"}) ==
        "--calibrate and --config: what a GPU adds does not depend on a job; leave --config out, or measure "
        "the kernels of the job with --device cpu");
  CHECK(plan_error({"--calibrate", "b.json", "--set", "data.batch=2"}) ==
        "--calibrate and --set: what a GPU adds does not depend on a job; leave --set out, or measure the "
        "kernels of the job with --device cpu");
  CHECK(plan_error({"--calibrate", "b.json", "--device", "auto"}) ==
        "--device auto: no device to plan for; allowed: cuda, the default, or cpu");
  CHECK(plan_error({"--config", "a", "--calibrate"}) == "--calibrate: needs a value");
  CHECK(plan_error({"--config", "a", "--calibrate", "b.json", "--json"}) ==
        "--calibrate and --json: measuring is no report; give one of them");
  CHECK(plan_error({"--config", "a", "--calibrate", "b.json", "--calibration", "c.json"}) ==
        "--calibrate and --calibration: measuring is no report; give one of them");
  CHECK(
      plan_error({"--config", "a", "--calibration", "here"}) ==
      "--calibration here: measures the scratch of the CPU's kernels; use it with --device cpu, or give the "
      "file that dit-plan --calibrate FILE wrote on the GPU");
  CHECK(plan_error({"--config", "a", "--no-term", "luck"}) ==
        "--no-term luck: no term that a device adds; allowed: rounding, attention_scratch, "
        "reduction_scratch, workspaces, "
        "convolution_workspaces, kernel_scratch, context and pinned");
  CHECK(plan_error({"--config", "a", "--device", "cpu", "--no-term", "context"}) ==
        "--no-term context: nothing is added on the CPU; use it with --device cuda");
  CHECK(plan_error({"--config", "a", "--report", "runs/a"}) ==
        "--report: is laid beside what others claim; add --claims, or leave it out");
  CHECK(plan_error({"--config", "a", "--claims", "--report", ""}) == "--report: needs a value");
  CHECK(plan_error({"--config", "a", "--claims", "--table"}) ==
        "--table and --claims: each is a report of its own; give one of them");
  CHECK(plan_error({"--config", "a", "--tabel"}) == "--tabel: unknown option; did you mean --table?");
  CHECK(plan_error({"--config", "a", "--json=yes"}) == "--json=yes: takes no value");
  for (const char* size :
       {"24", "24GB", "24GiB", "24 GiB", "24e9", "24gb", "1.5e3kB", "80%", "0.5%", "h100", "RTX 4090"}) {
    INFO(size);
    CHECK(plan({"--config", "a", "--max-batch", size}).max_batch == size);
  }
  for (const std::string size : {"much", "24gigs", "rtx", "0", "0%", "101%", "80 %", "80%%", "%"}) {
    INFO(size);
    CHECK(plan_error({"--config", "a", "--max-batch", size.c_str()}) ==
          "--max-batch " + size + ": \"" + size +
              "\" is not a size; allowed: a number of bytes, such as \"24GB\", \"24GiB\" or \"24e9\", or "
              "\"80%\" of "
              "the device present; or a card: t4, v100, a10, l40s, a100-40, a100, h100, h200, rtx3090, "
              "rtx4090, "
              "rtx5090 or rtx6000ada");
  }
}

TEST_CASE("dit-plan: the help fits a screen and names every option") {
  std::istringstream lines(plan_help());
  std::string line, last;
  int count = 0;
  for (; std::getline(lines, line); ++count) {
    CHECK(line.size() <= 80);
    last = line;
  }
  CHECK(count <= 24);
  CHECK(last == "Example: dit-plan --config base --device cuda");
  for (const char* option :
       {"--config", "--set", "--device", "--table", "--explain", "--max-batch", "--json", "--no-fold",
        "--claims", "--report", "--calibrate", "--calibration", "--no-term", "--help", "--version"})
    CHECK(plan_help().find(option) != std::string::npos);
}
