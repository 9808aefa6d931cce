#include <ATen/ops/linear.h>
#include <dtk/models/layers.h>

namespace dtk::models {

at::Tensor Linear::operator()(const at::Tensor& x) const {
  return at::linear(x, weight, bias);
}

}  // namespace dtk::models
