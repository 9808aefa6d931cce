// The fused operators against LibTorch's composed forms in double precision: values, gradients, types,
// layouts, every instruction set of this machine, and what they refuse.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <dtk/models/ops.h>
#include <dtk/policies/guards.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <functional>
#include <limits>
#include <tuple>
#include <vector>

#include "ops/cpu_kernels.h"
#include "ops/operators.h"
#include "support/catch.h"
#include "support/ops/operator_table.h"
#include "support/same_bits.h"

using at::Tensor;
using Catch::Matchers::Contains;
using dtk::ops::CpuKernels;
using dtk::ops::Shape;
using dtk::ops::Types;
using namespace dtk::test;  // the table of operators, and distances from what is right

TEST_CASE("in fp64, results and gradients are those of the composed form") {
  for (const Operator& op : operators_and_layers()) {
    for (const auto& [n, t, d] : kShapes) {
      if (d == 1) continue;  // a norm of one channel is 0 whatever x is: its gradient is rounding alone
      CAPTURE(op.name, n, t, d);
      const Tensors inputs = op.inputs(n, t, d);
      const Tensors fused = with_gradients(op.fused, inputs), composed = with_gradients(op.composed, inputs);
      for (size_t i = 0; i < fused.size(); ++i) {
        CAPTURE(i);
        REQUIRE(fused[i].defined() == composed[i].defined());
        if (fused[i].defined()) CHECK(distance(fused[i], composed[i]) < 1e-12);
      }
    }
  }
}

// Central differences of a sum with fixed weights, by each number of each input.
TEST_CASE("gradients are the slopes of the results") {
  for (const Operator& op : operators_and_layers()) {
    const Tensors inputs = op.inputs(2, 3, 5);
    const Tensors analytic = with_gradients(op.fused, inputs);
    const Tensor weights = normal(analytic[0].sizes(), 9);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!analytic[i + 1].defined()) continue;  // an input that the layer has not
      for (int64_t k = 0; k < inputs[i].numel(); ++k) {
        const auto value_at = [&](double step) {
          Tensors moved = converted(inputs, at::kDouble);
          moved[i] = moved[i].clone();
          moved[i].view({-1})[k].add_(step);
          return (op.fused(moved) * weights).sum().item<double>();
        };
        constexpr double kStep = 1e-6;
        const double slope = (value_at(kStep) - value_at(-kStep)) / (2 * kStep);
        CAPTURE(op.name, i, k);
        CHECK(std::abs(analytic[i + 1].view({-1})[k].item<double>() - slope) < 1e-7);
      }
    }
  }
}

TEST_CASE("in fp32, bf16 and fp16 the fused forms are no further from fp64 than roundings of their results") {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const Operator& op : operators()) {
      for (const auto& [n, t, d] : kShapes) {
        if (d == 1) continue;
        CAPTURE(op.name, n, t, d, type);
        const Tensors inputs = converted(op.inputs(n, t, d), type);
        const Tensors fused = with_gradients(op.fused, inputs);
        const Tensors wanted = with_gradients(op.composed, converted(inputs, at::kDouble), type);
        for (size_t i = 0; i < fused.size(); ++i) {
          CAPTURE(i);
          CHECK(fused[i].scalar_type() == type);
          CHECK(in_roundings(fused[i], wanted[i]) <= 1);
        }
      }
    }
  }
}

// As autocast has them: x fp32, what comes from products half; rows of the modulation are chunks.
TEST_CASE("fp32 tokens take half branches, and rows that lie in a wider buffer") {
  for (const at::ScalarType half : {at::kBFloat16, at::kHalf}) {
    for (const at::ScalarType row : {half, at::kFloat}) {
      const int64_t n = 2, t = 70, d = 40;
      const Tensor x = normal({n, t, d}, 1).to(at::kFloat), branch = normal({n, t, d}, 2).to(half);
      const Tensor wide = normal({n, 6 * d}, 3).to(row);
      const auto m = wide.chunk(6, 1);
      REQUIRE(m[1].stride(0) == 6 * d);
      const auto right = [](const char* name, const Tensors& in) {
        return operator_of(name).composed(converted(in, at::kDouble));
      };

      Tensors in{x, m[0], m[1]};
      Tensor y = dtk::ops::norm_modulate(in[0], in[1], in[2], kEps, half);
      CHECK(y.scalar_type() == half);
      CHECK(in_roundings(y, right("norm_modulate", {x, m[0], m[1]})) <= 1);
      y = dtk::ops::gated_add(x, m[2], branch);
      CHECK(y.scalar_type() == at::kFloat);
      CHECK(in_roundings(y, right("gated_add", {x, m[2], branch})) <= 1);
      const Tensor bias = normal({d}, 4).to(row);
      y = dtk::ops::bias_gelu(branch, bias);
      CHECK(y.scalar_type() == half);
      CHECK(in_roundings(y, right("bias_gelu", {branch, bias})) <= 1);
      y = dtk::ops::rms_norm(x, bias, kEps, half);
      CHECK(y.scalar_type() == half);
      CHECK(in_roundings(y, right("rms_norm", {x, bias})) <= 1);
      y = dtk::ops::rms_norm(branch, bias, kEps, half);
      CHECK(in_roundings(y, right("rms_norm", {branch, bias})) <= 1);
      const Tensor qkv = branch.unflatten(2, {5, 8}), q = qkv.slice(2, 1, 3);  // views of a wider buffer
      const auto [cosine, sine] = tables(q);
      y = dtk::ops::rotate(q, cosine.to(row), sine.to(row), kParts);
      CHECK(y.scalar_type() == half);
      CHECK(y.is_contiguous());
      CHECK(in_roundings(y, right("rotate", {q.flatten(2)})) <= 1);

      const Tensor leaf = wide.detach().requires_grad_(true);
      const auto through = [&](bool dense) {
        auto rows = leaf.chunk(6, 1);
        if (dense) {
          for (Tensor& one : rows) one = one.contiguous();
        }
        const Tensor h = dtk::ops::norm_modulate(x, rows[0], rows[1], kEps, half);
        const Tensor sum = dtk::ops::gated_add(x, rows[2], h).sum();
        return torch::autograd::grad({sum}, {leaf})[0];
      };
      CHECK(same_bits(through(false), through(true)));
    }
  }
}

TEST_CASE("layers whose input is recomputed have the bits of those that keep it") {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const Operator& op : layers()) {
      for (const bool trained : {false, true}) {
        CAPTURE(op.name, type, trained);
        // As under autocast: tokens and bias fp32 where the layer's type is narrower.
        Tensors inputs = converted(op.inputs(3, 65, 40), type);
        inputs[1] = inputs[1].to(op.name[0] == 'b' ? at::kFloat : type);
        if (op.name[0] != 'b') inputs[0] = inputs[0].to(at::kFloat);
        const auto run = [&](const auto& fn) {
          return with_gradients(
              [&](Tensors in) {
                if (!trained) in[3] = inputs[3], in[4] = inputs[4];
                return fn(in);
              },
              inputs);
        };
        const Tensors again = run(op.fused), kept = run(op.composed);
        REQUIRE(again.size() == kept.size());
        for (size_t i = 0; i < again.size(); ++i) {
          CAPTURE(i);
          REQUIRE(again[i].defined() == kept[i].defined());
          if (again[i].defined()) CHECK(same_bits(again[i], kept[i]));
        }
      }
    }
  }
}

TEST_CASE("backward runs twice, and by a gradient of any strides, with the same bits") {
  for (const Operator& op : operators_and_layers()) {
    CAPTURE(op.name);
    Tensors leaves = converted(op.inputs(2, 3, 8), at::kFloat);
    for (Tensor& leaf : leaves) leaf.requires_grad_(true);
    const Tensor y = op.fused(leaves);
    const auto gradients = [&](const Tensor& dy) {
      return torch::autograd::grad({y}, leaves, {dy}, /*retain_graph=*/true, false, /*allow_unused=*/true);
    };
    const Tensor one = at::full({1}, 0.5), expanded = one.expand(y.sizes());
    const Tensors first = gradients(expanded), again = gradients(at::full(y.sizes(), 0.5));
    const Tensor apart = normal(y.sizes(), 9).to(at::kFloat);
    const Tensors by_rows = gradients(apart);
    const Tensors by_columns = gradients(apart.transpose(0, 1).contiguous().transpose(0, 1));
    for (size_t i = 0; i < first.size(); ++i) {
      if (!first[i].defined()) continue;
      CHECK(same_bits(first[i], again[i]));
      CHECK(same_bits(by_rows[i], by_columns[i]));
    }
  }
}

TEST_CASE("of two results one may be read alone") {
  Tensors leaves;
  for (const Tensor& input : operator_of("gated_add_norm_modulate_linear").inputs(2, 3, 8))
    leaves.push_back(input.detach().requires_grad_(true));
  const auto gradients = [&](bool of_sum, bool fused) {
    const Tensor &x = leaves[0], &gate = leaves[5], &branch = leaves[6];
    Tensor sum = dtk::ops::gated_add(x, gate, branch);
    Tensor y = at::linear(dtk::ops::norm_modulate(sum, leaves[1], leaves[2], kEps, at::kDouble), leaves[3],
                          leaves[4]);
    if (fused) {
      std::tie(sum, y) = dtk::ops::gated_add_norm_modulate_linear(x, gate, branch, leaves[1], leaves[2], kEps,
                                                                  leaves[3], leaves[4]);
    }
    return torch::autograd::grad({(of_sum ? sum : y).pow(2).sum()}, leaves, {}, {}, false, true);
  };
  for (const bool of_sum : {false, true}) {
    const Tensors fused = gradients(of_sum, true), apart = gradients(of_sum, false);
    for (size_t i = 0; i < fused.size(); ++i) {
      CAPTURE(of_sum, i);
      if (apart[i].defined()) {
        CHECK(distance(fused[i], apart[i]) < 1e-12);
      } else {
        CHECK((!fused[i].defined() || fused[i].abs().max().item<double>() == 0));
      }
    }
  }
}

TEST_CASE("under autocast a product that follows GELU has autocast's type, whatever GELU read") {
  const Tensors inputs = converted(operator_of("bias_gelu_linear").inputs(2, 3, 8), at::kFloat);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    Tensors leaves;
    for (const Tensor& input : inputs) leaves.push_back(input.detach().requires_grad_(true));
    Tensor y;
    {
      const dtk::policies::AutocastGuard autocast(at::kCPU, true, at::kBFloat16);
      y = dtk::ops::bias_gelu_linear(leaves[0].to(type), leaves[1], leaves[3], leaves[4]);
    }
    CHECK(y.scalar_type() == at::kBFloat16);
    const auto gradients = torch::autograd::grad({y.sum()}, leaves, {}, {}, false, true);
    const auto exact =
        with_gradients(operator_of("bias_gelu_linear").composed, converted(inputs, at::kDouble));
    CHECK(distance(y, exact[0]) < 0.02);
    for (const size_t i : {0, 1, 3, 4}) CHECK(gradients[i].scalar_type() == at::kFloat);
  }
}

TEST_CASE("layers whose input is recomputed need no bias") {
  const Tensor x = normal({2, 3, 4}, 1).requires_grad_(true), row = normal({2, 4}, 2);
  const Tensor weight = normal({5, 4}, 3).requires_grad_(true);
  const auto gradients = [&](const Tensor& y) { return torch::autograd::grad({y.sum()}, {x, weight}); };
  const auto again = gradients(dtk::ops::norm_modulate_linear(x, row, row, kEps, weight, {}));
  const auto kept = gradients(at::linear(dtk::ops::norm_modulate(x, row, row, kEps, at::kDouble), weight));
  for (size_t i = 0; i < again.size(); ++i) CHECK(distance(again[i], kept[i]) < 1e-14);
}

TEST_CASE("other layouts are made dense, and give the same bits") {
  const Tensor x = normal({3, 48, 20}, 1).to(at::kFloat), rows = normal({3, 20}, 2).to(at::kFloat);
  const Tensor apart = x.transpose(1, 2).contiguous().transpose(1, 2);
  const Tensor by_columns = rows.t().contiguous().t();
  REQUIRE_FALSE(apart.is_contiguous());
  REQUIRE(by_columns.stride(1) != 1);
  using dtk::ops::norm_modulate;
  CHECK(same_bits(norm_modulate(apart, by_columns, by_columns, kEps, at::kFloat),
                  norm_modulate(x, rows, rows, kEps, at::kFloat)));
  CHECK(same_bits(dtk::ops::gated_add(apart, by_columns, apart), dtk::ops::gated_add(x, rows, x)));
  CHECK(same_bits(dtk::ops::bias_gelu(apart, rows[0]), dtk::ops::bias_gelu(x, rows[0])));
  CHECK(same_bits(dtk::ops::rms_norm(apart, rows[0], kEps, at::kFloat),
                  dtk::ops::rms_norm(x, rows[0], kEps, at::kFloat)));
  CHECK(same_bits(dtk::ops::silu_mul(apart, x), dtk::ops::silu_mul(x, x)));
  const Tensor heads = x.unflatten(2, {5, 4}), heads_apart = apart.unflatten(2, {5, 4});
  const auto [cosine, sine] = tables(heads);
  CHECK(same_bits(dtk::ops::rotate(heads_apart, cosine, sine, 2), dtk::ops::rotate(heads, cosine, sine, 2)));
  // A gradient whose layout is another.
  const Tensor leaf = x.detach().requires_grad_(true);
  const auto gradient = [&](const Tensor& dy) {
    return torch::autograd::grad({norm_modulate(leaf, rows, rows, kEps, at::kFloat)}, {leaf}, {dy})[0];
  };
  CHECK(same_bits(gradient(apart), gradient(x)));
}

TEST_CASE("a second derivative is refused by name") {
  for (const Operator& op : operators_and_layers()) {
    Tensors leaves = op.inputs(2, 3, 4);
    for (Tensor& leaf : leaves) leaf.requires_grad_(true);
    CHECK_THROWS_WITH(torch::autograd::grad({op.fused(leaves).sum()}, leaves, {}, /*retain_graph=*/true,
                                            /*create_graph=*/true, /*allow_unused=*/true),
                      Contains(std::string("dtk::") + op.name + " has no second derivative"));
  }
}

TEST_CASE(
    "the weight of an RMS norm that is not trained has no gradient summed, and the tokens have theirs") {
  const Tensor weight = normal({33}, 2), x = normal({2, 65, 33}, 1).requires_grad_(true);
  const auto gradient = [&](const Tensor& by) {
    return torch::autograd::grad({dtk::ops::rms_norm(x, by, kEps, at::kDouble).sum()}, {x})[0];
  };
  CHECK(same_bits(gradient(weight), gradient(weight.detach().requires_grad_(true))));
  const auto [y, rstd] = dtk::ops::rms_norm_forward(x.detach(), weight, kEps, at::kDouble);
  CHECK_FALSE(std::get<1>(dtk::ops::rms_norm_backward(y, x.detach(), rstd, weight, false)).defined());
  CHECK(std::get<1>(dtk::ops::rms_norm_backward(y, x.detach(), rstd, weight, true)).defined());
}

TEST_CASE("called by name, operators refuse what their kernels cannot read") {
  const Tensor x = at::zeros({2, 3, 4}), row = at::zeros({2, 4}), statistics = at::zeros({2, 3});
  const auto apart = x.transpose(0, 1).contiguous().transpose(0, 1);
  using dtk::ops::gated_add_forward, dtk::ops::norm_modulate_backward, dtk::ops::norm_modulate_forward;
  CHECK_THROWS_WITH(norm_modulate_forward(apart, row, row, kEps, at::kFloat),
                    Contains("x has gaps, strides"));
  CHECK_THROWS_WITH(gated_add_forward(x, row.t().contiguous().t(), x), Contains("gate has strides [1, 2]"));
  CHECK_THROWS_WITH(norm_modulate_backward(x, x, statistics, at::zeros({2, 4}), row),
                    Contains("dtk::norm_modulate_backward: rstd is [2, 4] on cpu"));
  CHECK_THROWS_WITH(norm_modulate_backward(x.to(at::kDouble), x, statistics, statistics, row),
                    Contains("is no combination of types"));
  const auto op =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("dtk::bias_gelu_backward", "")
          .typed<std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&, const Tensor&)>();
  CHECK_THROWS_WITH(op.call(x, x, row[0], at::zeros({1, 3})), Contains("partial is [1, 3] on cpu"));
}

TEST_CASE("a batch without samples or tokens has a result and gradients without numbers") {
  for (const Operator& op : operators_and_layers()) {
    for (const auto& [n, t] : {std::pair<int64_t, int64_t>{0, 4}, {2, 0}}) {
      CAPTURE(op.name, n, t);
      Tensors leaves = converted(op.inputs(n, t, 8), at::kFloat);
      for (Tensor& leaf : leaves) leaf.requires_grad_(true);
      const Tensor y = op.fused(leaves);
      CHECK(y.numel() == 0);
      for (const Tensor& gradient : torch::autograd::grad({y.sum()}, leaves, {}, {}, false, true))
        CHECK((!gradient.defined() || gradient.abs().sum().item<double>() == 0));
    }
  }
}

TEST_CASE("bits do not depend on the number of threads") {
  const int before = at::get_num_threads();
  for (const Operator& op : operators()) {
    const Tensors inputs = converted(op.inputs(5, 200, 96), at::kFloat);
    at::set_num_threads(1);
    const Tensors one = with_gradients(op.fused, inputs);
    at::set_num_threads(3);
    const Tensors three = with_gradients(op.fused, inputs);
    at::set_num_threads(before);
    for (size_t i = 0; i < one.size(); ++i) CHECK(same_bits(one[i], three[i]));
  }
}

TEST_CASE("kernels of every instruction set that this machine has agree") {
  const auto names = dtk::ops::cpu_capabilities();
  CHECK(std::find(names.begin(), names.end(), "DEFAULT") != names.end());
  const Shape shape{2, 67, 53};
  for (const at::ScalarType half : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const Types types{at::kFloat, half, half};
    const Tensor x = normal({2, 67, 53}, 1).to(at::kFloat), h = normal({2, 67, 53}, 2).to(half);
    const Tensor rows = normal({2, 53}, 3).to(half);
    const auto all_of = [&](const CpuKernels& k) {
      const auto empty = [&](const Tensor& like) { return at::full_like(like, NAN); };
      Tensor y = empty(h), mean = at::full({2, 67}, NAN), rstd = at::full({2, 67}, NAN), dx = empty(x),
             dshift = empty(rows), dscale = empty(rows), partial = at::full({2, 2, 2, 53}, NAN);
      k.norm_modulate(shape, types, x.data_ptr(), {rows.data_ptr(), 53}, {rows.data_ptr(), 53}, kEps,
                      y.data_ptr(), mean.data_ptr(), rstd.data_ptr());
      k.norm_modulate_backward(shape, types, h.data_ptr(), x.data_ptr(), mean.data_ptr(), rstd.data_ptr(),
                               {rows.data_ptr(), 53}, partial.data_ptr(), dx.data_ptr(), dshift.data_ptr(),
                               dscale.data_ptr());
      Tensor sum = empty(x), dgate = empty(rows), dbranch = empty(h);
      k.gated_add(shape, types, x.data_ptr(), {rows.data_ptr(), 53}, h.data_ptr(), sum.data_ptr());
      k.gated_add_backward(shape, types, x.data_ptr(), {rows.data_ptr(), 53}, h.data_ptr(),
                           partial.data_ptr(), dgate.data_ptr(), dbranch.data_ptr());
      const Shape flat{1, 134, 53};
      const Types same{half, half, half};
      Tensor g = empty(h), dh = empty(h), dbias = empty(rows[0]);
      k.bias_gelu(flat, same, h.data_ptr(), rows.data_ptr(), g.data_ptr());
      k.bias_gelu_backward(flat, same, h.data_ptr(), h.data_ptr(), rows.data_ptr(), partial.data_ptr(),
                           dh.data_ptr(), dbias.data_ptr());
      Tensor r = empty(h), scale = at::full({134}, NAN), dr = empty(x), dweight = empty(rows[0]);
      k.rms_norm(flat, types, x.data_ptr(), rows.data_ptr(), kEps, r.data_ptr(), scale.data_ptr());
      k.rms_norm_backward(flat, types, h.data_ptr(), x.data_ptr(), scale.data_ptr(), rows.data_ptr(),
                          partial.data_ptr(), dr.data_ptr(), dweight.data_ptr());
      Tensor s = empty(h), ds = empty(h), du = empty(h);
      k.silu_mul(flat, same, h.data_ptr(), g.data_ptr(), s.data_ptr());
      k.silu_mul_backward(flat, same, g.data_ptr(), h.data_ptr(), s.data_ptr(), ds.data_ptr(), du.data_ptr());
      // Of 53 channels 52 turn, in two parts, by what lies in h and g.
      Tensor turned = at::full({2, 67, 1, 52}, NAN).to(half), back = turned.clone();
      const dtk::ops::Heads heads{2, 67, 1, 52, 67 * 53, 53, 53, 2};
      k.rotate(heads, same, h.data_ptr(), h.data_ptr(), g.data_ptr(), false, turned.data_ptr());
      k.rotate(heads, same, h.data_ptr(), h.data_ptr(), g.data_ptr(), true, back.data_ptr());
      return Tensors{y,     mean, rstd,  dx, dshift,  dscale, sum, dgate, dbranch, g,   dh,
                     dbias, r,    scale, dr, dweight, s,      ds,  du,    turned,  back};
    };
    const Tensors plain = all_of(dtk::ops::cpu_kernels("DEFAULT"));
    for (const std::string& name : names) {
      const Tensors other = all_of(dtk::ops::cpu_kernels(name));
      for (size_t i = 0; i < plain.size(); ++i) {
        CAPTURE(name, i, half);
        // A rounding to the half type may fall to either side.
        const double bound = plain[i].scalar_type() == at::kFloat      ? 2e-6
                             : plain[i].scalar_type() == at::kBFloat16 ? 0x1p-8
                                                                       : 0x1p-11;
        CHECK(distance(other[i], plain[i].to(at::kDouble)) <= bound);
      }
    }
  }
}

TEST_CASE("gelu is right far from 0, where the tanh form cancels") {
  const Tensor x = at::tensor({-30.0, -12.0, -6.0, -5.0, -1e-6, 0.0, 1e-6, 5.0, 30.0, 1e4}, at::kFloat);
  const Tensor zero = at::zeros({10}), got = dtk::ops::bias_gelu(x, zero).to(at::kDouble);
  for (int64_t i = 0; i < 10; ++i) {
    const long double u = x[i].item<float>();
    const long double z = 1.5957691216057308L * (u + 0.044715L * u * u * u);
    const auto wanted = static_cast<double>(u / (1 + std::exp(-z)));
    CAPTURE(wanted);
    // z is some hundreds in fp32 far left of 0, and its rounding is in the exponent; beyond e^-87 is 0 in all
    // but name.
    CHECK(std::abs(got[i].item<double>() - wanted) <= std::max(std::abs(wanted) * 1e-5, 1e-35));
  }
  const Tensor nan = at::full({1}, std::numeric_limits<float>::quiet_NaN());
  CHECK(std::isnan(dtk::ops::bias_gelu(nan, at::zeros({1})).item<float>()));
}

TEST_CASE("what is refused names operator, argument, what it is and what is allowed") {
  const Tensor x = at::zeros({2, 3, 4}), row = at::zeros({2, 4});
  using dtk::ops::bias_gelu, dtk::ops::gated_add, dtk::ops::norm_modulate;
  CHECK_THROWS_WITH(norm_modulate(x[0], row, row, kEps, at::kFloat),
                    Contains("dtk::norm_modulate: x is [3, 4]; allowed: (N, T, D) with D > 0"));
  CHECK_THROWS_WITH(norm_modulate(x, at::zeros({2, 5}), row, kEps, at::kFloat),
                    Contains("dtk::norm_modulate: shift is [2, 5] on cpu; allowed beside x [2, 3, 4] on "
                             "cpu: [2, 4] there"));
  CHECK_THROWS_WITH(norm_modulate(x, row, row.to(at::kHalf), kEps, at::kFloat),
                    Contains("shift is Float, scale Half; allowed: one type"));
  CHECK_THROWS_WITH(norm_modulate(x, row.to(at::kHalf), row.to(at::kHalf), kEps, at::kBFloat16),
                    Contains("dtk::norm_modulate: x Float, shift and scale Half, result BFloat16 is no "
                             "combination of types that it takes"));
  CHECK_THROWS_WITH(norm_modulate(x.to(at::kHalf), row, row, kEps, at::kHalf), Contains("no combination"));
  CHECK_THROWS_WITH(gated_add(x, row, at::zeros({2, 3, 5})),
                    Contains("dtk::gated_add: branch is [2, 3, 5] on cpu"));
  CHECK_THROWS_WITH(gated_add(x, row.to(at::kHalf), x), Contains("gate Half, branch Float"));
  CHECK_THROWS_WITH(gated_add(x, row, x.to(at::kDouble)), Contains("branch Double"));
  CHECK_THROWS_WITH(gated_add(x, row, x.to(at::kMeta)), Contains("branch is [2, 3, 4] on meta"));
  CHECK_THROWS_WITH(bias_gelu(x, at::zeros({5})), Contains("dtk::bias_gelu: bias is [5] on cpu"));
  CHECK_THROWS_WITH(bias_gelu(x, at::zeros({4}, at::kHalf)), Contains("bias Half"));
  CHECK_THROWS_WITH(bias_gelu(at::zeros({}), at::zeros({1})), Contains("allowed: (..., D) with D > 0"));
  using dtk::ops::rms_norm, dtk::ops::rotate, dtk::ops::silu_mul;
  const Tensor weight = at::zeros({4});
  CHECK_THROWS_WITH(rms_norm(x, row, kEps, at::kFloat),
                    Contains("dtk::rms_norm: weight is [2, 4] on cpu; allowed beside x [2, 3, 4] on cpu: [4] "
                             "there"));
  CHECK_THROWS_WITH(rms_norm(x.to(at::kHalf), weight, kEps, at::kFloat),
                    Contains("dtk::rms_norm: x Half, weight Float, result Float is no combination"));
  CHECK_THROWS_WITH(silu_mul(x, x.to(at::kHalf)),
                    Contains("dtk::silu_mul: gate is Float, up Half; allowed: one type of Float"));
  CHECK_THROWS_WITH(silu_mul(x, x[0]), Contains("dtk::silu_mul: up is [3, 4] on cpu"));
  const Tensor heads = x.unsqueeze(2), table = at::zeros({3, 4});
  CHECK_THROWS_WITH(rotate(x, table, table, 1),
                    Contains("dtk::rotate: x is [2, 3, 4]; allowed: (N, T, H, d)"));
  CHECK_THROWS_WITH(rotate(heads, table, table, 4),
                    Contains("dtk::rotate: 4 channels in 4 parts; allowed: parts of two halves each"));
  CHECK_THROWS_WITH(rotate(heads, table, weight, 1), Contains("dtk::rotate: sine is [4] on cpu"));
  CHECK_THROWS_WITH(rotate(heads, table.to(at::kHalf), table.to(at::kHalf), 1),
                    Contains("x Float, cosine and sine Half, result Float is no combination"));
  CHECK_THROWS_WITH(rotate(heads, table, table.clone().requires_grad_(true), 1),
                    Contains("dtk::rotate: cosine or sine requires a gradient; allowed: constants"));
}

TEST_CASE("a library that is none of CUDA kernels is not opened, and said why") {
  using dtk::ops::open_cuda_kernels;
  CHECK_THAT(open_cuda_kernels("/nowhere/libdtk_cuda_kernels.so"),
             Contains("/nowhere/libdtk_cuda_kernels.so"));
  CHECK_THAT(open_cuda_kernels("libm.so.6"), Contains("dtk_cuda_kernels_torch_version"));
}
