// A configured run as the planner runs it: the whole job, from building the model to its last checkpoint,
// with no data, no files and no clock.
#pragma once
#include <c10/core/Device.h>
#include <dtk/planner/rehearse.h>
#include <dtk/toolkit/config_io.h>

namespace dtk {

/// Rehearses run_training() of `loaded` with as few steps as show everything a long run does: the first step,
/// steady ones, the shorter last batch of an epoch, validation, logging, saving and sampling. Whether an
/// epoch ends with a shorter batch is known from data.samples; without that key it is taken to. Throws as
/// run_training() and planner::rehearse().
planner::Rehearsed plan_run(const LoadedConfig& loaded, c10::Device device,
                            const planner::RehearsalOptions& options = {});

}  // namespace dtk
