// Each operator of real jobs on the CPU, planned and run: both must make the same storages, those that
// outlive the call and those of other operators that the kernel keeps until it ends. A job's peak may fall
// within any of them.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/ConvUtils.h>
#include <dtk/policies/guards.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>

#include "cost/call_scratch.h"
#include "planner/kernels/operator_calls.h"
#include "support/catch.h"
#include "support/runs/run_world.h"
#include "toolkit/families/dit/options.h"

using namespace dtk;
using Catch::Generators::range;
using test::differences;
using test::look_at;
using test::Seen;

namespace {

// Keeps another operator's result until it ends, which its shape kernel does not tell.
at::Tensor careless_kernel(const at::Tensor& x) {
  const at::Tensor negative = at::neg(x);
  return at::neg(negative);
}
at::Tensor careless_shape(const at::Tensor& x) {
  return at::empty_like(x);
}

TORCH_LIBRARY(kernels_test, m) {
  m.def("careless(Tensor x) -> Tensor");
}
TORCH_LIBRARY_IMPL(kernels_test, CPU, m) {
  m.impl("careless", &careless_kernel);
}
TORCH_LIBRARY_IMPL(kernels_test, Meta, m) {
  m.impl("careless", &careless_shape);
}

}  // namespace

TEST_CASE("a kernel that keeps another operator's result until it ends is found") {
  const Seen result = look_at([] {
    c10::Dispatcher::singleton()
        .findSchemaOrThrow("kernels_test::careless", "")
        .typed<at::Tensor(const at::Tensor&)>()
        .call(at::ones({64}));
  });
  CHECK(differences(result) == "kernels_test::careless: planned kept 256; made aten::neg 256 kept 256\n");
}

namespace {

struct Convolution {
  at::DimVector input, weight;
  at::DimVector stride, padding, dilation;
  int64_t groups = 1;
};

// What differs between calls of one shape.
struct ConvolutionCall {
  at::ScalarType type = at::kFloat;
  at::MemoryFormat input = at::MemoryFormat::Contiguous, weight = at::MemoryFormat::Contiguous;
  std::array<bool, 3> wanted = {true, true, true};  // gradients of input, weight and bias
  bool bias = true;
  bool expanded = false;  // the gradient of the result, as a sum's
};

void forward_and_backward(const Convolution& shape, const ConvolutionCall& call) {
  const auto leaf = [&](at::IntArrayRef sizes, at::MemoryFormat format, bool gradient) {
    return at::randn(sizes).to(call.type).contiguous(format).requires_grad_(gradient);
  };
  const at::Tensor x = leaf(shape.input, call.input, call.wanted[0]);
  const at::Tensor weight = leaf(shape.weight, call.weight, call.wanted[1]);
  std::optional<at::Tensor> bias;
  if (call.bias) bias = leaf({shape.weight[0]}, at::MemoryFormat::Contiguous, call.wanted[2]);
  const at::DimVector no_padding(shape.stride.size(), 0);
  const at::Tensor y = at::convolution(x, weight, bias, shape.stride, shape.padding, shape.dilation,
                                       /*transposed=*/false, no_padding, shape.groups);
  const at::Tensor grad = call.expanded ? at::ones({}, y.options()).expand(y.sizes())
                                        : at::randn(y.sizes()).to(call.type).contiguous(call.input);
  torch::autograd::backward({y}, {grad});
}

// Looks at `call` with each set of gradients wanted, with and without bias; `backward`: an operator that must
// then be met where weights have a gradient.
void check_convolution(const Convolution& shape, ConvolutionCall call, const std::string& forward,
                       const std::string& backward) {
  for (int mask = 1; mask < 8; ++mask) {
    for (const bool bias : {true, false}) {
      call.wanted = {(mask & 1) != 0, (mask & 2) != 0, (mask & 4) != 0};
      call.bias = bias;
      if (call.wanted[2] && !bias) continue;
      const Seen result = look_at([&] { forward_and_backward(shape, call); });
      CAPTURE(shape.input, shape.weight, call.type, call.input, call.weight, call.expanded, mask, bias);
      CHECK(differences(result) == "");
      CHECK(result.operators.count(forward) == 1);
      CHECK((mask == 1 || backward.empty() || result.operators.count(backward) == 1));
    }
  }
}

// A processor may lack what oneDNN needs for bf16; LibTorch then has other kernels.
bool onednn_takes(at::ScalarType type) {
  const at::Tensor x = at::zeros({16, 3, 8, 8}, type), weight = at::zeros({20, 3, 2, 2}, type);
  const std::array<c10::SymInt, 2> two = {2, 2}, none = {0, 0}, one = {1, 1};
  return at::native::select_conv_backend(x, weight, std::nullopt, two, none, one, /*transposed=*/false, none,
                                         1, std::nullopt) == at::native::ConvBackend::Mkldnn;
}

const std::array<Convolution, 6> kPlanes = {{
    {{16, 3, 8, 8}, {20, 3, 2, 2}, {2, 2}, {0, 0}, {1, 1}},
    {{2, 16, 9, 7}, {32, 16, 3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {{20, 6, 5, 5}, {9, 6, 1, 1}, {1, 1}, {0, 0}, {1, 1}},
    {{4, 12, 9, 9}, {18, 4, 3, 3}, {1, 2}, {1, 0}, {1, 1}, 3},
    {{4, 16, 6, 6}, {16, 1, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 16},
    {{3, 8, 12, 10}, {24, 8, 3, 2}, {2, 1}, {2, 0}, {2, 3}},
}};

}  // namespace

TEST_CASE("convolutions with oneDNN make the storages and the results that a plan says") {
  const Convolution& shape = kPlanes.at(GENERATE(range(size_t{0}, size_t{6})));
  ConvolutionCall call;
  call.type = GENERATE(at::kFloat, at::kBFloat16);
  if (call.type == at::kBFloat16 && !onednn_takes(call.type)) return;
  call.expanded = GENERATE(false, true);
  SECTION("contiguous") {
    check_convolution(shape, call, "aten::mkldnn_convolution", "aten::convolution_backward");
  }
  SECTION("channels last") {
    call.input = call.weight = at::MemoryFormat::ChannelsLast;
    check_convolution(shape, call, "aten::mkldnn_convolution", "");
  }
  SECTION("one of both channels last") {
    (call.expanded ? call.input : call.weight) = at::MemoryFormat::ChannelsLast;
    check_convolution(shape, call, "aten::mkldnn_convolution", "");
  }
}

TEST_CASE("convolutions with oneDNN in one and in three dimensions") {
  const Convolution line{{4, 6, 31}, {10, 6, 5}, {2}, {2}, {1}};
  const Convolution grouped_line{{4, 6, 31}, {8, 3, 5}, {1}, {0}, {3}, 2};
  for (const Convolution& shape : {line, grouped_line}) {
    for (const bool expanded : {false, true})
      check_convolution(shape, {.expanded = expanded}, "aten::mkldnn_convolution",
                        "aten::convolution_backward");
  }
  const Convolution volume{{2, 4, 6, 7, 5}, {8, 4, 3, 2, 1}, {1, 2, 1}, {1, 0, 0}, {1, 1, 1}};
  check_convolution(volume, {}, "aten::mkldnn_convolution", "aten::convolution_backward");
  check_convolution(volume, {.input = at::MemoryFormat::ChannelsLast3d}, "aten::mkldnn_convolution", "");
}

TEST_CASE("convolutions without oneDNN make the storages and the results that a plan says") {
  const Convolution& shape = kPlanes.at(GENERATE(range(size_t{0}, size_t{5})));
  ConvolutionCall call{.type = at::kDouble};
  call.input = GENERATE(at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast);
  call.expanded = GENERATE(false, true);
  check_convolution(shape, call, "aten::_slow_conv2d_forward", "aten::_slow_conv2d_backward.output_mask");
}

TEST_CASE("relu makes the storages that a plan says, in place too") {
  const Seen result = look_at([] {
    const at::Tensor x = at::randn({8, 4, 6, 6}).contiguous(at::MemoryFormat::ChannelsLast).requires_grad_();
    at::Tensor y = at::relu(x).mul(2);
    at::relu_(y);
    torch::autograd::backward({y}, {at::randn_like(y)});
  });
  CHECK(differences(result) == "");
  CHECK(result.operators.count("aten::threshold_backward") == 1);
}

namespace {

// Backward of rows or columns of x, some of them twice; `in_order`: with a contiguous gradient.
Seen gradient_of_selected(at::IntArrayRef sizes, at::ScalarType type, int64_t dim, bool in_order) {
  return look_at([&] {
    const at::Tensor x = at::randn(sizes).to(type).requires_grad_();
    const at::Tensor y = at::index_select(x, dim, at::arange(5).remainder(2));
    at::Tensor grad = at::randn(y.sizes()).to(type);
    if (!in_order) grad = grad.transpose(0, -1).contiguous().transpose(0, -1);
    torch::autograd::backward({y}, {grad});
  });
}

Seen gradient_of_gathered(int64_t width, at::ScalarType type, bool by_rows) {
  return look_at([&] {
    const at::Tensor x = at::randn({7, width}).to(type).requires_grad_();
    at::Tensor index = at::arange(5).remainder(2).unsqueeze(1).expand({5, width});
    if (!by_rows) index = index.contiguous();
    const at::Tensor y = at::gather(x, 0, index);
    torch::autograd::backward({y}, {at::randn(y.sizes()).to(type)});
  });
}

}  // namespace

TEST_CASE("gradients of what was gathered make the storages and take the scratch that a plan says") {
  const policies::ThreadCountGuard threads(GENERATE(1, 2));
  const at::ScalarType type = GENERATE(at::kBFloat16, at::kHalf, at::kFloat);
  const bool in_order = GENERATE(true, false);
  for (const at::DimVector& sizes :
       {at::DimVector{7, 16}, at::DimVector{7, 15}, at::DimVector{7, 2, 32}, at::DimVector{7}}) {
    for (int64_t dim = 0; dim < static_cast<int64_t>(sizes.size()); ++dim) {
      const Seen result = gradient_of_selected(sizes, type, dim, in_order);
      CAPTURE(at::get_num_threads(), type, in_order, sizes, dim);
      CHECK(differences(result) == "");
      CHECK(result.operators.count("aten::index_add_") == 1);
    }
  }
  for (const int64_t width : {15, 16}) {
    const Seen result = gradient_of_gathered(width, type, in_order);
    CAPTURE(at::get_num_threads(), type, in_order, width);
    CHECK(differences(result) == "");
    CHECK(result.operators.count("aten::scatter_add_") == 1);
  }
}

TEST_CASE("sums over dimensions that lie side by side, or apart, make the storages that a plan says") {
  const at::ScalarType type = GENERATE(at::kBFloat16, at::kHalf, at::kFloat);
  const auto format = GENERATE(at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast);
  for (const at::DimVector& dims :
       {at::DimVector{0, 2, 3}, at::DimVector{0}, at::DimVector{1}, at::DimVector{2, 3}, at::DimVector{0, -1},
        at::DimVector{0, 1, 2, 3}, at::DimVector{}}) {
    for (const int64_t samples : {3, 1}) {
      const Seen result = look_at([&] {
        const at::Tensor x = at::randn({samples, 8, 4, 5}).contiguous(format).to(type);
        (void)x.sum(at::IntArrayRef(dims));
      });
      CAPTURE(type, format, dims, samples);
      CHECK(differences(result) == "");
    }
  }
}

TEST_CASE("what is repeated makes the storages that a plan says") {
  const at::DimVector sizes = GENERATE(at::DimVector{6}, at::DimVector{3, 5}, at::DimVector{});
  for (const at::DimVector& repeats :
       {at::DimVector{4, 2}, at::DimVector{4, 1, 3}, at::DimVector{1, 1}, at::DimVector{0, 2}}) {
    const Seen result = look_at([&] {
      const at::Tensor x = at::randn(sizes).requires_grad_();
      const at::Tensor y = x.repeat(repeats);
      torch::autograd::backward({y}, {at::ones_like(y)});
    });
    CAPTURE(sizes, repeats);
    CHECK(differences(result) == "");
    CHECK(result.operators.count("aten::repeat") == 1);
  }
}

// `plain`: without policies, and in fp32.
static Seen training_run(const std::string& objective, bool plain) {
  test::World world;
  LoadedConfig loaded = test::tiny("runs/kernels");
  RunConfig& config = loaded.config;
  const RunConfig chosen = test::tiny_config(objective);
  const dit::Options of_chosen = dit::options_of(chosen);
  dit::Options& options = dit::options_of(config);
  options.diffusion = of_chosen.diffusion;
  options.sampler = of_chosen.sampler;
  options.grid = of_chosen.grid;
  options.model = of_chosen.model;
  config.sample = chosen.sample;
  config.train.steps = 3;
  config.train.validate_every = 1;
  config.train.sample_every = 2;
  config.data.validation = 8;
  dit::options_of(config).data.flip = true;
  config.policies.precision.cpu = plain ? policies::CpuPrecision::fp32 : policies::CpuPrecision::bf16;
  if (plain) {
    config.policies.attention.enabled = policies::Enabled::off;
    config.policies.checkpoint.enabled = policies::Enabled::off;
  }
  Seen result = look_at([&] { world.run(loaded); });
  CHECK(world.listener.finished_at_step == 3);
  return result;
}

TEST_CASE("each operator of a training run makes the storages that a plan says") {
  const std::string objective = GENERATE("rectified_flow", "epsilon", "v", "x0");
  const bool plain = GENERATE(false, true);
  const Seen result = training_run(objective, plain);
  CAPTURE(objective, plain);
  CHECK(result.operators.size() > 30);
  CHECK(result.operators.count("aten::addmm") == 1);
  CHECK(differences(result) == "");
}

TEST_CASE(
    "operators that a plan takes to need no scratch are met in training, and scratch is seen where there is "
    "some") {
  Seen all;
  for (const char* objective : {"rectified_flow", "epsilon"}) {
    for (const bool plain : {false, true}) {
      const Seen one = training_run(objective, plain);
      all.operators.insert(one.operators.begin(), one.operators.end());
      for (const auto& [name, bytes] : one.scratch) all.scratch[name] = std::max(all.scratch[name], bytes);
    }
  }
  std::string unproven;
  for (const std::string& name : planner::operators_without_scratch()) {
    if (all.operators.count(name) == 0) unproven += name + "\n";
  }
  CHECK(unproven == "");
  CHECK(all.scratch["aten::_scaled_dot_product_flash_attention_for_cpu"] > 0);
}
