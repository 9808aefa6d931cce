// Options of the activation checkpointing policy, free of LibTorch.
#pragma once
#include <dtk/policies/enum_text.h>
#include <dtk/policies/internal/byte_count.h>
#include <dtk/policies/internal/enabled.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dtk::policies {

/// `block` nothing, `all` everything, `offload` everything, in host memory; `listed` what a list has.
/// `automatic`: a planner has yet to choose the targets that keep nothing; the policy itself refuses it.
/// The four sets are results of a transformer block by their names in the model's code. `elementwise`:
/// qkv_out, attn_out, proj_out, fc1_out and fc2_out, so that no product of tokens is recomputed; `attention`:
/// attn_out, proj_out and fc2_out; `gates`: proj_out and fc2_out, which the gradients of adaLN's gates read;
/// `fc2`: fc2_out.
enum class KeepWord { all, automatic, block, offload, elementwise, attention, gates, fc2, listed };
constexpr auto enum_texts(KeepWord) {
  return std::array{"all", "auto", "block", "offload", "elementwise", "attention", "gates", "fc2"};
}

/// What a segment keeps besides its inputs: a word, or a list of results as KeptResults has them. With
/// "offload" in the list what is kept, inputs and results, waits in host memory. An entry such as
/// "blocks.0: offload" is for the modules that match the glob before the colon, one without for all;
/// "blocks.0: all" keeps everything there, with "blocks.0: offload" beside it in host memory.
struct SegmentKeeps {
  KeepWord word = KeepWord::block;
  // Names, such as "fc2_out", sets of them, such as "gates", operators, such as "aten::addmm", and "offload";
  // for some modules also "all".
  std::vector<std::string> results;

  /// Whether an entry of a list is "offload" itself.
  static bool is_offload(const std::string& result) { return result == text_of(KeepWord::offload); }
  bool offloads_all() const {
    return word == KeepWord::offload || std::any_of(results.begin(), results.end(), is_offload);
  }
  bool offloads() const {
    return offloads_all() || std::any_of(results.begin(), results.end(), [](const std::string& one) {
             return one.ends_with(": " + text_of(KeepWord::offload));
           });
  }
  bool recomputes() const {
    return word == KeepWord::listed
               ? !results.empty()
               : word != KeepWord::all && word != KeepWord::offload && word != KeepWord::automatic;
  }

  SegmentKeeps() = default;
  SegmentKeeps(KeepWord one) : word(one) {}
  SegmentKeeps(std::vector<std::string> list) : word(KeepWord::listed), results(std::move(list)) {}
  friend bool operator==(const SegmentKeeps&, const SegmentKeeps&) = default;
};

struct CheckpointOptions {
  Enabled enabled = Enabled::by_default;
  // Globs over module paths; * stands for one component. Empty: the modules that the model repeats, which
  // are found by their parameters' shapes; the others are few, and a segment of one operator costs more than
  // it saves.
  std::vector<std::string> targets = {};
  // Checkpoint each match (1), or each k-th in module order.
  int64_t every = 1;
  // Consecutive matches in one segment. More than 1 keeps fewer inputs, but backward then holds what all of
  // them save at once: the peak is lower only where the inputs not kept weigh more than that.
  int64_t segment = 1;
  // Kept results cost their bytes in every segment and save recomputing the operators that made them.
  SegmentKeeps keep = KeepWord::block;
  // Where keep offloads: what lies in smaller storages stays on the device, as a copy costs more than it
  // frees.
  ByteCount offload_min_bytes = {1 << 20};

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [enabled, targets, every, segment, keep, offload_min_bytes] = self;
    visit("enabled", enabled, "\"default\" | true | false", "recompute in backward what a module saves");
    visit("targets", targets, "empty: the modules that repeat", "modules, by patterns of their paths");
    visit("every", every, "[1, inf)", "each k-th of the targets only");
    visit("segment", segment, "[1, inf)", "targets, one behind the other, that are recomputed together");
    visit("keep", keep,
          "all | auto | block | offload | elementwise | attention | gates | fc2 | a list of names and "
          "operators",
          "what a module keeps beside its inputs: block nothing, all everything, auto as much as "
          "memory.budget allows, a word or list some results");
    visit("offload_min_bytes", offload_min_bytes, "[0, inf)",
          "where keep offloads: what is smaller stays on the device");
  }
  friend bool operator==(const CheckpointOptions&, const CheckpointOptions&) = default;
};

}  // namespace dtk::policies
