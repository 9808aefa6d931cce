// Cross-entropy without logits that wait for backward.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <dtk/models/counted_forward.h>
#include <dtk/models/llava.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "llava/parts.h"

namespace dtk::models {
namespace {

// The gradients of the loss are known as soon as its logits are, so that both are made chunk by chunk and
// backward only multiplies by what the loss counts.
struct ChunkedCrossEntropy : torch::autograd::Function<ChunkedCrossEntropy> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& head, const at::Tensor& labels, int64_t chunk, bool to_x,
                            bool to_head, bool has_graph) {
    const CountedForward mode(has_graph);
    const int64_t rows = x.size(0);
    const at::Tensor by = as_multiplied(head.detach()), all = as_multiplied(x.detach());
    const double share = 1.0 / static_cast<double>(rows);
    at::Tensor loss = at::zeros({}, all.options().dtype(at::kFloat));
    at::Tensor of_x, of_head;
    if (to_x) of_x = at::empty_like(x.detach());
    if (to_head) of_head = at::zeros_like(head.detach());
    for (int64_t first = 0; first < rows; first += chunk) {
      const int64_t count = std::min(chunk, rows - first);
      const at::Tensor part = all.narrow(0, first, count);
      const at::Tensor label = labels.narrow(0, first, count).unsqueeze(1);
      at::Tensor logits = at::linear(part, by);
      logits = logits.to(at::kFloat);
      logits = at::log_softmax(logits, 1);
      loss.sub_(logits.gather(1, label).sum(), share);
      if (!to_x && !to_head) continue;
      logits.exp_();
      logits.scatter_add_(1, label, at::full({count, 1}, -1.0, logits.options()));
      logits.mul_(share);
      logits = logits.to(by.scalar_type());
      if (to_x) of_x.narrow(0, first, count).copy_(at::matmul(logits, by));
      if (to_head) of_head.add_(at::matmul(logits.t(), part));
    }
    context->save_for_backward({of_x, of_head});
    return loss;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& of_loss) {
    TORCH_CHECK(!at::GradMode::is_enabled(),
                "chunked_cross_entropy: its gradients are made beside it and have none of their own; ask for "
                "no graph "
                "of backward (create_graph)");
    torch::autograd::variable_list gradients(7);
    const torch::autograd::variable_list saved = context->get_saved_variables();
    for (size_t i = 0; i < saved.size(); ++i) {
      // The factor, a micro-batch's weight in its step, is not rounded to a narrow type.
      if (saved[i].defined())
        gradients[i] = (saved[i].to(at::kFloat) * of_loss[0]).to(saved[i].scalar_type());
    }
    return gradients;
  }
};

}  // namespace

at::Tensor chunked_cross_entropy(const at::Tensor& x, const at::Tensor& head, const at::Tensor& labels,
                                 int64_t chunk) {
  TORCH_CHECK_VALUE(chunk >= 1, "chunked_cross_entropy: chunks of ", chunk, " rows; allowed: at least 1");
  const bool trains = at::GradMode::is_enabled();
  return ChunkedCrossEntropy::apply(x, head, labels, chunk, trains && x.requires_grad(),
                                    trains && head.requires_grad(), trains);
}

}  // namespace dtk::models
