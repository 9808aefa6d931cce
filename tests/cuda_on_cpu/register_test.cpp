// The plug-in's functions of tensors through the dispatcher, on CPU tensors, against LibTorch's autograd in
// fp64.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/library.h>

#include "support/catch.h"
#include "support/error_text.h"
// All that it includes stands above: only its registration becomes one for the CPU.
#define CUDA CPU
#include "models/ops/cuda/register.cpp"
#undef CUDA

TORCH_LIBRARY(dtk, library) {
  library.def(
      "norm_modulate(Tensor x, Tensor shift, Tensor scale, float eps, ScalarType type) -> (Tensor, "
      "Tensor, Tensor)");
  library.def(
      "norm_modulate_backward(Tensor dy, Tensor x, Tensor mean, Tensor rstd, Tensor scale, Tensor(a!) "
      "partial) -> (Tensor, Tensor, Tensor)");
  library.def("gated_add(Tensor x, Tensor gate, Tensor branch) -> Tensor");
  library.def(
      "gated_add_backward(Tensor dy, Tensor gate, Tensor branch, Tensor(a!) partial) -> (Tensor, Tensor)");
  library.def("bias_gelu(Tensor x, Tensor bias) -> Tensor");
  library.def("bias_gelu_backward(Tensor dy, Tensor x, Tensor bias, Tensor(a!) partial) -> (Tensor, Tensor)");
  library.def("bias_gelu_backward_(Tensor(a!) dy, Tensor x, Tensor bias, Tensor(b!) partial) -> Tensor");
  library.def("rms_norm(Tensor x, Tensor weight, float eps, ScalarType type) -> (Tensor, Tensor)");
  library.def(
      "rms_norm_backward(Tensor dy, Tensor x, Tensor rstd, Tensor weight, Tensor(a!) partial) -> (Tensor, "
      "Tensor)");
  library.def("silu_mul(Tensor gate, Tensor up) -> Tensor");
  library.def("silu_mul_backward(Tensor dy, Tensor gate, Tensor up) -> (Tensor, Tensor)");
  library.def("rotate(Tensor x, Tensor cosine, Tensor sine, int parts) -> Tensor");
  library.def("rotate_backward(Tensor dy, Tensor cosine, Tensor sine, int parts) -> Tensor");
}

namespace {

const bool registered = (dtk_cuda_kernels_register(), true);

using at::Tensor;
using Pair = std::tuple<Tensor, Tensor>;
using Triple = std::tuple<Tensor, Tensor, Tensor>;
using dtk::models::cuda::chunks;

template <class Signature, class... Arguments>
auto call(const char* name, Arguments&&... arguments) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>().call(
      std::forward<Arguments>(arguments)...);
}

// As dit.cpp has them: chunks of one wider table.
std::vector<Tensor> conditions(int64_t N, int64_t D, at::ScalarType type) {
  return (at::randn({N, 6 * D}) / 2).to(type).chunk(6, 1);
}

Tensor partial_of(at::IntArrayRef sizes) {
  return at::full(sizes, NAN);
}

Tensor leaf(const Tensor& tensor) {
  return tensor.to(at::kDouble).clone().requires_grad_();
}

// Half an ulp of the result's type, and what fp32's arithmetic takes of the largest value there is.
void check(const Tensor& got, const Tensor& want, const char* name) {
  const double relative = got.scalar_type() == at::kFloat  ? 1e-6
                          : got.scalar_type() == at::kHalf ? 1.0 / 2048
                                                           : 1.0 / 256;
  const Tensor allowed = relative * want.abs() + 2e-6 * want.abs().max();
  const Tensor error = (got.to(at::kDouble) - want).abs();
  CAPTURE(name, got.scalar_type(), got.sizes());
  CHECK(got.sizes() == want.sizes());
  CHECK((error <= allowed).all().item<bool>());
}

struct Types {
  at::ScalarType x, other, condition;
};
const Types kTypes[] = {{at::kFloat, at::kFloat, at::kFloat},
                        {at::kFloat, at::kBFloat16, at::kBFloat16},
                        {at::kFloat, at::kHalf, at::kFloat},
                        {at::kBFloat16, at::kBFloat16, at::kBFloat16}};

}  // namespace

TEST_CASE("norm_modulate as autograd has it") {
  at::manual_seed(1);
  for (const auto& [type, y_type, condition] : kTypes)
    for (const auto& [N, T, D] : {std::tuple(2, 70, 384), std::tuple(3, 5, 257)}) {
      const Tensor x = (at::randn({N, T, D}) * 2 + 0.5).to(type), dy = at::randn({N, T, D}).to(y_type);
      const auto parts = conditions(N, D, condition);
      const Tensor &shift = parts[3], &scale = parts[4];
      const auto [y, mean, rstd] =
          call<Triple(const Tensor&, const Tensor&, const Tensor&, double, at::ScalarType)>(
              "dtk::norm_modulate", x, shift, scale, 1e-6, y_type);
      Tensor partial = partial_of({N, chunks(T), 2, D});
      const auto [dx, dshift, dscale] =
          call<Triple(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                      const Tensor&)>("dtk::norm_modulate_backward", dy, x, mean, rstd, scale, partial);
      const Tensor x64 = leaf(x), shift64 = leaf(shift), scale64 = leaf(scale);
      const Tensor y64 =
          at::layer_norm(x64, {D}, {}, {}, 1e-6) * (1 + scale64.unsqueeze(1)) + shift64.unsqueeze(1);
      const auto want = torch::autograd::grad({y64}, {x64, shift64, scale64}, {dy.to(at::kDouble)});
      CHECK(y.scalar_type() == y_type);
      CHECK(dx.scalar_type() == type);
      CHECK(dscale.scalar_type() == condition);
      check(y, y64.detach(), "y");
      check(mean, x64.detach().mean(2), "mean");
      check(rstd, (x64.detach().var(2, false) + 1e-6).rsqrt(), "rstd");
      check(dx, want[0], "dx");
      check(dshift, want[1], "dshift");
      check(dscale, want[2], "dscale");
    }
}

TEST_CASE("gated_add as autograd has it") {
  at::manual_seed(2);
  for (const auto& [type, branch_type, condition] : kTypes)
    for (const auto& [N, T, D] : {std::tuple(2, 70, 384), std::tuple(3, 5, 257)}) {
      const Tensor x = at::randn({N, T, D}).to(type), dy = at::randn({N, T, D}).to(type);
      const Tensor gate = conditions(N, D, condition)[5], branch = at::randn({N, T, D}).to(branch_type);
      const Tensor y =
          call<Tensor(const Tensor&, const Tensor&, const Tensor&)>("dtk::gated_add", x, gate, branch);
      Tensor partial = partial_of({N, chunks(T), 1, D});
      const auto [dgate, dbranch] = call<Pair(const Tensor&, const Tensor&, const Tensor&, const Tensor&)>(
          "dtk::gated_add_backward", dy, gate, branch, partial);
      const Tensor gate64 = leaf(gate), branch64 = leaf(branch);
      const Tensor y64 = x.to(at::kDouble) + gate64.unsqueeze(1) * branch64;
      const auto want = torch::autograd::grad({y64}, {gate64, branch64}, {dy.to(at::kDouble)});
      CHECK(y.scalar_type() == type);
      CHECK(dgate.scalar_type() == condition);
      CHECK(dbranch.scalar_type() == branch_type);
      check(y, y64.detach(), "y");
      check(dgate, want[0], "dgate");
      check(dbranch, want[1], "dbranch");
    }
}

TEST_CASE("bias_gelu as autograd has it") {
  at::manual_seed(3);
  for (const auto& [type, bias_type] :
       {std::pair(at::kFloat, at::kFloat), std::pair(at::kBFloat16, at::kFloat),
        std::pair(at::kHalf, at::kHalf)})
    for (const auto& [R, D] : {std::pair(70, 384), std::pair(5, 257)}) {
      const Tensor x = (at::randn({R, D}) * 2).to(type), dy = at::randn({R, D}).to(type);
      const Tensor bias = at::randn({D}).to(bias_type);
      const Tensor y = call<Tensor(const Tensor&, const Tensor&)>("dtk::bias_gelu", x, bias);
      Tensor partial = partial_of({chunks(R), D});
      const auto [dx, dbias] = call<Pair(const Tensor&, const Tensor&, const Tensor&, const Tensor&)>(
          "dtk::bias_gelu_backward", dy, x, bias, partial);
      const Tensor in_place = dy.clone();
      const Tensor dbias_beside = call<Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&)>(
          "dtk::bias_gelu_backward_", in_place, x, bias, partial);
      CHECK(at::equal(in_place, dx));
      CHECK(at::equal(dbias_beside, dbias));
      const Tensor x64 = leaf(x), bias64 = leaf(bias);
      const Tensor y64 = at::gelu(x64 + bias64, "tanh");
      const auto want = torch::autograd::grad({y64}, {x64, bias64}, {dy.to(at::kDouble)});
      CHECK(y.scalar_type() == type);
      CHECK(dx.scalar_type() == type);
      CHECK(dbias.scalar_type() == bias_type);
      check(y, y64.detach(), "y");
      check(dx, want[0], "dx");
      check(dbias, want[1], "dbias");
    }
}

TEST_CASE("rms_norm as autograd has it") {
  using Signature = Pair(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&);
  at::manual_seed(4);
  for (const auto& [type, y_type, weight_type] : kTypes)
    for (const auto& [N, T, D] : {std::tuple(2, 70, 384), std::tuple(3, 5, 257)}) {
      const Tensor x = (at::randn({N, T, D}) * 2 + 0.5).to(type), dy = at::randn({N, T, D}).to(y_type);
      const Tensor weight = (at::randn({D}) / 2 + 1).to(weight_type);
      const auto [y, rstd] = call<Pair(const Tensor&, const Tensor&, double, at::ScalarType)>(
          "dtk::rms_norm", x, weight, 1e-5, y_type);
      Tensor partial = partial_of({chunks(N * T), D}), none = at::empty({0, D});
      const auto [dx, dweight] = call<Signature>("dtk::rms_norm_backward", dy, x, rstd, weight, partial);
      const auto [dx_alone, nothing] = call<Signature>("dtk::rms_norm_backward", dy, x, rstd, weight, none);
      const Tensor x64 = leaf(x), weight64 = leaf(weight);
      const Tensor y64 = at::rms_norm(x64, {D}, weight64, 1e-5);
      const auto want = torch::autograd::grad({y64}, {x64, weight64}, {dy.to(at::kDouble)});
      CHECK(y.scalar_type() == y_type);
      CHECK(rstd.scalar_type() == at::kFloat);
      CHECK(dx.scalar_type() == type);
      CHECK(dweight.scalar_type() == weight_type);
      CHECK(at::equal(dx, dx_alone));
      CHECK(!nothing.defined());
      check(y, y64.detach(), "y");
      check(rstd, (x64.detach().square().mean(2) + 1e-5).rsqrt(), "rstd");
      check(dx, want[0], "dx");
      check(dweight, want[1], "dweight");
    }
  const Tensor x = at::zeros({0, 5, 8}), weight = at::ones({8});
  const auto [y, rstd] = call<Pair(const Tensor&, const Tensor&, double, at::ScalarType)>(
      "dtk::rms_norm", x, weight, 1e-5, at::kHalf);
  Tensor none = at::empty({0, 8});
  const auto [dx, dweight] = call<Signature>("dtk::rms_norm_backward", y, x, rstd, weight, none);
  CHECK(rstd.sizes() == at::IntArrayRef{0, 5});
  CHECK(dx.sizes() == x.sizes());
  CHECK(!dweight.defined());
}

TEST_CASE("silu_mul as autograd has it") {
  at::manual_seed(5);
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf})
    for (const auto& [R, D] : {std::pair(70, 384), std::pair(5, 257), std::pair(0, 8)}) {
      const Tensor gate = (at::randn({R, D}) * 3).to(type), up = at::randn({R, D}).to(type);
      const Tensor dy = at::randn({R, D}).to(type);
      const Tensor y = call<Tensor(const Tensor&, const Tensor&)>("dtk::silu_mul", gate, up);
      const auto [dgate, dup] =
          call<Pair(const Tensor&, const Tensor&, const Tensor&)>("dtk::silu_mul_backward", dy, gate, up);
      CHECK(y.sizes() == gate.sizes());
      CHECK(dgate.sizes() == gate.sizes());
      CHECK(dup.scalar_type() == type);
      if (R == 0) continue;
      const Tensor gate64 = leaf(gate), up64 = leaf(up);
      const Tensor y64 = at::silu(gate64) * up64;
      const auto want = torch::autograd::grad({y64}, {gate64, up64}, {dy.to(at::kDouble)});
      CHECK(y.scalar_type() == type);
      check(y, y64.detach(), "y");
      check(dgate, want[0], "dgate");
      check(dup, want[1], "dup");
    }
}

TEST_CASE("rotate as autograd has it") {
  using Signature = Tensor(const Tensor&, const Tensor&, const Tensor&, int64_t);
  at::manual_seed(6);
  const int64_t N = 2, T = 5, H = 3;
  for (const auto& [type, table] : {std::pair(at::kFloat, at::kFloat), std::pair(at::kBFloat16, at::kFloat),
                                    std::pair(at::kHalf, at::kHalf)})
    for (const auto& [D, parts] : {std::pair(64, 1), std::pair(64, 2), std::pair(12, 2), std::pair(6, 1)}) {
      const Tensor wide = at::randn({N, T, 3 * H * D}).to(type);
      const Tensor heads = at::randn({N, H, T, D}).to(type), dy = heads.transpose(1, 2);
      const Tensor cosine = at::randn({T, D}).to(table), sine = at::randn({T, D}).to(table);
      for (const Tensor& x :
           {wide.chunk(3, 2)[1].unflatten(2, {H, D}), wide.chunk(3, 2)[0].unflatten(2, {H, D}),
            at::randn({N, T, H, D}).to(type), heads.transpose(1, 2)}) {
        const Tensor y = call<Signature>("dtk::rotate", x, cosine, sine, parts);
        const Tensor dx = call<Signature>("dtk::rotate_backward", dy, cosine, sine, parts);
        const Tensor x64 = leaf(x);
        std::vector<Tensor> turned;
        for (const Tensor& part : x64.chunk(parts, 3)) {
          const std::vector<Tensor> halves = part.chunk(2, 3);
          turned.insert(turned.end(), {-halves[1], halves[0]});
        }
        const Tensor y64 = x64 * cosine.to(at::kDouble).unsqueeze(1) +
                           at::cat(turned, 3) * sine.to(at::kDouble).unsqueeze(1);
        const auto want = torch::autograd::grad({y64}, {x64}, {dy.to(at::kDouble)});
        CHECK(y.scalar_type() == type);
        CHECK(dx.scalar_type() == type);
        CHECK(y.is_contiguous());
        CHECK(dx.is_contiguous());
        check(y, y64.detach(), "y");
        check(dx, want[0], "dx");
      }
    }
}

TEST_CASE("sums over no rows are zero") {
  const Tensor none = at::zeros({2, 0, 8}), scale = at::ones({2, 8}), statistics = at::zeros({2, 0});
  Tensor partial = partial_of({2, 0, 2, 8});
  const auto [dx, dshift, dscale] =
      call<Triple(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&)>(
          "dtk::norm_modulate_backward", none, none, statistics, statistics, scale, partial);
  CHECK(dx.numel() == 0);
  CHECK(at::equal(dshift, at::zeros({2, 8})));
  CHECK(at::equal(dscale, at::zeros({2, 8})));
}

TEST_CASE("a launch that fails names the operator, the shapes and the error") {
  const Tensor x = at::zeros({2, 3, 8}, at::kBFloat16), gate = at::zeros({2, 48}).chunk(6, 1)[1];
  const std::string said = dtk::test::error_text<c10::Error>(
      [&] { call<Tensor(const Tensor&, const Tensor&, const Tensor&)>("dtk::gated_add", x, gate, x); });
  CAPTURE(said);
  CHECK(said.rfind("dtk::gated_add of BFloat16 [2, 3, 8] strides [24, 8, 1], Float [2, 8] strides [48, 1], "
                   "BFloat16 [2, 3, 8] strides [24, 8, 1]: CUDA error 1",
                   0) == 0);
}
