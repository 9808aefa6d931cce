// The options of all policies, in the order in which they act. Free of LibTorch.
#pragma once
#include <dtk/policies/attention_options.h>
#include <dtk/policies/checkpoint_options.h>
#include <dtk/policies/ema_options.h>
#include <dtk/policies/precision_options.h>

namespace dtk::policies {

struct PolicyOptions {
  PrecisionOptions precision;
  AttentionOptions attention;
  EmaOptions ema;
  CheckpointOptions checkpoint;

  /// Visits each policy's options: visit(name, struct).
  template <class Self, class Visit>
  static void tables(Self& self, Visit&& visit) {
    auto& [precision, attention, ema, checkpoint] = self;
    visit("precision", precision);
    visit("attention", attention);
    visit("ema", ema);
    visit("checkpoint", checkpoint);
  }
  friend bool operator==(const PolicyOptions&, const PolicyOptions&) = default;
};

}  // namespace dtk::policies
