// Options of the inference policy, free of LibTorch.
#pragma once
#include <dtk/policies/enabled.h>
#include <dtk/policies/taps.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dtk::policies {

/// Rows at a time; absent: chosen (inference.h), 0: all at once.
using RowsAtOnce = std::optional<int64_t>;

struct InferenceOptions {
  Enabled enabled = Enabled::by_default;
  // What a backward pass would need is kept although none follows: the mistake that the policy prevents.
  bool gradients = false;
  // Of a model that is built for it: weights are held in the type that precision computes in, so that
  // autocast has nothing to copy.
  bool narrow_weights = true;
  Taps taps = Taps::projected;
  RowsAtOnce frame_chunk = {};                // samples of a module
  RowsAtOnce token_chunk = {};                // tokens of a product
  RowsAtOnce query_chunk = {};                // queries that attend to all keys
  RowsAtOnce head_chunk = {};                 // samples of a module of `heads`
  std::vector<std::string> heads = {"head"};  // what the names of such modules end with

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [enabled, gradients, narrow_weights, taps, frame_chunk, token_chunk, query_chunk, head_chunk,
           heads] = self;
    visit("enabled", enabled, "\"default\" | true | false");
    visit("gradients", gradients, "");
    visit("narrow_weights", narrow_weights, "");
    visit("taps", taps, "");
    visit("frame_chunk", frame_chunk, "[0, inf)");
    visit("token_chunk", token_chunk, "[0, inf)");
    visit("query_chunk", query_chunk, "[0, inf)");
    visit("head_chunk", head_chunk, "[0, inf)");
    visit("heads", heads, "");
  }
  friend bool operator==(const InferenceOptions&, const InferenceOptions&) = default;
};

}  // namespace dtk::policies
