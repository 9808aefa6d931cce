// What a token costs a LLaVA, beside what is planned of it.
#pragma once
#include <array>
#include <vector>

#include "toolkit/train/model_family.h"

namespace dtk::llava {

/// A micro-batch of as many samples, each as long as makes about `tokens` together. Lengths of data are left
/// aside.
SizedJob of_length(const RunConfig& config, int64_t tokens);

/// A micro-batch of samples of half of llava.data.max_length, or of twice that where a picture leaves no room
/// in half of it, and of all of it.
std::array<SizedJob, 2> two_lengths(const RunConfig& config);

/// The law of a decoder layer's bytes, as far as one was measured for this precision, base and training (the
/// place where a change of the layer changes it), and how much the logits take.
std::vector<TokenNote> token_notes(const RunConfig& config, c10::Device device);

}  // namespace dtk::llava
