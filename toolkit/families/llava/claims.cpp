#include "toolkit/families/llava/claims.h"

namespace dtk::llava {

std::vector<Claim> claims() {
  return {
      {.policy = "checkpoint",
       .words = "~50 % lower peak VRAM, ~20 % slower",
       .source = "a wiki page on gradient checkpointing in LLaVA, 2026-02-13, without model, batch or "
                 "measurement; one on transformers, 2025-12-18, has the same figures",
       .lowers_peak_by = 0.5,
       .slower_by = 0.2},
  };
}

}  // namespace dtk::llava
