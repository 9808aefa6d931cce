// What is done whenever autograd has added to a parameter's gradient. LibTorch keeps one such hook a
// parameter; these share it.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

namespace dtk::policies {

/// Calls `call` with the parameter after each time that backward has added to its gradient, on the thread
/// that does so, after what was there before: a hook of the program's own, or another call. What it throws
/// ends the backward pass. For as long as `alive` does; null: as the parameter.
void when_accumulated(const at::Tensor& parameter, std::function<void(const at::Tensor& parameter)> call,
                      const std::shared_ptr<const void>& alive = nullptr);

}  // namespace dtk::policies
