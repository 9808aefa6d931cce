// Layers whose first values are drawn as a model registers them, in order, on its device.
#pragma once
#include <ATen/ATen.h>
#include <dtk/models/layers.h>

#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <utility>

namespace dtk::models {

inline constexpr double kDrawnDeviation = 0.02;

class DrawnLayers {
 protected:
  using Fill = std::function<void(at::Tensor&)>;

  explicit DrawnLayers(std::optional<at::Generator> generator) : generator_(std::move(generator)) {}
  ~DrawnLayers() = default;

  const std::optional<at::Generator>& generator() const { return generator_; }
  /// Registers what it makes, filled.
  virtual at::Tensor add(const std::string& name, const Fill& fill, at::IntArrayRef shape) = 0;

  at::Tensor normal(const std::string& name, at::IntArrayRef shape, double deviation = kDrawnDeviation) {
    return add(
        name, [&](at::Tensor& value) { value.normal_(0.0, deviation, generator_); }, shape);
  }
  at::Tensor constant(const std::string& name, at::IntArrayRef shape, double number) {
    return add(
        name, [&](at::Tensor& value) { value.fill_(number); }, shape);
  }
  /// In ±1/√fan_in, as torch.nn.Linear and Conv2d have it.
  at::Tensor uniform(const std::string& name, at::IntArrayRef shape, int64_t fan_in) {
    const double bound = 1 / std::sqrt(static_cast<double>(fan_in));
    return add(
        name, [&](at::Tensor& value) { value.uniform_(-bound, bound, generator_); }, shape);
  }

  Linear norm(const std::string& name, int64_t width) {
    at::Tensor weight = constant(name + ".weight", {width}, 1.0);
    return {weight, constant(name + ".bias", {width}, 0.0)};
  }
  Linear linear(const std::string& name, int64_t in, int64_t out) {
    at::Tensor weight = normal(name + ".weight", {out, in});
    return {weight, constant(name + ".bias", {out}, 0.0)};
  }
  Linear uniform_linear(const std::string& name, int64_t in, int64_t out) {
    at::Tensor weight = uniform(name + ".weight", {out, in}, in);
    return {weight, uniform(name + ".bias", {out}, in)};
  }

 private:
  std::optional<at::Generator> generator_;
};

}  // namespace dtk::models
