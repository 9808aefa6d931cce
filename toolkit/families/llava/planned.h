// What stands for dialogues in a plan.
#pragma once
#include "toolkit/data/held_out.h"
#include "toolkit/families/llava/batch.h"
#include "toolkit/families/llava/options.h"

namespace dtk::llava {

/// Of a sample of max_length tokens with a picture, where one fits, all of whose text is answers.
SampleSize longest_sample(const RunConfig& config);

/// Of `samples` such, not filled.
Batch planned_batch(const RunConfig& config, int64_t samples, at::TensorOptions options);

/// Of such samples.
RunData planned_dialogues(const RunConfig& config, int64_t samples);

}  // namespace dtk::llava
