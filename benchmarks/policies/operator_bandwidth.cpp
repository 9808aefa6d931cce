// What part of a copy's bandwidth the fused operators reach, on the CPU or a CUDA device, and how long the
// composed forms take beside them: copy, fused and composed in turns.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dtk/models/ops.h>
#include <malloc.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/version.h>

#include <algorithm>
#include <cstdio>
#include <cxxopts.hpp>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "ops/operators.h"
#include "support/bench_setup.h"
#include "toolkit/core/clock.h"
#include "toolkit/device/device.h"

namespace {

using namespace dtk;
using at::Tensor;
using Tensors = std::vector<Tensor>;

constexpr double kEps = 1e-6;

struct Sizes {
  int64_t samples, tokens, width;  // N, T, D
  c10::Device device;
  Tensor randn(at::IntArrayRef sizes) const { return at::randn(sizes, at::TensorOptions(device)); }
};

struct Case {
  const char* name;
  Tensors inputs;
  std::function<Tensor(const Tensors&)> fused, composed;
  std::function<void(const Tensor& dy)> backward;  // of the fused form, its kernels alone
  int64_t forward_bytes = 0, backward_bytes = 0;   // of tensors as large as the tokens
};

int64_t bytes(const Tensor& tensor) {
  return static_cast<int64_t>(tensor.nbytes());
}

Case norm_modulate(const Sizes& s, at::ScalarType half) {
  const Tensor x = s.randn({s.samples, s.tokens, s.width});
  const Tensor shift = s.randn({s.samples, s.width}).to(half), scale = s.randn({s.samples, s.width}).to(half);
  const auto [y, mean, rstd] = ops::norm_modulate_forward(x, shift, scale, kEps, half);
  Case one{"norm_modulate", {x, shift, scale}, {}, {}, {}};
  one.fused = [half](const Tensors& in) { return ops::norm_modulate(in[0], in[1], in[2], kEps, half); };
  one.composed = [half](const Tensors& in) {
    const Tensor h = at::layer_norm(in[0], {in[0].size(-1)}, {}, {}, kEps) * (1 + in[2].unsqueeze(1));
    return (h + in[1].unsqueeze(1)).to(half);
  };
  one.backward = [x = x, scale = scale, mean = mean, rstd = rstd](const Tensor& dy) {
    ops::norm_modulate_backward(dy, x, mean, rstd, scale);
  };
  one.forward_bytes = bytes(x) + bytes(y);
  one.backward_bytes = bytes(y) + 2 * bytes(x);
  return one;
}

Case gated_add(const Sizes& s, at::ScalarType half) {
  const Tensor x = s.randn({s.samples, s.tokens, s.width}), branch = at::randn_like(x).to(half);
  const Tensor gate = s.randn({s.samples, s.width}).to(half);
  Case one{"gated_add", {x, gate, branch}, {}, {}, {}};
  one.fused = [](const Tensors& in) { return ops::gated_add(in[0], in[1], in[2]); };
  one.composed = [](const Tensors& in) { return in[0] + in[1].unsqueeze(1) * in[2]; };
  one.backward = [gate, branch](const Tensor& dy) { ops::gated_add_backward(dy, gate, branch); };
  one.forward_bytes = 2 * bytes(x) + bytes(branch);
  one.backward_bytes = bytes(x) + 2 * bytes(branch);
  return one;
}

Case bias_gelu(const Sizes& s, at::ScalarType half) {
  const Tensor x = s.randn({s.samples, s.tokens, 4 * s.width}).to(half),
               bias = s.randn({4 * s.width}).to(half);
  Case one{"bias_gelu", {x, bias}, {}, {}, {}};
  one.fused = [](const Tensors& in) { return ops::bias_gelu(in[0], in[1]); };
  one.composed = [](const Tensors& in) { return at::gelu(in[0] + in[1], "tanh"); };
  one.backward = [x, bias](const Tensor& dy) { ops::bias_gelu_backward(dy, x, bias); };
  one.forward_bytes = 2 * bytes(x);
  one.backward_bytes = 3 * bytes(x);
  return one;
}

Case rms_norm(const Sizes& s, at::ScalarType half) {
  const Tensor x = s.randn({s.samples, s.tokens, s.width}), weight = s.randn({s.width});
  const auto [y, rstd] = ops::rms_norm_forward(x, weight, kEps, half);
  Case one{"rms_norm", {x, weight}, {}, {}, {}};
  one.fused = [half](const Tensors& in) { return ops::rms_norm(in[0], in[1], kEps, half); };
  one.composed = [half](const Tensors& in) {
    const Tensor factor = (in[0].pow(2).mean(-1, /*keepdim=*/true) + kEps).rsqrt();
    return (in[0] * factor * in[1]).to(half);
  };
  one.backward = [x = x, weight = weight, rstd = rstd](const Tensor& dy) {
    ops::rms_norm_backward(dy, x, rstd, weight, /*of_weight=*/true);
  };
  one.forward_bytes = bytes(x) + bytes(y);
  one.backward_bytes = bytes(y) + 2 * bytes(x);
  return one;
}

Case silu_mul(const Sizes& s, at::ScalarType half) {
  const Tensor gate = s.randn({s.samples, s.tokens, 2 * s.width}).to(half), up = at::randn_like(gate);
  Case one{"silu_mul", {gate, up}, {}, {}, {}};
  one.fused = [](const Tensors& in) { return ops::silu_mul(in[0], in[1]); };
  one.composed = [](const Tensors& in) { return at::silu(in[0]) * in[1]; };
  one.backward = [gate, up](const Tensor& dy) { ops::silu_mul_backward(dy, gate, up); };
  one.forward_bytes = 3 * bytes(gate);
  one.backward_bytes = 5 * bytes(gate);
  return one;
}

// Heads of 64 channels, where there are so many.
Case rotate(const Sizes& s, at::ScalarType half) {
  const int64_t head = std::min<int64_t>(64, s.width);
  const Tensor x = s.randn({s.samples, s.tokens, s.width / head, head}).to(half);
  const Tensor cosine = s.randn({s.tokens, head}).to(half), sine = at::randn_like(cosine);
  Case one{"rotate", {x}, {}, {}, {}};
  one.fused = [=](const Tensors& in) { return ops::rotate(in[0], cosine, sine, 1); };
  one.composed = [=](const Tensors& in) {
    const auto halves = in[0].chunk(2, -1);
    const Tensor across = at::cat({-halves[1], halves[0]}, -1);
    return in[0] * cosine.unsqueeze(1) + across * sine.unsqueeze(1);
  };
  one.backward = [=](const Tensor& dy) { ops::rotate_backward(dy, cosine, sine, 1); };
  one.forward_bytes = one.backward_bytes = 2 * bytes(x);
  return one;
}

struct Times {
  std::vector<double> ms;
  double middle() const { return bench::median(ms); }
};

// Calls that are timed as one: a device works behind the thread that calls it.
struct Repeated {
  c10::Device device;
  int64_t calls;

  void wait() const {
    if (!device.is_cpu()) c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
  }
  template <class Fn>
  void timed(Times& times, const Fn& fn) const {
    wait();
    SteadyClock clock;
    const double begin = clock.seconds();
    for (int64_t call = 0; call < calls; ++call) fn();
    wait();
    times.ms.push_back(1000 * (clock.seconds() - begin) / static_cast<double>(calls));
  }
};

// Forward and backward through autograd.
void both(const std::function<Tensor(const Tensors&)>& fn, const Tensors& leaves, const Tensor& dy) {
  torch::autograd::grad({fn(leaves)}, leaves, {dy});
}

void measure(const Case& one, at::ScalarType half, const Repeated& repeated, int64_t rounds) {
  Tensors leaves;
  for (const Tensor& input : one.inputs) leaves.push_back(input.detach().requires_grad_(true));
  const Tensor dy = at::randn_like(one.fused(one.inputs));
  const Tensor from = at::ones({one.forward_bytes / 8}, at::TensorOptions(repeated.device)),
               into = at::empty_like(from);
  Times copy, forward, backward, composed, fused_both, composed_both;
  for (int64_t round = -1; round < rounds; ++round) {
    if (round == 0) {
      for (Times* times : {&copy, &forward, &backward, &composed, &fused_both, &composed_both})
        times->ms.clear();
    }
    {
      const at::NoGradGuard without;
      repeated.timed(copy, [&] { into.copy_(from); });
      repeated.timed(forward, [&] { one.fused(one.inputs); });
      repeated.timed(composed, [&] { one.composed(one.inputs); });
      repeated.timed(backward, [&] { one.backward(dy); });
    }
    repeated.timed(fused_both, [&] { both(one.fused, leaves, dy); });
    repeated.timed(composed_both, [&] { both(one.composed, leaves, dy); });
  }
  const auto rate = [](int64_t moved, const Times& times) {
    return static_cast<double>(moved) / 1e6 / times.middle();
  };
  const double copied = rate(bytes(from) + bytes(into), copy);
  const double there = rate(one.forward_bytes, forward), back = rate(one.backward_bytes, backward);
  const int digits = repeated.device.is_cpu() ? 2 : 4;
  std::printf("| %s | %s | %.1f | %.1f, %.0f %% | %.1f, %.0f %% | %.*f, %.*f, %.1f | %.*f, %.*f, %.1f |\n",
              one.name, c10::toString(half), copied, there, 100 * there / copied, back, 100 * back / copied,
              digits, forward.middle(), digits, composed.middle(), composed.middle() / forward.middle(),
              digits, fused_both.middle(), digits, composed_both.middle(),
              composed_both.middle() / fused_both.middle());
  std::fflush(stdout);
}

std::string where(c10::Device device) {
  if (!device.is_cpu()) return device_name(device) + ", LibTorch " TORCH_VERSION;
  return at::get_cpu_capability() + ", " + std::to_string(at::get_num_threads()) + " threads";
}

void run(const Sizes& sizes, const Repeated& repeated, int64_t rounds) {
  std::printf("N %lld, T %lld, D %lld; %s; medians of %lld rounds, %lld at once\n\n",
              static_cast<long long>(sizes.samples), static_cast<long long>(sizes.tokens),
              static_cast<long long>(sizes.width), where(sizes.device).c_str(),
              static_cast<long long>(rounds), static_cast<long long>(repeated.calls));
  std::printf(
      "| operator | beside fp32 | copy GB/s | forward GB/s, of the copy's | backward | forward ms: fused, "
      "composed, "
      "ratio | forward and backward ms |\n|---|---|---:|---:|---:|---:|---:|\n");
  for (const at::ScalarType half : {at::kFloat, at::kBFloat16}) {
    for (const auto& make : {&norm_modulate, &gated_add, &bias_gelu, &rms_norm, &silu_mul, &rotate})
      measure(make(sizes, half), half, repeated, rounds);
  }
}

// Beside the program, or in the build folder that its folder is in.
std::string kernels_beside() {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path folder = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  const std::string name = "libdtk_cuda_kernels.so";
  return (fs::exists(folder / name, ignored) ? folder : folder.parent_path()) / name;
}

void open_kernels(const std::string& path) {
  const std::string problem = ops::open_cuda_kernels(path);
  if (problem.empty()) return;
  throw std::runtime_error(
      "the fused operators have no kernels for CUDA: " + problem +
      "; build with nvcc 12.8 or later in the path, or name the library: --kernels PATH");
}

}  // namespace

int main(int argc, char** argv) {
  // Results lie where earlier ones lay, as in training; pages fresh from the system would be measured else.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  cxxopts::Options options("operator-bandwidth",
                           "Fused operators beside a copy and beside LibTorch's operators");
  options.add_options()("samples", "N", cxxopts::value<int64_t>()->default_value("16"))(
      "tokens", "T", cxxopts::value<int64_t>()->default_value("256"))(
      "width", "D", cxxopts::value<int64_t>()->default_value("768"))(
      "rounds", "of each, in turns", cxxopts::value<int64_t>()->default_value("21"))(
      "device", "cpu, cuda, cuda:i or auto", cxxopts::value<std::string>()->default_value("cpu"))(
      "calls", "timed at once; 1 on the CPU and 20 on CUDA where none are given", cxxopts::value<int64_t>())(
      "kernels", "libdtk_cuda_kernels.so; the build's own where none is given",
      cxxopts::value<std::string>());
  return bench::main_of("operator-bandwidth", options, argc, argv, [](const cxxopts::ParseResult& parsed) {
    const auto number = [&](const char* name) { return parsed[name].as<int64_t>(); };
    const c10::Device device = open_device(parsed["device"].as<std::string>());
    if (device.is_cuda())
      open_kernels(parsed.count("kernels") > 0 ? parsed["kernels"].as<std::string>() : kernels_beside());
    const int64_t calls = parsed.count("calls") > 0 ? number("calls") : device.is_cpu() ? 1 : 20;
    if (calls < 1)
      throw std::invalid_argument("--calls " + std::to_string(calls) + ": allowed are 1 and more");
    run({number("samples"), number("tokens"), number("width"), device}, {device, calls}, number("rounds"));
  });
}
