// What stands for dialogues in a plan.
#pragma once
#include "toolkit/data/held_out.h"
#include "toolkit/families/llava/batch.h"
#include "toolkit/families/llava/options.h"

namespace dtk::llava {

/// Reads how long the samples of [llava.data] are, where they are there, and notes it in `config`. Throws as
/// DialogueSource.
void measure_dialogues(RunConfig& config);

/// A sample that is as long as any may be, with a picture where one fits, all of whose text is an answer.
SampleSize longest_sample(const RunConfig& config);

/// `samples` that are as long as any may be, with a picture where one fits, all of whose text is answers; not
/// filled.
Batch longest_batch(const RunConfig& config, int64_t samples, at::TensorOptions options);

/// The largest micro-batch that a run of `config` will read.
struct LargestBatch {
  std::vector<SampleSize> samples;
  // In which it is; absent: each figure (tokens of the longest, pictures, features, labels of all) is the
  // largest of some micro-batch, or, where the run's length is not known before it, that one can have.
  std::optional<int64_t> step = std::nullopt;
};
LargestBatch largest_batch(const RunConfig& config, const Lengths& lengths);

/// Every micro-batch of them is the largest, or, where lengths are not known, of longest samples.
RunData planned_dialogues(const RunConfig& config, int64_t samples);

/// "the largest micro-batch, of step 12: 32 dialogues of up to 41 tokens, 32 pictures, 512 labels".
std::string planned_note(const RunConfig& config);

}  // namespace dtk::llava
