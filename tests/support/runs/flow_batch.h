// Several micro-batches of rectified flow as one batch, drawn as a trainer draws them: what its accumulated
// gradient is compared with.
#pragma once
#include <ATen/ATen.h>

#include <vector>

#include "toolkit/data/data_source.h"
#include "toolkit/families/dit/trainable.h"

namespace dtk::test {

struct FlowBatch {
  std::vector<at::Tensor> x, t, target, y;

  /// Adds the loader's next micro-batch, with logit-normal times.
  void add(const Batch& batch, at::Generator& noise) {
    const auto& x0 = batch.tensors[0];
    t.push_back(at::randn({x0.size(0)}, noise, x0.options()).sigmoid_());
    const at::Tensor drawn = at::randn(x0.sizes(), noise, x0.options());
    x.push_back(at::lerp(x0, drawn, t.back().view({-1, 1, 1, 1})));
    target.push_back(drawn - x0);
    y.push_back(batch.tensors[1]);
  }

  /// Adds the gradient of the mean loss over all samples.
  void backward(const TrainableModel& trained) const {
    const models::Dit& model = dynamic_cast<const dit::TrainableDit&>(trained).dit();
    const at::Tensor v = model.forward(at::cat(x), at::cat(t) * 1000, at::cat(y), /*training=*/true);
    at::mse_loss(v, at::cat(target)).backward();
  }
};

}  // namespace dtk::test
