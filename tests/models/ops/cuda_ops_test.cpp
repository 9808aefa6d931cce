// The fused operators on the device of DTK_TEST_DEVICE against LibTorch's composed forms in double precision
// on the CPU. On CUDA they are those of libdtk_cuda_kernels.so; on the CPU, where ctest runs this too, it is
// the tests that are tried. Those tagged [kernels] launch no kernels of libraries, only LibTorch's copies and
// fills: compute-sanitizer looks at the operators' own.
#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dtk/models/ops.h>
#include <dtk/policies/guards.h>
#include <torch/csrc/autograd/autograd.h>

#include <stdexcept>

#include "support/catch.h"
#include "support/device/test_device.h"
#include "support/ops/operator_table.h"
#include "support/same_bits.h"

using at::Tensor;
using Catch::Matchers::Contains;
using namespace dtk::test;

namespace {

void open_kernels() {
#ifdef DTK_CUDA_KERNELS
  const std::string problem = dtk::ops::open_cuda_kernels(DTK_CUDA_KERNELS);
#else
  const std::string problem = "nvcc 12.8 or later was not found when this program was built";
#endif
  if (!problem.empty())
    throw std::runtime_error("the operators have no kernels for CUDA: " + problem +
                             "; build again with nvcc in the path");
}

c10::Device device() {
  static const bool is_open = [] {
    if (!on_cpu()) open_kernels();
    return true;
  }();
  (void)is_open;
  return test_device();
}

// What types an operator's tensors have.
struct Form {
  const char* of;  // an operator of the table
  std::vector<at::ScalarType> types;
  std::function<Tensor(const Tensors&)> fused;
};

std::vector<Form> forms() {
  std::vector<Form> all;
  for (const Operator& op : operators()) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf})
      all.push_back({op.name, std::vector(op.inputs(1, 1, 1).size(), type), op.fused});
  }
  // As autocast has them: tokens fp32, what comes from products half, parameters either.
  for (const at::ScalarType half : {at::kBFloat16, at::kHalf}) {
    const auto norm = [half](const Tensors& in) {
      return dtk::ops::norm_modulate(in[0], in[1], in[2], kEps, half);
    };
    const auto rms = [half](const Tensors& in) { return dtk::ops::rms_norm(in[0], in[1], kEps, half); };
    const auto turned = [](const Tensors& in) {
      const auto [cosine, sine] = tables(as_heads(in[0]));
      return dtk::ops::rotate(as_heads(in[0]), cosine.to(at::kFloat), sine.to(at::kFloat), kParts);
    };
    for (const at::ScalarType row : {half, at::kFloat}) {
      all.push_back({"norm_modulate", {at::kFloat, row, row}, norm});
      all.push_back({"gated_add", {at::kFloat, row, half}, operator_of("gated_add").fused});
      all.push_back({"rms_norm", {at::kFloat, row}, rms});
    }
    all.push_back({"bias_gelu", {half, at::kFloat}, operator_of("bias_gelu").fused});
    all.push_back({"rms_norm", {half, at::kFloat}, rms});
    all.push_back({"rotate", {half}, turned});
  }
  return all;
}

Tensors in_types(const Tensors& wide, const std::vector<at::ScalarType>& types) {
  Tensors all;
  for (size_t i = 0; i < wide.size(); ++i) all.push_back(wide[i].to(types[i]));
  return all;
}

Tensors there(const Tensors& tensors) {
  Tensors all;
  for (const Tensor& tensor : tensors) all.push_back(tensor.to(device()));
  return all;
}

bool alike(const Tensor& a, const Tensor& b) {
  return same_bits(a.cpu(), b.cpu());
}

void check_alike(const Tensors& a, const Tensors& b) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    CAPTURE(i);
    REQUIRE(a[i].defined() == b[i].defined());
    if (a[i].defined()) CHECK(alike(a[i], b[i]));
  }
}

// `got` of inputs with the values of `inputs`, which are on the CPU: the result and its gradients.
void check_roundings(const Form& form, const Tensors& inputs, const Tensors& got) {
  const Tensors wanted =
      with_gradients(operator_of(form.of).composed, converted(inputs, at::kDouble), got[0].scalar_type());
  REQUIRE(got.size() == wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    CHECK(got[i].device() == device());
    if (i > 0) CHECK(got[i].scalar_type() == inputs[i - 1].scalar_type());
    CHECK(in_roundings(got[i], wanted[i]) <= 1);
  }
}

// Where a kernel keeps rows in registers: each limit, and the width above it. Rows that fill a chunk of sums
// and more.
const std::vector<std::array<int64_t, 3>> kWide{
    {2, 67, 128},  {2, 67, 132},  {1, 66, 388}, {2, 33, 512}, {2, 33, 516},  {1, 66, 768}, {1, 66, 772},
    {2, 67, 1152}, {2, 67, 1156}, {1, 5, 1536}, {1, 5, 1540}, {2, 33, 8192}, {2, 33, 8196}};

bool is_norm(const Form& form) {
  return std::string(form.of).find("norm") != std::string::npos;
}

}  // namespace

TEST_CASE("results and gradients are within their roundings of the composed form in fp64",
          "[device][kernels]") {
  for (const Form& form : forms()) {
    std::vector<std::array<int64_t, 3>> shapes = kShapes;
    // The others keep no rows.
    const size_t wide = is_norm(form) ? kWide.size() : 2;
    shapes.insert(shapes.end(), kWide.begin(), kWide.begin() + static_cast<std::ptrdiff_t>(wide));
    for (const auto& [n, t, d] : shapes) {
      if (d == 1) continue;  // a norm of one channel is 0 whatever x is: its gradient is rounding alone
      CAPTURE(form.of, form.types, n, t, d);
      const Tensors inputs = in_types(operator_of(form.of).inputs(n, t, d), form.types);
      check_roundings(form, inputs, with_gradients(form.fused, there(inputs)));
    }
  }
}

TEST_CASE("tensors may begin where four numbers cannot be read at once", "[device][kernels]") {
  for (const Form& form : forms()) {
    CAPTURE(form.of, form.types);
    const Tensors inputs = in_types(operator_of(form.of).inputs(2, 67, 132), form.types);
    Tensors shifted;
    for (const Tensor& input : there(inputs)) {
      const Tensor buffer = at::zeros({input.numel() + 1}, input.options());
      shifted.push_back(buffer.narrow(0, 1, input.numel()).view(input.sizes()));
      shifted.back().copy_(input);
      REQUIRE(reinterpret_cast<uintptr_t>(shifted.back().const_data_ptr()) % (4 * input.element_size()) != 0);
    }
    check_roundings(form, inputs, with_gradients(form.fused, shifted));
  }
}

TEST_CASE("rows and heads that lie in a wider buffer give the bits of dense ones", "[device][kernels]") {
  for (const at::ScalarType half : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const int64_t d : {40, 33}) {
      CAPTURE(half, d);
      const Tensor x = normal({2, 70, d}, 1).to(device(), at::kFloat);
      const Tensor wide = normal({2, 6 * d}, 3).to(device(), half);
      const auto of_rows = [&](bool dense) {
        return with_gradients(
            [&](const Tensors& in) {
              auto rows = in[1].chunk(6, 1);
              REQUIRE(rows[1].stride(0) == 6 * d);
              if (dense) {
                for (Tensor& one : rows) one = one.contiguous();
              }
              const Tensor h = dtk::ops::norm_modulate(in[0], rows[0], rows[1], kEps, half);
              return dtk::ops::gated_add(in[0], rows[2], h);
            },
            {x, wide});
      };
      check_alike(of_rows(false), of_rows(true));

      const Tensor qkv = normal({2, 70, 3, 5, 8}, 4).to(device(), half);
      const auto [cosine, sine] = tables(qkv.select(2, 0));
      const auto of_heads = [&, cosine = cosine, sine = sine](bool dense) {
        return with_gradients(
            [&](const Tensors& in) {
              const Tensor heads = in[0].select(2, 1).slice(2, 1, 4);  // three of five
              return dtk::ops::rotate(dense ? heads.contiguous() : heads, cosine, sine, kParts);
            },
            {qkv});
      };
      check_alike(of_heads(false), of_heads(true));
    }
  }
}

TEST_CASE("tensors and gradients of another layout are made dense, and give the same bits",
          "[device][kernels]") {
  for (const Form& form : forms()) {
    CAPTURE(form.of, form.types);
    const Tensors dense = there(in_types(operator_of(form.of).inputs(3, 48, 20), form.types));
    Tensors apart;
    for (const Tensor& input : dense) {
      const bool has_rows = input.dim() > 1;
      const auto turned = [&](const Tensor& tensor) { return has_rows ? tensor.transpose(-1, -2) : tensor; };
      apart.push_back(turned(turned(input).contiguous()));
      if (has_rows) REQUIRE_FALSE(apart.back().is_contiguous());
    }
    check_alike(with_gradients(form.fused, apart), with_gradients(form.fused, dense));
    const auto gradients = [&](bool is_dense) {
      Tensors leaves;
      for (const Tensor& input : dense) leaves.push_back(input.detach().requires_grad_(true));
      const Tensor y = form.fused(leaves), dy = normal(y.sizes(), 9).to(y.options());
      const Tensor other = dy.transpose(0, 1).contiguous().transpose(0, 1);
      return torch::autograd::grad({y}, leaves, {is_dense ? dy : other});
    };
    check_alike(gradients(true), gradients(false));
  }
}

TEST_CASE("a batch without samples or tokens has a result and gradients without numbers",
          "[device][kernels]") {
  for (const Form& form : forms()) {
    for (const auto& [n, t] : {std::pair<int64_t, int64_t>{0, 4}, {2, 0}}) {
      CAPTURE(form.of, form.types, n, t);
      Tensors leaves = there(in_types(operator_of(form.of).inputs(n, t, 8), form.types));
      for (Tensor& leaf : leaves) leaf.requires_grad_(true);
      const Tensor y = form.fused(leaves);
      CHECK(y.numel() == 0);
      for (const Tensor& gradient : torch::autograd::grad({y}, leaves, {at::zeros_like(y)}))
        CHECK(gradient.cpu().abs().sum().item<double>() == 0);
    }
  }
}

TEST_CASE("the same call twice gives the same bits", "[device][kernels]") {
  for (const Form& form : forms()) {
    for (const auto& [n, t, d] : {std::array<int64_t, 3>{5, 200, 96}, {2, 67, 1153}}) {
      CAPTURE(form.of, form.types, n, t, d);
      const Tensors inputs = there(in_types(operator_of(form.of).inputs(n, t, d), form.types));
      check_alike(with_gradients(form.fused, inputs), with_gradients(form.fused, inputs));
    }
  }
}

namespace {

// What a layer's product makes of the roundings of what it reads, in the largest magnitude: some halves of an
// ulp, and in fp32 sums over the channels.
double layer_bound(at::ScalarType type) {
  return type == at::kFloat ? 1e-5 : 8 * half_ulp(type);
}

void check_near(const Tensors& got, const Tensors& wanted, double bound) {
  REQUIRE(got.size() == wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    REQUIRE(got[i].defined() == wanted[i].defined());
    if (got[i].defined()) CHECK(distance(got[i], wanted[i].cpu().to(at::kDouble)) <= bound);
  }
}

Tensors layer_inputs(const Operator& op, at::ScalarType type, bool wide_tokens, bool wide_weight, int64_t d) {
  Tensors inputs = converted(op.inputs(3, 65, d), type);
  const bool is_gelu = op.name[0] == 'b';
  if (wide_tokens) inputs[is_gelu ? 1 : 0] = inputs[is_gelu ? 1 : 0].to(at::kFloat);
  if (wide_weight) inputs[3] = inputs[3].to(at::kFloat), inputs[4] = inputs[4].to(at::kFloat);
  return inputs;
}

}  // namespace

TEST_CASE("layers whose input is recomputed are near fp64 and near those that keep it", "[device]") {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const Operator& op : layers()) {
      for (const bool wide_tokens : {false, true}) {
        for (const int64_t d : {40, 257, 384}) {
          CAPTURE(op.name, type, wide_tokens, d);
          const Tensors inputs = layer_inputs(op, type, wide_tokens, /*wide_weight=*/false, d);
          const Tensors again = with_gradients(op.fused, there(inputs));
          CHECK(again[0].scalar_type() == type);
          check_near(again, with_gradients(op.composed, converted(inputs, at::kDouble), type),
                     layer_bound(type));
          check_near(again, with_gradients(op.composed, there(inputs)), layer_bound(type));
          check_alike(again, with_gradients(op.fused, there(inputs)));
        }
      }
    }
  }
}

TEST_CASE("layers under autocast have its type", "[device]") {
  for (const at::ScalarType half : {at::kBFloat16, at::kHalf}) {
    for (const Operator& op : layers()) {
      CAPTURE(op.name, half);
      const Tensors inputs = layer_inputs(op, half, /*wide_tokens=*/true, /*wide_weight=*/true, 40);
      const auto under_autocast = [&](const Tensors& in) {
        const dtk::policies::AutocastGuard autocast(device().type(), true, half);
        return op.fused(in);
      };
      const Tensors got = with_gradients(under_autocast, there(inputs));
      CHECK(got[0].scalar_type() == half);
      check_near(got, with_gradients(op.composed, converted(inputs, at::kDouble), half), layer_bound(half));
    }
  }
}

// The inputs are written late, behind products on a stream that is not the default one.
TEST_CASE("operators take their turn on the stream that is current", "[device]") {
  const c10::impl::VirtualGuardImpl guard(device().type());
  if (device().is_cpu()) return;  // has no streams
  const c10::Stream stream = guard.getStreamFromGlobalPool(device(), /*isHighPriority=*/false);
  const Tensor busy = at::ones({4096, 4096}, at::TensorOptions(device()));
  Tensor product = at::empty_like(busy);
  for (const Form& form : forms()) {
    CAPTURE(form.of, form.types);
    const Tensors values = there(in_types(operator_of(form.of).inputs(2, 67, 132), form.types));
    const Tensors wanted = with_gradients(form.fused, values);
    const Tensor dy = normal(wanted[0].sizes(), 9).to(wanted[0].options());
    guard.synchronizeDevice(device().index());
    const c10::StreamGuard current(stream);
    const auto written_late = [&](const Tensors& of) {
      Tensors late;
      for (const Tensor& one : of) late.push_back(at::zeros_like(one));
      for (int i = 0; i < 4; ++i) at::mm_out(product, busy, busy);
      for (size_t i = 0; i < of.size(); ++i) late[i].copy_(of[i]);
      return late;
    };
    Tensors leaves = written_late(values);
    for (Tensor& leaf : leaves) leaf.requires_grad_(true);
    const Tensor y = form.fused(leaves);
    Tensors got{y.detach()};
    const Tensors gradients = torch::autograd::grad({y}, leaves, written_late({dy}));
    got.insert(got.end(), gradients.begin(), gradients.end());
    check_alike(got, wanted);
  }
}

TEST_CASE("what the CUDA kernels do not take is refused by name", "[device]") {
  if (device().is_cpu()) return;
  const Tensor x = at::zeros({2, 3, 4}, at::TensorOptions(device()).dtype(at::kDouble));
  CHECK_THROWS_WITH(dtk::ops::silu_mul(x, x),
                    Contains("dtk: the CUDA kernels take Float, BFloat16 and Half, not Double"));
  const Tensor half = x.to(at::kHalf);
  CHECK_THROWS_WITH(dtk::ops::rms_norm(half, half[0][0], kEps, at::kFloat), Contains("is no combination"));
}
