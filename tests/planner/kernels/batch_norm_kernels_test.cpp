// Each call of batch normalisation on the CPU, planned and run: storages, results and scratch to the byte.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/instance_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <dtk/policies/guards.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include <array>
#include <vector>

#include "planner/kernels/operator_calls.h"
#include "support/catch.h"

using namespace dtk;
using Catch::Generators::range;

namespace {

const std::set<std::string> kOperators = {"aten::native_batch_norm", "aten::native_batch_norm_backward"};

struct Shape {
  std::vector<int64_t> sizes;
  bool strided = false;  // by twice the last size
  at::MemoryFormat format = at::MemoryFormat::Contiguous;
};

// Lines and planes of one element, images, volumes.
const std::array<Shape, 7> kShapes = {{
    {{6, 5}},
    {{4, 3, 9}},
    {{4, 6, 5, 3}},
    {{4, 6, 5, 3}, false, at::MemoryFormat::ChannelsLast},
    {{2, 4, 3, 5, 2}, false, at::MemoryFormat::ChannelsLast3d},
    {{4, 6, 5, 3}, true},
    {{4, 8, 1, 1}},
}};

struct Call {
  bool train = true, affine = true, running = true, expanded = false;
  at::ScalarType input = at::kFloat;
  std::array<bool, 2> wanted = {true, true};  // gradients of input, and of weight and bias
};

at::Tensor input_of(const Shape& shape, const Call& call) {
  std::vector<int64_t> sizes = shape.sizes;
  if (shape.strided) sizes.back() *= 2;
  at::Tensor x = at::randn(sizes).to(call.input).contiguous(shape.format);
  if (shape.strided) x = x.slice(/*dim=*/-1, 0, sizes.back(), /*step=*/2);
  return x.detach().requires_grad_(call.wanted[0]);
}

void forward_and_backward(const Shape& shape, const Call& call) {
  const at::Tensor x = input_of(shape, call);
  const int64_t channels = shape.sizes[1];
  at::Tensor weight, bias, mean, var;
  if (call.affine) {
    weight = at::ones({channels}).requires_grad_(call.wanted[1]);
    bias = at::zeros({channels}).requires_grad_(call.wanted[1]);
  }
  if (call.running) {
    mean = at::zeros({channels});
    var = at::ones({channels});
  }
  const at::Tensor y = at::batch_norm(x, weight, bias, mean, var, call.train, 0.1, 1e-5, true);
  if (!y.requires_grad()) return;
  const at::Tensor grad = call.expanded ? at::ones({}, y.options()).expand(y.sizes())
                                        : at::randn(y.sizes()).to(y.scalar_type()).contiguous(shape.format);
  torch::autograd::backward({y}, {grad});
}

void check(const Shape& shape, const Call& call) {
  const test::Seen seen = test::look_at([&] { forward_and_backward(shape, call); });
  CAPTURE(shape.sizes, shape.format, shape.strided, call.train, call.affine, call.running, call.expanded,
          call.input, call.wanted);
  CHECK(test::differences(seen) == "");
  for (const std::string& name : kOperators) CHECK(seen.operators.count(name) == 1);
}

}  // namespace

TEST_CASE("batch normalisation makes the storages, results and scratch that a plan says") {
  const Shape& shape = kShapes.at(GENERATE(range(size_t{0}, kShapes.size())));
  Call call;
  call.train = GENERATE(true, false);
  call.affine = GENERATE(true, false);
  call.expanded = GENERATE(true, false);
  check(shape, call);
  call.wanted = {true, false};
  check(shape, call);
  if (call.train) {
    call.running = false;
    check(shape, call);
  }
  if (!call.affine) return;
  call.running = true;
  call.wanted = {false, true};
  check(shape, call);
}

TEST_CASE("batch normalisation of bf16 with fp32 parameters, and without any") {
  for (const Shape& shape : kShapes) {
    for (const bool train : {true, false}) {
      check(shape, {.train = train, .input = at::kBFloat16});
      check(shape, {.train = train, .affine = false, .input = at::kBFloat16});
      if (train) check(shape, {.affine = false, .running = false, .input = at::kBFloat16});
    }
  }
}

TEST_CASE("the scratch of batch normalisation goes by threads") {
  const policies::ThreadCountGuard two(2);
  check({{2, 5}}, {});  // no more rows than threads
  for (const Shape& shape : kShapes) {
    for (const bool train : {true, false}) {
      check(shape, {.train = train});
      check(shape, {.train = train, .input = at::kBFloat16});
    }
  }
}

TEST_CASE("instance normalisation makes the storages that a plan says") {
  const Shape& shape = kShapes.at(GENERATE(range(size_t{1}, size_t{6})));
  const bool affine = GENERATE(true, false), running = GENERATE(true, false);
  const test::Seen seen = test::look_at([&] {
    const at::Tensor x = input_of(shape, {});
    const int64_t channels = shape.sizes[1];
    at::Tensor weight, bias, mean, var;
    if (affine) {
      weight = at::ones({channels}).requires_grad_();
      bias = at::zeros({channels}).requires_grad_();
    }
    if (running) {
      mean = at::zeros({channels});
      var = at::ones({channels});
    }
    const at::Tensor y = at::instance_norm(x, weight, bias, mean, var, true, 0.1, 1e-5, true);
    torch::autograd::backward({y.sum()}, {});
  });
  CAPTURE(shape.sizes, shape.format, shape.strided, affine, running);
  CHECK(test::differences(seen) == "");
}
