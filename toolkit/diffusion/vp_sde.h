// The variance-preserving diffusion in continuous time: x_t = α(t) x_0 + σ(t) z for t in (0, 1], with β
// linear in t (Song et al. 2021).
#pragma once
#include <ATen/core/Tensor.h>

namespace dtk {

/// α² + σ² = 1; λ = log α - log σ falls with t. Of a tensor, of any floating type, elementwise; nothing is
/// read on the host.
struct VpSde {
  double beta0 = 0.1;
  double beta1 = 20.0;

  double log_alpha(double t) const;
  double alpha(double t) const;
  double sigma(double t) const;
  double lambda(double t) const;
  /// The t of which λ is lambda(t).
  double time(double lambda) const;

  at::Tensor log_alpha(const at::Tensor& t) const;
  at::Tensor alpha(const at::Tensor& t) const;
  at::Tensor sigma(const at::Tensor& t) const;  // no cancellation at small t, in fp32 neither
};

}  // namespace dtk
