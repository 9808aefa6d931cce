// What a run goes on with when a step was refused memory (memory.on_out_of_memory = "escalate").
//
// The step is taken back, the cheapest choice that by its plan fits is saved with a checkpoint, and the run
// is built anew from that, as a resumed one is: nothing of the refused step can remain. In the order of the
// time that they cost: what policies can do with the same bits (PolicyKind::tighter), then memory.split.
#pragma once
#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "toolkit/config/config_io.h"
#include "toolkit/report/plan_summary.h"
#include "toolkit/run/run.h"

namespace dtk {

/// What policies can still do for a run of `config`, the cheapest first, each with all before it.
std::vector<RunConfig> tighter_policies(const RunConfig& config, c10::Device device);
/// Then smaller and smaller parts, of one sample in the end.
std::vector<RunConfig> smaller_parts(const RunConfig& config);

struct Escalation {
  LoadedConfig loaded;             // with the choice
  StartPlan plan;                  // of it; without memory where it could not be planned, and is tried
  std::string chosen;              // "policies.checkpoint.keep = \"block\", memory.split = 2"
  std::optional<int64_t> room;     // bytes that it may take, where they are known
  std::filesystem::path saved_as;  // the checkpoint that it goes on from
};

/// On the device, with what its allocator adds; nothing without a plan.
std::optional<int64_t> planned_bytes(const StartPlan& plan);

/// The first choice that by its plan takes no more than there was room for, and less than the plan `now` of
/// the refused step: what a budget allows, or less than what was alive with what was asked for. keep = "auto"
/// of `given`, as the user wrote it, is chosen anew for that room. A choice that cannot be planned is tried.
/// One of a policy that is refused, or takes no less than those before, is left out, and not in those after
/// it. Nothing: none is left, a stop is requested, or what was refused is no memory of `device`; `lowest` is
/// then the one that came closest, where there was one.
std::optional<Escalation> next_choice(const LoadedConfig& loaded, const RunConfig& given, c10::Device device,
                                      int64_t step, const c10::OutOfMemoryError& error, const StartPlan& now,
                                      const RunWorld& world, std::optional<Escalation>& lowest);

/// "step 12 was refused memory, and no choice fits: the least, with memory.split = 8, ..."
std::string no_choice_text(const Escalation& lowest, int64_t step);

/// "step 12 was refused memory and is taken back, ...: memory budget of ...; the run goes on from ... with
/// ..." `step`: the last one; `taken_back`: the one after it was.
std::string escalation_text(const Escalation& escalation, int64_t step, bool taken_back,
                            const c10::OutOfMemoryError& error);

/// What a run chose so before the checkpoint that `loaded` goes on from, of which `written` is the
/// configuration, unless --set says otherwise. Returns a line to print, or "".
std::string adopt_escalations(LoadedConfig& loaded, const LoadedConfig& written);

}  // namespace dtk
