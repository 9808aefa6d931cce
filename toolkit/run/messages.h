// Lines that a run says to its user.
#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "toolkit/config/config.h"
#include "toolkit/data/held_out.h"
#include "toolkit/diffusion/denoiser.h"
#include "toolkit/run/record.h"
#include "toolkit/run/run.h"
#include "toolkit/train/model_family.h"
#include "toolkit/train/validation.h"

namespace dtk {

/// "training DiT-S/8, 32.58 M parameters, on cpu with 2 threads into runs/photos".
std::string training_line(const ModelFacts& model, const RunFacts& facts, const std::filesystem::path& out);

/// What is trained on: the description, that it was made up, what was left out, what is held out, and which
/// of the model's classes no sample has.
std::vector<std::string> data_lines(const RunData& data, const ModelFacts& facts);

/// "0 cat, 1 dog": labels and names; of many the first and the last. "" where there are no names.
std::string classes_text(const std::vector<std::string>& names);

/// "class 4 is never learnt": those of the model's classes above all labels; "" if there are none.
std::string unseen_classes(ClassCounts classes);

std::string validation_line(int64_t step, const Validated& validated, int64_t samples, bool ema);

/// Why a run ends: in one of the steps `first` to `last` something was not finite.
std::string non_finite_text(int64_t first, int64_t last, const OptimizerOptions& options,
                            const std::filesystem::path& last_checkpoint);

/// That step `step`, of these samples, changed nothing.
std::string skipped_text(int64_t step, const std::string& samples);
/// The first 64 of some numbers: "3, 17, 4, ..."
std::string first_of(std::vector<int64_t> numbers);
/// Of steps whose samples weighed nothing, up to step `until`.
std::string weightless_text(int64_t steps, int64_t until);
/// Why a run ends that skipped so many steps in a row.
std::string too_many_skipped_text(int64_t in_a_row, const TrainOptions& options,
                                  const std::filesystem::path& last_checkpoint);

/// What a policy does in this run, or why it does nothing.
std::string policy_line(const policies::PolicyReport& report);

/// What the run says first when it goes on from `checkpoint`. `by_clock`: train.seconds ends it.
std::string resumed_line(const std::filesystem::path& checkpoint, int64_t step, bool by_clock);

/// Goes on drawing, each step said to `observer`, until a stop is requested. Both must outlive the result.
KeepGoing until_stopped(RunObserver& observer, std::function<bool()> stop_requested);

/// Tells `observer` how far the opening of data is. Both must outlive the result, which throws Error with
/// ExitCode::stopped once a stop is requested.
OpeningProgress until_opened(RunObserver& observer, std::function<bool()> stop_requested);

/// The command that draws the grid of a run as it would have been.
std::string sample_command(const std::filesystem::path& checkpoint, const RunConfig& config,
                           const std::filesystem::path& out);

}  // namespace dtk
