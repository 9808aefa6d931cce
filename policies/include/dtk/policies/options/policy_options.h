// The options of all policies, in the order in which they act. Free of LibTorch.
#pragma once
#include <dtk/policies/options/attention_options.h>
#include <dtk/policies/options/checkpoint_options.h>
#include <dtk/policies/options/ema_options.h>
#include <dtk/policies/options/fusion_options.h>
#include <dtk/policies/options/inference_options.h>
#include <dtk/policies/options/own_options.h>
#include <dtk/policies/options/precision_options.h>
#include <dtk/policies/options/shard_options.h>

namespace dtk::policies {

struct PolicyOptions {
  PrecisionOptions precision;
  AttentionOptions attention;
  FusionOptions fusion;
  ShardOptions shard;
  EmaOptions ema;
  CheckpointOptions checkpoint;
  InferenceOptions inference;
  OwnOptions own = {};  // of policies that the program registered (policy_kind.h)

  /// Visits each policy's options: visit(name, struct), with an OwnTable for a struct of `own`.
  template <class Self, class Visit>
  static void tables(Self& self, Visit&& visit) {
    auto& [precision, attention, fusion, shard, ema, checkpoint, inference, own] = self;
    visit("precision", precision);
    visit("attention", attention);
    visit("fusion", fusion);
    visit("shard", shard);
    visit("ema", ema);
    visit("checkpoint", checkpoint);
    visit("inference", inference);
    OwnOptions::tables(own, visit);
  }

  /// Every policy switched off: the baseline that a saving is measured against. Attention then stores its
  /// weights, as it was written before there were fused kernels.
  static PolicyOptions all_off() {
    PolicyOptions options;
    tables(options, [](const char*, auto& one) { one.enabled = Enabled::off; });
    return options;
  }
  friend bool operator==(const PolicyOptions&, const PolicyOptions&) = default;
};

}  // namespace dtk::policies
