#include "toolkit/run/run.h"

#include <c10/util/Exception.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/saved_tensors.h>

#include "toolkit/config/locations.h"
#include "toolkit/config/rules.h"
#include "toolkit/core/format.h"
#include "toolkit/device/device.h"
#include "toolkit/distributed/agreement.h"
#include "toolkit/run/folder.h"
#include "toolkit/run/messages.h"
#include "toolkit/run/out_of_memory.h"
#include "toolkit/run/start.h"
#include "toolkit/run/training_run.h"
#include "toolkit/train/model_family.h"

namespace dtk {

RunResult run_training(const LoadedConfig& given, c10::Device device, const std::filesystem::path& resume,
                       const OpenData& open, const RunWorld& world) try {
  const policies::ThreadCountGuard threads(static_cast<int>(*given.config.train.threads));
  const policies::SavedTensorEngineGuard engine;  // without it no policy that keeps or drops tensors works
  const bool resumed = !resume.empty();
  if (!resumed) check_new_run(given);
  LoadedConfig loaded = given;
  resolve_budget(loaded, device);
  const bool follows = world.ranks != nullptr && !world.ranks->leads();
  RunFolder folder(loaded, resume, world);
  std::string decision;
  std::optional<ResumePoint> from;
  std::string adopted;
  if (resumed) {
    from = open_resume_point(world.files, resume, world.ranks);
    if (!follows) {
      adopted = adopt_escalations(loaded, from->written);
      refuse_for_one_rank(loaded);
      // The checkpoint's, which is compared below.
      decision = resolve_measured(loaded, device, &from->written, world);
    }
  }
  if (!follows) folder.check(resumed ? &*from : nullptr);
  const std::optional<Weights> initial = resumed ? std::nullopt : initial_weights(world.files, loaded);
  std::string level;
  if (!follows) level = resolve_level(loaded, device, world);
  const StartPlans plans = plan_start(world, loaded, device);
  const LoadedConfig asked = loaded;
  if (!follows) refuse_if_none_can_run(plans, loaded, device, resumed, world);
  if (!resumed) decision = resolve_precision(plans, loaded, device);
  RunData data =
      open(from && from->data ? &*from->data : nullptr, until_opened(world.observer, world.stop_requested));
  data.identity = identity_of(data, loaded.config.data, world);
  if (follows) loaded = leaders_config(*world.ranks, loaded);  // which has planned and measured meanwhile
  if (world.ranks != nullptr) agree_on_data(*world.ranks, data.identity);
  if (resumed && !follows) take_changes(*from, data.identity, loaded);
  check_fills_a_batch(*data.split.training, loaded.config.data.batch, loaded.config.train.accumulate);
  // Last, as it takes longest.
  if (!resumed && !follows && decision.empty()) decision = resolve_measured(loaded, device, nullptr, world);
  StartPlan plan = plan_of(plans, asked, loaded);
  if (world.ranks != nullptr && !follows) leaders_config(*world.ranks, loaded);
  std::vector<std::string> notes = notes_on_plan(plan, loaded, device, resumed, world);
  // Behind all that may be refused: it makes the folder.
  if (world.ranks != nullptr) check_shared(loaded.config.train.out, world.checkpoint_files(), *world.ranks);
  MemoryMeters meters(loaded.config.memory, device);  // counts the run's tensors from the first
  constexpr int64_t kSlowToBuild = 100'000'000;
  if (const int64_t parameters = trainable_parameters(loaded.config); parameters >= kSlowToBuild) {
    world.observer.message(fmt::format(
        "building the model of {} parameters; a signal is heeded after it, a second one ends at once",
        parameters));
  }
  std::unique_ptr<TrainingRun> run;
  try {
    run = build_run(loaded, given.config, device, data, world, initial, meters);
    if (resumed) run->load(from->checkpoint);
  } catch (const c10::OutOfMemoryError& error) {
    run.reset();
    refuse_build(error, loaded, device, plan.memory, run_facts(loaded, device, data, plan), data.identity,
                 resumed ? nullptr : &folder, meters, world);
  }
  // Nobody reads the folder any more as it was.
  if (world.ranks != nullptr) world.ranks->meet("the run's first step");
  for (std::string& note : folder.claim(data.identity)) notes.push_back(std::move(note));
  for (const std::string& note : {adopted, level})
    if (!note.empty()) notes.push_back(note);
  for (std::string& note : notes_on_start(loaded, initial)) notes.push_back(std::move(note));
  std::optional<RunResult> trained = run->train(resumed, notes, plan, decision);
  while (!trained) {
    const Escalation next = run->escalation();
    const ProcessSoFar so_far = run->so_far();
    run.reset();  // what it held is not alive beside what comes
    meters.begin_again();
    loaded = next.loaded;
    plan = next.plan;
    folder.write_config();
    try {
      run = build_run(loaded, given.config, device, data, world, std::nullopt, meters);
      run->load(open_checkpoint(world.files, next.saved_as));
    } catch (const c10::OutOfMemoryError& error) {
      run.reset();
      refuse_rebuild(error, loaded, device, next, run_facts(loaded, device, data, plan), meters, world);
    }
    run->go_on_from(so_far);
    trained = run->train(/*resumed=*/true, {}, plan, "");
  }
  RunResult result = std::move(*trained);
  result.planned = plan.memory;
  world.observer.finished(result);
  result.savings = run->savings(result);
  return result;
} catch (const policies::PolicyError& error) {
  throw located(error, given.locations);
}

}  // namespace dtk
