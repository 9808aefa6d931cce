// What dit-plan --claims says: peaks that plans give, and where a claimed saving is met.
#include "toolkit/plan/claims.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "support/catch.h"
#include "support/device/devices.h"
#include "support/error_text.h"
#include "support/files/memory_file_system.h"
#include "support/llava/small_llava.h"
#include "support/one_line.h"
#include "support/runs/tiny_run.h"
#include "toolkit/families/dit/options.h"
#include "toolkit/families/llava/options.h"
#include "toolkit/io/json.h"

using namespace dtk;
using dtk::test::kCuda;

namespace {

LoadedConfig small_dit() {
  LoadedConfig loaded;
  loaded.config = test::tiny_config();
  loaded.config.train.accumulate = 1;
  loaded.config.data.batch = 64;
  dit::options_of(loaded.config).model.depth = 6;
  dit::options_of(loaded.config).model.hidden = 64;
  loaded.config.log.report = loaded.config.log.tensorboard = false;
  return loaded;
}

}  // namespace

TEST_CASE("claims: beside each are the peaks of both plans, and the size at which it holds is planned") {
  const LoadedConfig loaded = small_dit();
  const std::vector<CheckedClaim> checked = check_claims(loaded, kCuda);
  REQUIRE(checked.size() == 3);
  for (const CheckedClaim& one : checked) {
    CAPTURE(one.claim.words, one.never);
    CHECK(one.problem.empty());
    const auto peak = [&](bool on) {
      LoadedConfig job = loaded;
      job.config.policies.checkpoint.enabled = on ? policies::Enabled::on : policies::Enabled::off;
      return make_plan(job, kCuda).memory.peak().peak.bytes;
    };
    CHECK(one.now.without.peak.bytes == peak(false));
    CHECK(one.now.with.peak.bytes == peak(true));
    CHECK(one.now.without.peak.bytes > one.now.with.peak.bytes);
    CHECK(one.more_flops > 0.2);
    CHECK(one.more_flops < 0.4);
    REQUIRE(one.met_at);
    // As near as one sample more or less comes.
    CHECK(std::abs(one.met_at->lowered_by() - *one.claim.lowers_peak_by) < 0.02);
  }
  const std::string text = test::one_line(claims_text("tiny.toml", checked));
  CHECK_THAT(text, Catch::Contains("\"62 to 32 GB, 20 % slower\" source mar"));
  const auto json = claims_json(checked);
  CHECK(json.at(0).at("planned").at("peak_bytes_with") == checked[0].now.with.peak.bytes);
  CHECK(json.at(0).at("met_at").at("tokens") == checked[0].met_at->tokens);
}

TEST_CASE("claims: where one holds is found from a small batch as from a large one") {
  LoadedConfig one = small_dit(), many = small_dit();
  one.config.data.batch = 1;
  many.config.data.batch = 512;
  const std::vector<CheckedClaim> from_one = check_claims(one, kCuda), from_many = check_claims(many, kCuda);
  for (size_t i = 0; i < from_one.size(); ++i) {
    REQUIRE(from_one[i].met_at);
    REQUIRE(from_many[i].met_at);
    const double few = static_cast<double>(from_one[i].met_at->tokens),
                 more = static_cast<double>(from_many[i].met_at->tokens);
    CHECK(few == Approx(more).epsilon(0.2));
  }
}

TEST_CASE("claims: of what is said to fit a device both ways are planned, with the samples that are named") {
  const LoadedConfig loaded = test::small_llava({"train.accumulate=2", "data.batch=2"});
  const std::map<std::string, TimedPairs> times{{"checkpoint", {5, 0.31, 0.28, 0.33, "runs/a, on cpu"}}};
  const std::vector<CheckedClaim> checked = check_claims(loaded, kCuda, {}, times);
  REQUIRE(checked.size() == 3);  // those of published sizes bear on these alone
  CHECK_FALSE(checked[0].sized);
  for (const size_t i : {1U, 2U}) {
    const CheckedClaim& one = checked[i];
    CHECK(one.claim.samples == (i == 1 ? 16 : 32));
    REQUIRE(one.sized);
    const auto peak = [&](bool on) {
      LoadedConfig job = loaded;
      job.config.data.batch = 2 * one.claim.samples;
      job.config.policies.checkpoint.enabled = on ? policies::Enabled::on : policies::Enabled::off;
      return make_plan(job, kCuda).memory.peak().peak.bytes;
    };
    CHECK(one.sized->without.peak.bytes == peak(false));
    CHECK(one.sized->with.peak.bytes == peak(true));
    CHECK(peak(false) > peak(true));
  }
  const std::string text = test::one_line(claims_text("small.toml", checked));
  CHECK_THAT(text,
             Catch::Contains(
                 "measured a pass takes 31.0 % longer with it (28.0 to 33.0 %, 5 pairs), in runs/a, on cpu"));
  CHECK_THAT(text, Catch::Contains(
                       "then on one device, with micro-batches of 16 in 80,000,000,000 bytes: without, ") &&
                       Catch::Contains("which fits; with, "));
  CHECK_THAT(text, !Catch::Contains("time was not measured"));
  const auto json = claims_json(checked);
  CHECK(json.at(1).at("claimed").at("device_bytes") == 80'000'000'000);
  CHECK(json.at(1).at("sized").at("peak_bytes_with") == checked[1].sized->with.peak.bytes);
  CHECK(json.at(0).at("time").at("pairs") == 5);
  CHECK(json.at(0).at("sized").is_null());
  // Of a published size with adapters: its own claim, too.
  for (const auto& [preset, claims] :
       {std::pair(models::LlavaPreset::of_7b, 4), {models::LlavaPreset::of_13b, 4}}) {
    LoadedConfig published = loaded;
    llava::options_of(published.config).model.preset = preset;
    CHECK(family_of(published.config).claims(published.config).size() == static_cast<size_t>(claims));
  }
}

TEST_CASE("claims: times are those of a finished run's memory.json") {
  test::MemoryFileSystem files;
  MemoryReport report;
  const auto write = [&](const std::string& text) { write_file_atomically(files, "run/memory.json", text); };
  const auto refused = [&] { return test::error_text<ConfigError>([&] { measured_times(files, "run"); }); };
  CHECK(refused() ==
        "--report run: there is no memory.json in it; name the folder of a finished run of dit-train");
  files.create_directories("run");
  write(json_text(memory_json(report)));
  CHECK_THAT(
      refused(),
      Catch::Contains(
          "its memory.json says of no policy what time it takes, as that of a run of ten seconds does"));
  report.policies = {
      {.report = {"attention", true, ""}, .bytes = 1, .note = ""},
      {.report = {"checkpoint", true, ""}, .bytes = 1, .note = "", .time = {{5, 0.3, 0.25, 0.5}}}};
  write(json_text(memory_json(report)));
  const auto times = measured_times(files, "run");
  REQUIRE(times.size() == 1);
  CHECK(times.at("checkpoint").pairs == 5);
  CHECK(times.at("checkpoint").slower_by == 0.3);
  CHECK(times.at("checkpoint").highest == 0.5);
  CHECK(times.at("checkpoint").place == "run, on cpu");
  write(R"({"policies": [{"name": 3, "time": {}}]})");
  CHECK_THAT(test::error_text<FileError>([&] { measured_times(files, "run"); }),
             Catch::StartsWith("run/memory.json is none that dit-train wrote: "));
}

TEST_CASE("claims: a policy that recomputes nothing costs no FLOPs, whatever another does") {
  LoadedConfig loaded;
  loaded.config.train.model = "diffusion_planner";
  loaded.config.train.steps = 2;
  loaded.config.train.threads = 1;
  loaded.config.data.kind = "frames";
  loaded.config.data.batch = 2;
  const std::vector<CheckedClaim> checked = check_claims(loaded, kCuda);
  CHECK(checked.size() == 4);
  for (const CheckedClaim& one : checked) {
    CAPTURE(one.claim.policy, one.problem);
    CHECK(one.problem.empty());
    CHECK((one.more_flops > 0) == (one.claim.policy == "checkpoint"));
  }
}

TEST_CASE("claims: one that no size meets says how near it comes") {
  LoadedConfig loaded = small_dit();
  // One block: what is recomputed is there again while it is.
  dit::options_of(loaded.config).model.depth = 1;
  const std::vector<CheckedClaim> checked = check_claims(loaded, kCuda);
  for (const CheckedClaim& one : checked) {
    CHECK_FALSE(one.met_at);
    CHECK_THAT(one.never, Catch::StartsWith(
                              "at no number of tokens up to 10,000,000, with which the peak is lower by "));
    CHECK_THAT(test::one_line(claims_text("", checked)), Catch::Contains(one.never));
  }
}
