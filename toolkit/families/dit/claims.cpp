#include "toolkit/families/dit/claims.h"

namespace dtk::dit {

std::vector<Claim> claims() {
  return {
      {.policy = "checkpoint",
       .words = "62 to 32 GB, 20 % slower",
       .source = "mar (autoregressive images by diffusion), pull request 7",
       .lowers_peak_by = 1 - 32.0 / 62,
       .slower_by = 0.2},
      {.policy = "checkpoint",
       .words = "26.0 to 14.9 GiB, 30 % slower",
       .source = "FastVideo, pull request 584",
       .lowers_peak_by = 1 - 14.9 / 26,
       .slower_by = 0.3},
      {.policy = "checkpoint",
       .words = "40 to 19 GB, 29 % slower",
       .source = "mflux (FLUX on MLX), pull request 419",
       .lowers_peak_by = 1 - 19.0 / 40,
       .slower_by = 0.29},
  };
}

}  // namespace dtk::dit
