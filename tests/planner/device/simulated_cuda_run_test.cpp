// The whole of run_training() on the simulated device: every CUDA path of trainer, loader, policies,
// checkpoints and sampling runs, and nothing it does is out of order; what it saves is resumed, sampled from
// and begun with. Bytes, order, lifetimes, files and how many numbers are drawn are proved. Values are not:
// there are none, so a checkpoint's tensors hold whatever lay in memory.
#include <ATen/ATen.h>
#include <dtk/planner/plan_error.h>
#include <dtk/planner/simulate.h>
#include <dtk/policies/internal/counted_blocks.h>
#include <dtk/policies/memory_ledger.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <thread>

#include "core/stream_order.h"
#include "support/catch.h"
#include "support/device/devices.h"
#include "support/files/finite_checkpoint.h"
#include "support/files/safetensors_file.h"
#include "support/runs/image_run.h"
#include "support/runs/run_world.h"
#include "toolkit/checkpoint/store.h"
#include "toolkit/commands/sample.h"
#include "toolkit/core/errors.h"
#include "toolkit/families/dit/drawing.h"
#include "toolkit/families/dit/options.h"
#include "toolkit/run/escalation.h"
#include "toolkit/run/run.h"

using namespace dtk;
using policies::Category;
using policies::MemorySums;
using policies::PhasePeak;

namespace {

using dtk::test::kCuda;

// Every policy that can be on is on, as on a GPU by default; validation, samples and checkpoints on the way.
LoadedConfig whole_run() {
  LoadedConfig loaded = test::tiny("out");
  RunConfig& config = loaded.config;
  config.train.steps = 6;
  config.train.log_every = 1;
  config.train.checkpoint_every = 2;
  config.train.sample_every = 3;
  config.train.validate_every = 2;
  config.data.validation = 9;
  dit::options_of(config).model.hidden = 32;
  return loaded;
}

struct Seen final : RunObserver {
  void message(const std::string& text) override { messages.push_back(text); }
  void progress(const Progress&) override {}
  void working(const std::string&, int64_t, int64_t) override {}
  void finished(const RunResult& finished) override {
    result = finished;
    books = policies::device_accounts().phases();
    live = policies::device_accounts().live();
    ended = true;
  }
  std::vector<std::string> messages;
  RunResult result;
  std::vector<PhasePeak> books;  // when the run had left all that it leaves
  MemorySums live;
  bool ended = false;
};

struct PlansClock final : Clock {
  double seconds() override { return now += 0.001; }
  bool waits_for_threads() const override { return true; }
  double now = 0;
};

struct Simulation {
  test::MemoryFileSystem files;
  PlansClock clock;
  Seen seen;
  RunResult result;
  planner::SimulationResult plan;

  // What comes behind the end of training, steps without each policy, is left out.
  explicit Simulation(const LoadedConfig& loaded) : Simulation(loaded, [this] { return seen.ended; }) {}

  Simulation(const LoadedConfig& loaded, const std::function<bool()>& stop_requested) {
    run(loaded, "", stop_requested);
  }

  // With the files that `before` left; `resume`: as dit-train's.
  Simulation(const LoadedConfig& loaded, const Simulation& before, const std::string& resume = "")
      : files(before.files) {
    run(loaded, resume, [this] { return seen.ended; });
  }

 private:
  void run(const LoadedConfig& loaded, const std::string& resume,
           const std::function<bool()>& stop_requested) {
    plan = planner::simulate(kCuda, [&](const planner::EndOfPlan&) {
      const auto from =
          resume.empty() ? std::filesystem::path() : find_checkpoint(files, resume, loaded.config.train.out);
      result = run_training(loaded, kCuda, from, test::images_of(loaded, test::tiny_data()),
                            {files, clock, seen, stop_requested});
    });
  }
};

LoadedConfig of_steps(int64_t steps) {
  LoadedConfig loaded = whole_run();
  loaded.config.train.steps = steps;
  loaded.config.schedule.warmup = 1;
  return loaded;
}

std::map<std::string, int64_t> by_owner(const MemorySums& sums) {
  std::map<std::string, int64_t> owners;
  for (const auto& [category, labels] : sums.items()) {
    for (const auto& [label, bytes] : labels) owners[policies::name_of(category) + (" " + label)] = bytes;
  }
  return owners;
}

// Peaks of the phases of a step after the first.
std::map<std::string, int64_t> step_peaks(const Simulation& run) {
  std::map<std::string, int64_t> peaks;
  for (const PhasePeak& phase : run.seen.books) {
    for (const char* name : {"forward", "backward", "optimizer", "ema", "validate", "save", "sample"})
      if (phase.name == name) peaks[name] = phase.peak.bytes;
  }
  return peaks;
}

bool heard(const Seen& seen, const std::string& text) {
  return std::any_of(seen.messages.begin(), seen.messages.end(),
                     [&](const std::string& one) { return one.find(text) != std::string::npos; });
}

}  // namespace

TEST_CASE("a whole run on cuda:0 ends, with every policy on and a complete folder") {
  const Simulation run(whole_run());
  CHECK(run.seen.result.step == 6);
  CHECK_FALSE(run.seen.result.stopped);
  CHECK(heard(run.seen, "device: cuda:0"));
  CHECK(heard(run.seen, "policy precision: on, bf16 autocast, which cuda:0 supports"));
  CHECK(heard(run.seen, "policy attention: on, "));
  CHECK(heard(run.seen, "policy ema: on, fp32 average of 31 tensors in host memory"));
  CHECK(heard(run.seen, "policy checkpoint: on, recomputes 2 modules in 2 segments"));
  auto files = run.files;
  CHECK(files.list("out/checkpoints") == std::vector<std::string>{"step-00000004", "step-00000006"});
  CHECK(files.list("out/samples") == std::vector<std::string>{"step-00000003.png", "step-00000006.png"});
  CHECK(policies::device_accounts().live_bytes() == 0);  // nothing outlives the run
}

TEST_CASE(
    "a whole run whose blocks are offloaded is in order, and what waits in host memory is counted there") {
  LoadedConfig loaded = whole_run();
  loaded.config.policies.checkpoint.keep = policies::KeepWord::offload;
  loaded.config.policies.checkpoint.offload_min_bytes = {0};
  const Simulation run(loaded);
  CHECK(run.seen.result.step == 6);
  CHECK(heard(run.seen, "policy checkpoint: on, offloads 2 modules in 2 segments"));
  CHECK(run.seen.live.of(Category::saved) == 0);
  for (const PhasePeak& phase : run.plan.host) {
    CAPTURE(phase.name);
    const bool within_step = phase.name == "forward" || phase.name == "first_step";
    if (within_step) CHECK(phase.peak.of(Category::offloaded) > 0);
    if (phase.name == "validate") CHECK(phase.peak.of(Category::offloaded) == 0);
  }
  CHECK(policies::device_accounts().live_bytes() == 0);
}

TEST_CASE("the end of a run on cuda:0 measures what each policy saves, by leaving it out") {
  const Simulation run(whole_run(), [] { return false; });
  std::map<std::string, int64_t> savings;
  for (const PolicySaving& saving : run.result.savings) {
    CAPTURE(saving.report.policy, saving.note);
    if (saving.report.policy == "fusion") {  // on CUDA where it is asked for
      CHECK_FALSE(saving.bytes);
      continue;
    }
    REQUIRE(saving.bytes);
    savings[saving.report.policy] = *saving.bytes;
  }
  CHECK(savings.size() == 4);
  // What the average of the trained weights would take on the device.
  CHECK(savings["ema"] > 0);
  CHECK(savings["ema"] <= run.seen.live.of(Category::parameters));
  CHECK(policies::device_accounts().live_bytes() == 0);
}

TEST_CASE("the run's own report and the books agree on each phase's peak, to the byte") {
  const Simulation run(whole_run());
  REQUIRE(run.seen.result.memory);
  CHECK(run.seen.result.memory->reserved.bytes >= run.seen.result.memory->peak().peak.bytes);
  CHECK(run.seen.result.memory->reserved.segments > 0);
  std::map<std::string, int64_t> books;
  for (const PhasePeak& phase : run.seen.books) books[phase.name] = phase.peak.bytes;
  std::set<std::string> names;
  for (const PhasePeak& phase : run.seen.result.memory->phases) {
    CAPTURE(phase.name);
    CHECK(phase.peak.bytes == books.at(phase.name));
    names.insert(phase.name);
  }
  for (const char* name :
       {"build", "first_step", "forward", "backward", "optimizer", "ema", "validate", "save", "sample"}) {
    CAPTURE(name);
    CHECK(names.count(name) == 1);
  }
}

TEST_CASE("a run on cuda:0 that is resumed goes on as if it had not stopped: bytes and files") {
  const Simulation whole(of_steps(4));
  Simulation before(of_steps(2));
  REQUIRE(before.seen.result.step == 2);
  test::make_finite(before.files, "out/checkpoints/step-00000002");
  const Simulation resumed(of_steps(4), before, "latest");
  CHECK(heard(resumed.seen, "resumed from out/checkpoints/step-00000002 at step 2"));
  CHECK(resumed.seen.result.step == 4);
  CHECK(resumed.seen.result.trained_steps == 2);
  CHECK(by_owner(resumed.seen.live) == by_owner(whole.seen.live));
  CHECK(step_peaks(resumed) == step_peaks(whole));
  CHECK(step_peaks(resumed).size() == 7);
  auto files = resumed.files, files_of_whole = whole.files;
  const std::filesystem::path folder = "out/checkpoints/step-00000004";
  const std::vector<std::string> names = files_of_whole.list(folder);
  std::vector<std::string> names_of_resumed = files.list(folder);
  CHECK(std::erase(names_of_resumed, "history.json") == 1);  // it was told to go on for longer
  CHECK(names_of_resumed == names);
  CHECK(names.size() == 8);
  for (const std::string& name : names) {
    if (!name.ends_with(".safetensors")) continue;  // seconds are written with as many digits as they have
    CAPTURE(name);
    CHECK(files.size(folder / name) == files_of_whole.size(folder / name));
  }
  CHECK(policies::device_accounts().live_bytes() == 0);
}

TEST_CASE("a run on cuda:0 begins with the weights of another, and keeps nothing of what it read") {
  const Simulation plain(of_steps(2));
  LoadedConfig loaded = of_steps(2);
  loaded.config.train.out = "second";
  loaded.config.train.init_from = "out";
  const Simulation begun(loaded, plain);
  CHECK(heard(begun.seen, "begins with the EMA weights of out/checkpoints/step-00000002"));
  CHECK(begun.seen.result.step == 2);
  CHECK(by_owner(begun.seen.live) == by_owner(plain.seen.live));
  CHECK(step_peaks(begun) == step_peaks(plain));
  CHECK(policies::device_accounts().live_bytes() == 0);
}

TEST_CASE("samples are drawn on cuda:0 from a checkpoint that was written there, with its weights alone") {
  const Simulation run(of_steps(2));
  auto files = run.files;
  SampleArguments arguments;
  arguments.checkpoint = "out";
  arguments.own = {{"classes", std::string("0,2")}, {"per-class", 3}};
  arguments.out = "out/drawn.safetensors";
  const planner::SimulationResult plan = planner::simulate(kCuda, [&](const planner::EndOfPlan&) {
    const SampleSource source = open_sample_source(files, arguments);
    const std::unique_ptr<Drawing> drawing = dit::draw_images(files, source, arguments);
    drawing->draw_to(files, kCuda, {});
  });
  const std::vector<NamedTensor> drawn = test::read_safetensors(files, "out/drawn.safetensors").tensors;
  REQUIRE(drawn.size() == 2);
  CHECK(drawn[0].tensor.numel() + drawn[1].tensor.numel() == 6 * 8 * 8 + 6);
  const MemorySums peak = policies::highest(plan.device).peak;
  CHECK(peak.bytes > run.seen.live.of(Category::parameters));
  for (const Category none : {Category::gradients, Category::optimizer, Category::ema, Category::saved})
    CHECK(peak.of(none) == 0);
  CHECK(policies::device_accounts().live_bytes() == 0);
}

TEST_CASE("between steps a device holds weights, moments and a few scalars, and nothing without an owner") {
  const Simulation run(whole_run());
  const auto items = run.seen.live.items();
  CHECK(run.seen.live.of(Category::other) == 0);
  CHECK(run.seen.live.of(Category::saved) == 0);
  CHECK(run.seen.live.of(Category::gradients) == 0);
  CHECK(run.seen.live.of(Category::ema) == 0);  // it is the host's
  const int64_t weights = run.seen.live.of(Category::parameters);
  CHECK(weights > 0);
  CHECK(run.seen.live.of(Category::optimizer) <= 2 * weights + 64);
}

namespace {

// Checkpoints of what nobody computed can be loaded again.
struct FiniteFiles final : test::MemoryFileSystem {
  void rename(const std::filesystem::path& from, const std::filesystem::path& to) override {
    MemoryFileSystem::rename(from, to);
    if (has_checkpoint_name(to) && from.extension() == ".partial") test::make_finite(*this, to);
  }
};

std::vector<RunConfig> all_choices(const RunConfig& config) {
  std::vector<RunConfig> choices = tighter_policies(config, kCuda);
  const std::vector<RunConfig> parts = smaller_parts(choices.back());
  choices.insert(choices.end(), parts.begin(), parts.end());
  return choices;
}

struct EscalatedRun {
  FiniteFiles files;
  PlansClock clock;
  Seen seen;

  // The device has `room` bytes from the step `at_step` on, 0: at once.
  EscalatedRun(const LoadedConfig& loaded, int64_t room, int64_t at_step) {
    const policies::MemoryBudgetGuard restored(policies::device_accounts(),
                                               policies::MemoryAccounts::kNoLimit);
    planner::simulate(kCuda, [&](const planner::EndOfPlan&) {
      int64_t asked = 0;
      const auto stop_requested = [&] {
        if (++asked == at_step) policies::device_accounts().set_limit(room);
        return seen.ended;
      };
      run_training(loaded, kCuda, "", test::images_of(loaded, test::tiny_data()),
                   {files, clock, seen, stop_requested});
    });
  }
};

LoadedConfig escalating() {
  LoadedConfig loaded = whole_run();
  loaded.config.memory.on_out_of_memory = OnOutOfMemory::escalate;
  loaded.config.policies.ema.device = policies::EmaDevice::same;
  loaded.config.policies.checkpoint.enabled = policies::Enabled::off;
  loaded.config.policies.checkpoint.offload_min_bytes = {0};
  loaded.config.train.sample_every = 0;
  loaded.config.train.validate_every = 0;
  loaded.config.data.batch = 32;
  dit::options_of(loaded.config).model.depth = 4;
  dit::options_of(loaded.config).model.patch = 2;
  return loaded;
}

}  // namespace

TEST_CASE("a run on cuda:0 whose allocator refuses goes on with what fits") {
  const LoadedConfig loaded = escalating();
  const std::vector<RunConfig> choices = all_choices(loaded.config);
  REQUIRE(choices.size() == 7);  // the average, the blocks, their inputs, four times half the samples
  std::vector<int64_t> peaks;
  for (const RunConfig& choice : choices) {
    LoadedConfig one = loaded;
    one.config = choice;
    peaks.push_back(policies::highest(Simulation(one).seen.books).peak.bytes);
  }
  const int64_t before = policies::highest(Simulation(loaded).seen.books).peak.bytes;
  for (const size_t chosen : {0, 1, 2, 3}) {
    CAPTURE(chosen);
    REQUIRE(peaks[chosen] < (chosen == 0 ? before : peaks[chosen - 1]));
    EscalatedRun run(loaded, peaks[chosen], 3);
    CHECK(run.seen.result.step == 6);
    CHECK(run.seen.result.trained_steps == 6);
    CHECK(run.seen.result.memory->peak().peak.bytes == peaks[chosen]);
    CHECK(policies::device_accounts().live_bytes() == 0);
    const std::string log = run.files.read("out/log.jsonl");
    size_t events = 0;
    for (size_t at = log.find("\"escalated\""); at != std::string::npos;
         at = log.find("\"escalated\"", at + 1))
      ++events;
    CHECK(events == chosen + 1);  // nobody plans here, so each is tried
    CHECK(heard(run.seen,
                "step 3 was refused memory and is taken back, nothing of it remains: CUDA out of "
                "memory. Tried to allocate "));
  }
}

TEST_CASE("a refused step on cuda:0: wherever in it the device is full, it can be run again") {
  LoadedConfig loaded = escalating();
  loaded.config.data.batch = 8;
  dit::options_of(loaded.config).model.depth = 1;
  loaded.config.train.on_not_finite = GENERATE(NotFinite::stop, NotFinite::skip);
  loaded.config.policies.ema.device = GENERATE(policies::EmaDevice::same, policies::EmaDevice::cpu);
  const policies::MemoryBudgetGuard restored(policies::device_accounts(), policies::MemoryAccounts::kNoLimit);
  int64_t refused = 0;
  planner::simulate(kCuda, [&](const planner::EndOfPlan&) {
    PlansClock clock;
    Trainer trainer(loaded.config, kCuda, test::tiny_data(), clock);
    trainer.step();
    trainer.step();
    const TrainingState before = trainer.state();
    const auto books = by_owner(policies::device_accounts().live());
    // The steps of a few hundred bytes stop at most allocations.
    for (int64_t room = policies::device_accounts().live_bytes() + 1; trainer.steps() == 2; room += 700) {
      policies::device_accounts().set_limit(room);
      try {
        trainer.step();
      } catch (const c10::OutOfMemoryError&) {
        ++refused;
        policies::device_accounts().set_limit(policies::MemoryAccounts::kNoLimit);
        REQUIRE(trainer.take_back_step());
        const TrainingState after = trainer.state();
        REQUIRE(after.step == 2);
        REQUIRE(after.samples == before.samples);
        // Autograd's thread of the device lets go of what the broken pass left in its queue.
        for (int tries = 0; tries < 1000 && by_owner(policies::device_accounts().live()) != books; ++tries)
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        REQUIRE(by_owner(policies::device_accounts().live()) == books);
      }
    }
    policies::device_accounts().set_limit(policies::MemoryAccounts::kNoLimit);
    trainer.step();
    CHECK(trainer.steps() == 4);
  });
  CHECK(refused > 150);
}

namespace {

struct Waits {
  int64_t of_thread = 0, of_all = 0;
  static Waits now() {
    return {planner::StreamOrder::host_waits(), planner::StreamOrder::host_waits_of_all()};
  }
  friend Waits operator-(const Waits& a, const Waits& b) {
    return {a.of_thread - b.of_thread, a.of_all - b.of_all};
  }
};

}  // namespace

TEST_CASE("between its reports a step on cuda:0 never waits for the device, whatever the policies") {
  LoadedConfig loaded = test::tiny("out");
  RunConfig& config = loaded.config;
  config.train.log_every = 100;
  config.train.accumulate = GENERATE(1, 2);
  config.train.on_not_finite = GENERATE(NotFinite::stop, NotFinite::skip);
  config.policies.ema.device = GENERATE(policies::EmaDevice::same, policies::EmaDevice::cpu);
  config.policies.checkpoint.keep =
      GENERATE(policies::KeepWord::block, policies::KeepWord::all, policies::KeepWord::offload);
  config.policies.checkpoint.offload_min_bytes = {1};
  config.policies.fusion.cuda = true;
  Waits of_steps{-1, -1}, of_report, of_hook;
  planner::simulate(kCuda, [&](const planner::EndOfPlan&) {
    PlansClock clock;
    Trainer trainer(config, kCuda, test::tiny_data(), clock);
    trainer.step();  // whose first batch and state are made
    const Waits before = Waits::now();
    for (int i = 0; i < 3; ++i) trainer.step();
    of_steps = Waits::now() - before;
    trainer.read_scalars_sync();
    of_report = Waits::now() - before - of_steps;
    // Backward runs on a thread of the engine.
    trainer.model().parameters()[1].second.register_hook([](const at::Tensor& gradient) {
      planner::StreamOrder::instance().synchronize(0);
      return gradient;
    });
    const Waits without = Waits::now();
    trainer.step();
    of_hook = Waits::now() - without;
  });
  CHECK(of_steps.of_thread == 0);
  // The averages' thread waits for the weights, and the engine's for what it fetches from host memory.
  const bool others_wait = config.policies.ema.device == policies::EmaDevice::cpu ||
                           config.policies.checkpoint.keep == policies::KeepWord::offload;
  if (!others_wait) CHECK(of_steps.of_all == 0);
  CHECK(of_report.of_thread > 0);  // what is read is waited for, and counted
  CHECK(of_hook.of_all > (others_wait ? 0 : of_steps.of_all));
}

TEST_CASE("a run on cuda:0 that is found above memory.budget after a step goes on with what fits") {
  LoadedConfig loaded = escalating();
  const std::vector<RunConfig> choices = all_choices(loaded.config);
  LoadedConfig chosen = loaded;
  chosen.config = choices[1];
  const int64_t room = policies::highest(Simulation(chosen).seen.books).peak.bytes;
  loaded.config.memory.budget = ByteSize{room};
  const EscalatedRun run(loaded, policies::MemoryAccounts::kNoLimit, 0);
  CHECK(run.seen.result.step == 6);
  CHECK(heard(run.seen, "step 1 took more memory than there may be: memory budget of "));
  CHECK(run.seen.result.memory->peak().peak.bytes == room);
}

TEST_CASE("a run on cuda:0 whose last step is found above memory.budget does all that follows it") {
  LoadedConfig loaded = escalating();
  loaded.config.train.steps = 1;
  loaded.config.train.validate_every = 1;
  const std::vector<RunConfig> choices = all_choices(loaded.config);
  LoadedConfig chosen = loaded;
  chosen.config = choices[1];
  loaded.config.memory.budget = ByteSize{policies::highest(Simulation(chosen).seen.books).peak.bytes};
  EscalatedRun run(loaded, policies::MemoryAccounts::kNoLimit, 0);
  CHECK(run.seen.result.step == 1);
  CHECK(run.seen.result.trained_steps == 1);
  CHECK(run.seen.result.validation_loss);
  CHECK_FALSE(run.seen.result.samples.empty());
  const std::string log = run.files.read("out/log.jsonl");
  CHECK(log.find("\"event\":\"validate\",\"step\":1") != std::string::npos);
  CHECK(log.find("\"event\":\"end\",\"step\":1") != std::string::npos);
}

TEST_CASE("memory.budget ends a run on cuda with the phase and both figures") {
  LoadedConfig loaded = whole_run();
  loaded.config.memory.budget = ByteSize{1000};
  try {
    const Simulation run(loaded);
    FAIL("1000 bytes were enough");
  } catch (const Error& error) {
    CHECK(error.code == ExitCode::memory);
    CHECK_THAT(error.what(),
               Catch::StartsWith("memory budget of 1000 bytes exceeded: 987728 bytes alive on "
                                 "cuda:0 in phase first_step; the state alone takes 788.8 KiB "));
  }
  const Simulation fits(whole_run());
  const int64_t peak = policies::highest(fits.seen.books).peak.bytes;
  loaded.config.memory.budget = ByteSize{peak};
  CHECK(Simulation(loaded).seen.result.step == 6);
  loaded.config.memory.budget = ByteSize{peak - 1};
  CHECK_THROWS_AS(Simulation(loaded), Error);
}
