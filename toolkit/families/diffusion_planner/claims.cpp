#include "toolkit/families/diffusion_planner/claims.h"

namespace dtk::diffusion_planner {

std::vector<Claim> claims() {
  const std::string source = "tier4/Diffusion-Planner, pull request 44, which states no figure";
  return {
      {.policy = "precision", .words = "bf16: smaller activations, a main saving", .source = source},
      {.policy = "attention",
       .words = "need_weights = False: no tensors of attention weights",
       .source = source},
      {.policy = "ema", .words = "the average on the CPU: one copy of the model less", .source = source},
      {.policy = "checkpoint", .words = "recomputing for memory, a main saving", .source = source},
  };
}

}  // namespace dtk::diffusion_planner
