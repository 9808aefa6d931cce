#include "toolkit/families/vggt/claims.h"

#include "toolkit/families/vggt/options.h"

namespace dtk::vggt {

std::vector<Claim> inference_claims() {
  return {
      {.policy = "checkpoint",
       .words = "checkpointing at inference lowers the peak by ~40 %",
       .source = "a change proposed to a fork, 2026-05-05, with a table of estimates and no measurement",
       .lowers_peak_by = 0.4},
      {.policy = "",
       .words = "sequential heads keep one head's activations at the peak, not both heads'",
       .source = "the same change",
       .seen =
           "heads run one after another without it, too: it lets go of four rounds of poses, 2,448 bytes at "
           "17 frames, and empties a cache, which lowers no peak"}};
}

std::vector<CountedClaim> counted_claims(const RunConfig& config) {
  const Options& options = options_of(config);
  if (options.model.preset != models::VggtPreset::of_1b || options.data.height != 336 ||
      options.data.width != 518)
    return {};
  constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
  return {
      {.name = "published",
       .source = "the model's README, aggregator alone on an H100: GiB, which it calls GB; the line through "
                 "its nine figures",
       .at_0 = 1.678 * kGiB,
       .each = 0.1947 * kGiB,
       .most = 200},
      {.name = "original",
       .source = "its code run on a simulated device, aggregator alone: 3.64 GB of fp32 weights, 1.80 GB of "
                 "their copies, and 205.4 MB a frame",
       .at_0 = 3.64e9 + 1.80e9,
       .each = 205.4e6}};
}

}  // namespace dtk::vggt
