// What is settled and said before a run's first step.
#pragma once
#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include <optional>
#include <string>
#include <vector>

#include "toolkit/checkpoint/weights.h"
#include "toolkit/config/config_io.h"
#include "toolkit/data/held_out.h"
#include "toolkit/run/escalation.h"
#include "toolkit/run/folder.h"
#include "toolkit/run/memory_meters.h"
#include "toolkit/run/messages.h"
#include "toolkit/run/record.h"
#include "toolkit/run/run.h"

namespace dtk {

/// Settles what `loaded` leaves to a measurement. `written`: the configuration of the checkpoint that the run
/// goes on from, which also settles keep = "auto"; null for a new run. Returns what was measured, or "".
std::string resolve_measured(LoadedConfig& loaded, c10::Device device, const LoadedConfig* written,
                             const RunWorld& world);

/// What train.init_from and train.init_key of a new run mean, checked against its model; nothing if they are
/// not set. Throws as open_weights() and check_fit(); a ConfigError begins with the key's place.
std::optional<Weights> initial_weights(FileSystem& files, const LoadedConfig& loaded);

/// What `data` are known by.
DataIdentity identity_of(const RunData& data, const DataOptions& options, const RunWorld& world);

/// Throws DataError at each rank whose data are not the leader's.
void agree_on_data(Ranks& ranks, const DataIdentity& own);

/// Adds what a resumed run changes to its history. Throws ConfigError if the data are not those of the
/// checkpoint and data.allow_change does not say that the run goes on with them. What is allowed so is
/// allowed once: the configuration that the run saves does not say it.
void take_changes(const ResumePoint& from, const DataIdentity& now, LoadedConfig& loaded);

/// What the user should hear about the weights that a run begins with.
std::vector<std::string> notes_on_start(const LoadedConfig& loaded, const std::optional<Weights>& initial);

/// Settles an open policies.shard.level by the plan of "optimizer". Returns a line to print, or "".
std::string resolve_level(LoadedConfig& loaded, c10::Device device, const RunWorld& world);

/// One plan, or one for each precision where a measurement will decide; none where nobody plans.
using StartPlans = std::vector<StartPlan>;
StartPlans plan_start(const RunWorld& world, LoadedConfig loaded, c10::Device device);
/// As notes_on_plan() of the one that takes least, or of the first if all are refused. keep = "auto" is
/// replaced by the first's choice; throws ConfigError if it has none.
void refuse_if_none_can_run(const StartPlans& plans, LoadedConfig& loaded, c10::Device device, bool resumed,
                            const RunWorld& world);
/// Settles an open precision if only one fits into the memory that there is, and memory.on_over_budget =
/// "refuse". Returns a line to print, or "".
std::string resolve_precision(const StartPlans& plans, LoadedConfig& loaded, c10::Device device);
/// The one for the precision that was decided on. What it chose for keep = "auto" of `asked`, which is
/// `loaded` before the above, becomes `loaded`'s.
StartPlan plan_of(const StartPlans& plans, const LoadedConfig& asked, LoadedConfig& loaded);

/// What the user should hear of the plan. Throws ConfigError if the configuration cannot run; Error, exit
/// code 3, if it does not fit and memory.on_over_budget says to refuse that; then `world` plans what
/// else would fit (other_fits.h).
std::vector<std::string> notes_on_plan(const StartPlan& plan, const LoadedConfig& loaded, c10::Device device,
                                       bool resumed, const RunWorld& world);

/// All but the parameters and the policies.
RunFacts run_facts(const LoadedConfig& loaded, c10::Device device, const RunData& data,
                   const StartPlan& plan);

/// Throws the error of a run that cannot be built, exit code 3. A new one leaves what is known of it in its
/// `folder`; null: a resumed one, whose folder keeps the figures of what was trained.
[[noreturn]] void refuse_build(const c10::OutOfMemoryError& error, const LoadedConfig& loaded,
                               c10::Device device, const std::optional<MemoryReport>& plan, RunFacts facts,
                               const DataIdentity& data, RunFolder* folder, const MemoryMeters& meters,
                               const RunWorld& world);

/// Throws the error of a run that was refused memory once more when it was built anew; leaves what is known
/// in its record.
[[noreturn]] void refuse_rebuild(const c10::OutOfMemoryError& error, const LoadedConfig& loaded,
                                 c10::Device device, const Escalation& escalation, RunFacts facts,
                                 const MemoryMeters& meters, const RunWorld& world);

}  // namespace dtk
