// Options of the inference policy, free of LibTorch.
#pragma once
#include <dtk/policies/internal/enabled.h>
#include <dtk/policies/internal/taps.h>

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
  RowsAtOnce frame_chunk = {};
  RowsAtOnce token_chunk = {};
  RowsAtOnce query_chunk = {};
  RowsAtOnce head_chunk = {};
  std::vector<std::string> heads = {"head"};

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [enabled, gradients, narrow_weights, taps, frame_chunk, token_chunk, query_chunk, head_chunk,
           heads] = self;
    visit("enabled", enabled, "\"default\" | true | false",
          "where no backward pass follows: keep nothing for one, and run modules in parts");
    visit("gradients", gradients, "", "keep what a backward pass would need, for comparison");
    visit("narrow_weights", narrow_weights, "", "hold weights in the type that is computed in");
    visit("taps", taps, "",
          "results that wait for a later reader: made ready for it, as they are, or all of them");
    visit("frame_chunk", frame_chunk, "[0, inf)",
          "samples of a module at a time; 0: all; not set: chosen where the model says how large they are");
    visit("token_chunk", token_chunk, "[0, inf)",
          "tokens of a product at a time; 0: all; not set: chosen likewise");
    visit("query_chunk", query_chunk, "[0, inf)", "queries of attention at a time; 0 or not set: all");
    visit("head_chunk", head_chunk, "[0, inf)",
          "samples of a head at a time; 0: all; not set: chosen as for frame_chunk");
    visit("heads", heads, "", "what the names of modules end with that are heads");
  }
  friend bool operator==(const InferenceOptions&, const InferenceOptions&) = default;
};

}  // namespace dtk::policies
