// The dense heads (DPT, Ranftl et al., 2021), with the original's quirk: its rectifier writes into its input,
// so that a unit adds relu(x), not x.
#include <ATen/ATen.h>
#include <dtk/models/vggt.h>

#include <cmath>
#include <utility>

#include "vggt/parts.h"

namespace dtk::models {
namespace {

constexpr double kPositionShare = 0.1;

at::Tensor conv(const at::Tensor& x, const Linear& kernel, int64_t padding = 0, int64_t stride = 1) {
  return at::conv2d(x, kernel.weight, kernel.bias, {stride, stride}, {padding, padding});
}

at::Tensor refined(const VggtConvUnit& unit, at::Tensor x) {
  x = at::relu(x);
  at::Tensor y = conv(x, unit.conv1, 1);
  y = at::relu(y);
  y = conv(y, unit.conv2, 1);
  return y + x;
}

// A transposed convolution whose steps are as long as its kernel's side k: each place becomes a square of its
// own, so that it is one product. x (N, D, h, w), weight (D, D, k, k) -> (N, D, h·k, w·k).
at::Tensor enlarged(const at::Tensor& x, const Linear& kernel) {
  const int64_t rows = x.size(2), columns = x.size(3), side = kernel.weight.size(2);
  at::Tensor y = x.flatten(2).transpose(1, 2);
  y = at::matmul(y, kernel.weight.flatten(1));  // (N, h·w, D·k·k)
  y = y.unflatten(2, {-1, side, side}).unflatten(1, {rows, columns}).permute({0, 3, 1, 4, 2, 5});
  y = y.flatten(4, 5).flatten(2, 3);
  return y + kernel.bias.view({-1, 1, 1});
}

at::Tensor resized(const at::Tensor& x, int64_t height, int64_t width) {
  return at::upsample_bilinear2d(x, {height, width}, /*align_corners=*/true);
}

// Sines and cosines of `count` places from -end to end, each by D/2 frequencies 100^(-2i/D): (count, D).
at::Tensor waves(int64_t count, double end, int64_t channels, at::TensorOptions options) {
  const at::TensorOptions exact = options.dtype(at::kDouble);
  // As the original has them: places in fp32, the rest in double precision.
  const at::Tensor places = at::linspace(-end, end, count, options.dtype(at::kFloat)).to(at::kDouble);
  at::Tensor frequencies = at::arange(channels / 2, exact);
  frequencies = at::pow(100.0, frequencies / (-static_cast<double>(channels) / 2));
  const at::Tensor angles = at::outer(places, frequencies);
  return at::cat({angles.sin(), angles.cos()}, 1).to(options.dtype());
}

// x (N, D, h, w) with a tenth of sines and cosines of its places in a picture of width : height = aspect,
// whose half diagonal is 1; the first half of the channels tells the column.
at::Tensor with_places(const at::Tensor& x, double aspect) {
  const int64_t channels = x.size(1), height = x.size(2), width = x.size(3);
  const double diagonal = std::sqrt(aspect * aspect + 1);
  const auto end = [](double side, int64_t count) {
    return side * static_cast<double>(count - 1) / static_cast<double>(count);
  };
  const at::TensorOptions options = x.options().requires_grad(false);
  const at::Tensor columns = waves(width, end(aspect / diagonal, width), channels / 2, options),
                   rows = waves(height, end(1 / diagonal, height), channels / 2, options);
  at::Tensor places = at::empty({channels, height, width}, options);
  places.slice(0, 0, channels / 2).copy_(columns.t().unsqueeze(1));
  places.slice(0, channels / 2).copy_(rows.t().unsqueeze(2));
  return at::add(x, places, kPositionShare);
}

}  // namespace

// (N, P, 2C) -> (N, P, width of the tap): rows on their own.
at::Tensor Vggt::projected(const VggtDenseHead& head, size_t tap, at::Tensor x) const {
  x = x.to(head.norm.weight.scalar_type());
  x = at::layer_norm(x, {x.size(-1)}, head.norm.weight, head.norm.bias, kVggtEps);
  const Linear& kernel = head.projects.at(tap);
  return at::linear(x, kernel.weight.flatten(1), kernel.bias);
}

at::Tensor Vggt::fused(const VggtDenseHead& head, std::array<at::Tensor, 4> taps,
                       const VggtSize& size) const {
  const double aspect = static_cast<double>(size.width) / static_cast<double>(size.height);
  for (size_t i = 0; i < taps.size(); ++i) {
    at::Tensor x = std::move(taps.at(i));
    x = x.transpose(1, 2).unflatten(2, {size.rows, size.columns});
    x = with_places(x, aspect);
    const Linear& kernel = head.resizes.at(i);
    if (i < 2) {
      x = enlarged(x, kernel);
    } else if (i == 3) {
      x = conv(x, kernel, 1, 2);
    }
    taps.at(i) = at::conv2d(x, head.to_features.at(i), {}, {1, 1}, {1, 1});
  }
  at::Tensor x;
  for (size_t i = taps.size(); i-- > 0;) {
    const VggtFusion& fusion = head.fusions.at(i);
    if (fusion.of_tap) {
      at::Tensor of_tap = refined(*fusion.of_tap, std::move(taps.at(i)));
      x = x + of_tap;
    } else {
      x = std::move(taps.at(i));
    }
    x = refined(fusion.of_sum, std::move(x));
    x = i == 0 ? resized(x, 2 * x.size(2), 2 * x.size(3))
               : resized(x, taps.at(i - 1).size(2), taps.at(i - 1).size(3));
    x = conv(x, fusion.out);
  }
  x = conv(x, head.out1, 1);
  x = resized(x, size.height, size.width);
  x = with_places(x, aspect);
  x = conv(x, head.out2, 1);
  x = at::relu(x);
  return conv(x, head.out3);
}

// Values and confidence of a few frames, of taps (n, P, width) or (n, R + P, 2C).
Tensors Vggt::of_frames(const VggtDenseHead& head, Tensors&& taps, bool are_projected,
                        const VggtSize& size) const {
  std::array<at::Tensor, 4> some;
  for (size_t i = 0; i < some.size(); ++i) {
    at::Tensor x = std::move(taps[i]);
    if (!are_projected) x = projected(head, i, x.slice(1, options_.special_tokens()));
    some.at(i) = std::move(x);
  }
  at::Tensor x = fused(head, std::move(some), size);  // (n, K, H, W)
  at::Tensor confidence = x.select(1, -1).exp();
  confidence = confidence + 1;
  x = x.slice(1, 0, -1);
  if (x.size(1) == 1) return pack(x.squeeze(1).exp(), std::move(confidence));
  x = x.movedim(1, -1);
  at::Tensor length = x.abs().expm1();
  x = x.sign() * length;
  return pack(std::move(x), std::move(confidence));
}

Tensors Vggt::dense(size_t head, VggtTaps& taps, const VggtSize& size, const Give& give) const {
  const VggtDenseHead* const one = &dense_.at(head);
  const bool are_projected = taps.entries.empty(),
             are_all = std::ssize(taps.entries) == *options_.depth && *options_.depth > 4;
  Tensors inputs;
  for (size_t i = 0; i < options_.taps->size(); ++i) {
    if (are_projected) {
      inputs.push_back(std::move(taps.rows.at(head).at(i)));
    } else {
      inputs.push_back(taps.entries.at(are_all ? static_cast<size_t>((*options_.taps)[i]) : i));
    }
  }
  if (!are_all && head + 1 == dense_.size()) taps.entries.clear();
  const auto fn = [this, one, size, give, are_projected](Tensors&& in) {
    int64_t first = 0;
    const auto some = [&](Tensors&& rows) {
      const int64_t count = rows.front().size(0);
      Tensors found = of_frames(*one, std::move(rows), are_projected, size);
      if (!give) return found;
      Tensors none = pack(at::empty({count, 0}, found[0].options()));
      give(first, std::move(found[0]), std::move(found[1]));
      first += count;
      return none;
    };
    // The rows of a product of the coarsest features, which are half as many a side as patches.
    const RowsOf frames{.dim = 0, .each = ((size.rows + 1) / 2) * ((size.columns + 1) / 2)};
    return seam.rows(one->name, some, std::move(in), frames);
  };
  return seam.run(one->name, fn, std::move(inputs));
}

}  // namespace dtk::models
