#include "support/plans/plan_accuracy.h"

#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/simulation.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>

#include "toolkit/data/image_source.h"
#include "toolkit/data/synthetic_source.h"
#include "toolkit/families/dit/data.h"
#include "toolkit/families/llava/batch.h"
#include "toolkit/plan/inference.h"
#include "toolkit/plan/null_world.h"
#include "toolkit/plan/planned_run.h"
#include "toolkit/run/run.h"
#include "toolkit/train/model_family.h"

namespace dtk {
namespace {

using policies::Births;
using policies::Category;
using policies::LoggedPhase;

// What `job`, which calls its argument at its end, does to the books of CPU memory, and to those of what it
// keeps apart as a host's: these are phases of their own, where there is any.
std::vector<LoggedPhase> logged(const std::function<void(const std::function<void()>&)>& job) {
  policies::MemoryAccounts &cpu = policies::cpu_accounts(), &host = policies::host_accounts();
  std::vector<LoggedPhase> phases;
  const auto stop = [&] {
    phases = policies::event_log(cpu.stop_event_log(), cpu.phase_names());
    for (LoggedPhase& phase : policies::event_log(host.stop_event_log(), host.phase_names())) {
      if (phase.kept.bytes == 0 && phase.born.empty()) continue;
      phase.name = "host memory in " + phase.name;
      phases.push_back(std::move(phase));
    }
  };
  cpu.start_event_log();
  host.start_event_log();
  try {
    job(stop);
  } catch (...) {
    cpu.stop_event_log();
    host.stop_event_log();
    throw;
  }
  return phases;
}

// Computes, and waits for threads as a plan does.
class WholeJob final : public policies::Simulation {
  std::unique_ptr<policies::LoopFold> fold(std::string_view) override { return nullptr; }
};

// The samples of `planned`, with zeros for values.
class Zeros final : public DataSource {
 public:
  explicit Zeros(std::shared_ptr<const DataSource> planned) : planned_(std::move(planned)) {}
  int64_t size() const override { return planned_->size(); }
  std::string description() const override { return planned_->description(); }
  bool is_weighted() const override { return planned_->is_weighted(); }
  int64_t weight(int64_t index) const override { return planned_->weight(index); }
  std::optional<int64_t> length(int64_t index) const override { return planned_->length(index); }
  Batch allocate(int64_t count, bool pinned) const override {
    return zeros(planned_->allocate(count, pinned));
  }
  Batch allocate_for(const std::vector<int64_t>& samples, bool pinned) const override {
    return zeros(planned_->allocate_for(samples, pinned));
  }
  // A dialogue's rows lie behind those of the ones before it.
  void read(int64_t, uint64_t, const Batch& batch, int64_t row) const override {
    const auto* const layout = dynamic_cast<const llava::Layout*>(batch.layout.get());
    if (layout == nullptr) return;
    const llava::Layout::Place place = layout->place(batch, row);
    const auto fill = [](const at::Tensor& rows, int64_t value) {
      if (rows.defined()) std::fill_n(rows.mutable_data_ptr<int64_t>(), rows.numel(), value);
    };
    fill(place.parts.feature_rows, place.first_feature);
    fill(place.parts.picture_rows, place.first_row);
    fill(place.parts.label_rows, place.first_row);
  }

 private:
  static Batch zeros(Batch batch) {
    for (at::Tensor& tensor : batch.tensors) {
      if (tensor.defined()) std::memset(tensor.mutable_data_ptr(), 0, tensor.nbytes());
    }
    return batch;
  }
  const std::shared_ptr<const DataSource> planned_;
};

// A plan's data, with values.
RunData made_up_data(const RunConfig& config, int64_t samples) {
  RunData data = family_of(config).planned_data(config, samples);
  if (const auto* images = dynamic_cast<const ImageSource*>(data.all.get()))
    return dit::image_data(
        config, std::make_shared<SyntheticSource>(SyntheticSource::Shape{
                    samples, images->channels(), images->height(), images->width(), images->classes()}));
  for (auto* const source : {&data.split.training, &data.split.held_out})
    if (*source) *source = std::make_shared<Zeros>(*source);
  return data;
}

// Runs the job that a plan simulates where kernels do compute: on the CPU, with made-up samples. As in a plan
// nothing depends on the luck of threads: the loader is always as far ahead as it can be. `at_end` is called
// at the instant at which a plan ends.
policies::TrafficByCollective run_what_is_planned(const LoadedConfig& loaded, Ranks* ranks,
                                                  const std::function<void()>& at_end) {
  WholeJob whole;
  const policies::SimulationGuard guard(whole);
  const policies::CountingAllocatorGuard counting;
  const PlannedJob job = planned_job(loaded, c10::kCPU);
  NoFiles files;
  StandingClock clock;
  policies::TrafficByCollective sent;
  PlanObserver observer([&](const PlanObserver&, const RunResult& result) {
    at_end();
    sent = result.sent;
  });
  const RunData data = made_up_data(job.loaded.config, job.samples);
  RunWorld world{files, clock, observer, [&] { return observer.ended(); }};
  world.ranks = ranks;
  run_training(
      job.loaded, c10::kCPU, {}, [&](const DataIdentity*, const OpeningProgress&) { return data; }, world);
  return sent;
}

// The job of a plan, simulated and run; of one that infers with whatever memory holds for values.
policies::TrafficByCollective simulate_job(const LoadedConfig& loaded,
                                           const planner::SimulationOptions& options, Ranks* ranks,
                                           const std::function<void()>& at_end) {
  if (!loaded.inferred)
    return plan_run(loaded, c10::kCPU, options, at_end, ranks == nullptr ? 0 : ranks->rank()).sent;
  (void)plan_inference(loaded, c10::kCPU, options);
  at_end();
  return {};
}
policies::TrafficByCollective run_job(const LoadedConfig& loaded, Ranks* ranks,
                                      const std::function<void()>& at_end) {
  if (!loaded.inferred) return run_what_is_planned(loaded, ranks, at_end);
  WholeJob whole;
  const policies::SimulationGuard guard(whole);
  const policies::CountingAllocatorGuard counting;
  family_of(loaded.config).infer_planned(loaded.config, c10::kCPU, *loaded.inferred, nullptr);
  at_end();
  return {};
}

double timed(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

const LoggedPhase* named(const std::vector<LoggedPhase>& phases, const std::string& name) {
  const auto found = std::find_if(phases.begin(), phases.end(),
                                  [&](const LoggedPhase& phase) { return phase.name == name; });
  return found != phases.end() ? &*found : nullptr;
}

void compare_peaks(const LoggedPhase& planned, const LoggedPhase& measured,
                   std::vector<PlanDifference>& found) {
  const auto compare = [&](const std::string& what, int64_t a, int64_t b) {
    if (a != b) found.push_back({measured.name, what, a, b});
  };
  compare("peak", planned.kept.bytes, measured.kept.bytes);
  auto a = planned.kept.items(), b = measured.kept.items();
  for (int i = 0; i < policies::kCategories; ++i) {
    const auto category = static_cast<Category>(i);
    compare(std::string("peak of ") + policies::name_of(category), planned.kept.of(category),
            measured.kept.of(category));
    auto labels = a[category];
    labels.insert(b[category].begin(), b[category].end());
    for (const auto& [label, bytes] : labels)
      compare(std::string("at the peak: ") + policies::name_of(category) + " " + label, a[category][label],
              b[category][label]);
  }
}

void compare_births(const LoggedPhase& planned, const LoggedPhase& measured,
                    std::vector<PlanDifference>& found) {
  auto owners = planned.born;
  owners.insert(measured.born.begin(), measured.born.end());
  const auto of = [](const LoggedPhase& phase, const auto& owner) {
    const auto born = phase.born.find(owner);
    return born != phase.born.end() ? born->second : Births{};
  };
  for (const auto& [owner, unused] : owners) {
    const Births a = of(planned, owner), b = of(measured, owner);
    if (a == b) continue;
    found.push_back({measured.name,
                     std::string("born: ") + policies::name_of(owner.first) + " " + owner.second + ", " +
                         std::to_string(a.count) + " storages for " + std::to_string(b.count),
                     a.bytes, b.bytes});
  }
}

}  // namespace

std::vector<PlanDifference> differences(const std::vector<LoggedPhase>& planned,
                                        const std::vector<LoggedPhase>& measured, bool births) {
  std::vector<PlanDifference> found;
  for (const LoggedPhase& phase : measured) {
    const LoggedPhase* const plan = named(planned, phase.name);
    compare_peaks(plan != nullptr ? *plan : LoggedPhase{phase.name, {}, 0, 0, {}, {}}, phase, found);
    if (births && plan != nullptr) compare_births(*plan, phase, found);
  }
  for (const LoggedPhase& phase : planned) {
    if (named(measured, phase.name) == nullptr) found.push_back({phase.name, "phase", phase.kept.bytes, 0});
  }
  return found;
}

static std::vector<LoggedPhase> planned_storages(const LoadedConfig& loaded, bool fold, Ranks* ranks) {
  return logged([&](const std::function<void()>& end) { simulate_job(loaded, {.fold = fold}, ranks, end); });
}

std::vector<LoggedPhase> planned_storages(const LoadedConfig& loaded, bool fold) {
  return planned_storages(loaded, fold, nullptr);
}

static void compare_sent(const policies::TrafficByCollective& planned,
                         const policies::TrafficByCollective& measured, std::vector<PlanDifference>& found) {
  policies::TrafficByCollective all = planned;
  all.insert(measured.begin(), measured.end());
  for (const auto& [collective, unused] : all) {
    const auto of = [name = collective](const policies::TrafficByCollective& sent) {
      const auto one = sent.find(name);
      return one == sent.end() ? policies::Traffic() : one->second;
    };
    const policies::Traffic a = of(planned), b = of(measured);
    if (a.bytes != b.bytes) found.push_back({"a step", "sent by " + collective, a.bytes, b.bytes});
    if (a.messages != b.messages)
      found.push_back({"a step", "messages by " + collective, a.messages, b.messages});
  }
}

PlanAccuracy plan_accuracy(const LoadedConfig& loaded, const planner::SimulationOptions& options,
                           Ranks* ranks) {
  PlanAccuracy result;
  policies::TrafficByCollective planned, measured;
  result.plan_seconds = timed([&] {
    result.planned = logged(
        [&](const std::function<void()>& end) { planned = simulate_job(loaded, options, ranks, end); });
  });
  result.run_seconds = timed([&] {
    result.measured =
        logged([&](const std::function<void()>& end) { measured = run_job(loaded, ranks, end); });
  });
  result.differences = differences(result.planned, result.measured, /*births=*/false);
  compare_sent(planned, measured, result.differences);
  // Passes that a folded plan leaves out give birth to nothing in it.
  const std::vector<PlanDifference> births =
      differences(planned_storages(loaded, /*fold=*/false, ranks), result.measured, /*births=*/true);
  result.differences.insert(result.differences.end(), births.begin(), births.end());
  for (const LoggedPhase& phase : result.measured) {
    for (const auto& [owner, born] : phase.born) result.storages += born.count;
  }
  return result;
}

std::string described(const std::vector<PlanDifference>& differences) {
  std::string text;
  for (const PlanDifference& one : differences) {
    text += one.phase + ", " + one.what + ": predicted " + std::to_string(one.predicted) + ", measured " +
            std::to_string(one.measured) + "\n";
  }
  return text;
}

}  // namespace dtk
