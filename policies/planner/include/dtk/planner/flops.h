// The arithmetic of a planned job: FLOPs of its matrix products, attention and convolutions, two a
// multiply-add.
//
// Not counted: element-wise operators, normalisations, reductions, gathers, random numbers, and products by
// other operators than those of operator_flops.cpp. Causal attention counts as if nothing were masked.
#pragma once
#include <cstdint>

namespace dtk::planner {

/// Which pass an operator belongs to: backward is what autograd's nodes do; recomputed is forward code that
/// runs within it, with grad mode on, and so also what a backward with create_graph does.
struct Flops {
  int64_t forward = 0;               // with grad mode
  int64_t backward = 0;              // without the next two
  int64_t recomputed = 0;            // forward operators that backward recomputes
  int64_t attention_recomputed = 0;  // scores that the backward kernel of a fused attention recomputes
  int64_t without_grad = 0;          // forward code without grad mode: validation, sampling
  friend bool operator==(const Flops&, const Flops&) = default;
};

}  // namespace dtk::planner
