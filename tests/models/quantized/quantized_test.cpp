// Weights in 4 and 8 bits against bitsandbytes' own, and what a product with one keeps.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <dtk/models/quantized.h>
#include <dtk/models/seam.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/saved_tensors.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <map>

#include "support/catch.h"
#include "support/fixture.h"

using namespace dtk::models;
namespace policies = dtk::policies;

namespace {

const dtk::test::Fixture& fixture() {
  static const dtk::test::Fixture one = dtk::test::read_fixture("quantized");
  return one;
}

// Of one type, and equal; NaN is equal to nothing.
bool alike(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && at::equal(a, b);
}

PackedWeight some_packed(Packing packing, int64_t out, int64_t in) {
  return packed(at::randn({out, in}, policies::make_generator(at::kCPU, 4), at::kFloat), packing, true);
}

}  // namespace

TEST_CASE("NF4 packs to the bytes of bitsandbytes, and unpacks to its values") {
  const std::string name = GENERATE("plain", "small", "wide");
  const bool nested = GENERATE(false, true);
  CAPTURE(name, nested);
  const at::Tensor& weight = fixture().at(name);
  const std::string kind = name + (nested ? ".nf4.nested" : ".nf4");
  const PackedWeight ours = packed(weight, Packing::nf4, nested);
  CHECK(alike(ours.codes, fixture().at(kind + ".codes")));
  CHECK(alike(ours.absmax, fixture().at(kind + ".absmax")));
  if (nested) {
    CHECK(alike(ours.nested_absmax, fixture().at(kind + ".nested_absmax")));
    CHECK(alike(ours.nested_offset, fixture().at(kind + ".nested_offset")));
    const at::Tensor& map = fixture().at("nested_map");
    CHECK(std::equal(nested_values().begin(), nested_values().end(), map.const_data_ptr<float>()));
  }
  CHECK(alike(unpacked(ours, at::kFloat), fixture().at(kind + ".float32")));
  CHECK(alike(unpacked(ours, at::kBFloat16), fixture().at(kind + ".bfloat16")));
}

TEST_CASE("tensors that are not those of a packed weight are refused by name before a kernel reads them") {
  PackedWeight nf4 = some_packed(Packing::nf4, 32, 96), int8 = some_packed(Packing::int8, 8, 16);
  const auto refused = [](const PackedWeight& weight, const std::string& words) {
    CHECK_THROWS_WITH(unpacked(weight, at::kFloat), Catch::Contains(words));
  };
  PackedWeight wrong = nf4;
  wrong.in = 98;
  refused(wrong, "dtk::dequantize_nf4: codes is Byte [1536, 1] strides [1, 1]; allowed: 1568 values in Byte");
  wrong = nf4;
  wrong.absmax = nf4.absmax.to(at::kFloat);
  refused(wrong, "dtk::dequantize_nf4: absmax is Float [48]");
  wrong = nf4;
  wrong.nested_absmax = at::zeros({2});
  refused(wrong, "dtk::dequantize_nf4: nested_absmax is Float [2]");
  wrong = nf4;
  wrong.nested_offset = at::Tensor();
  refused(wrong, "nested_absmax without nested_offset");
  wrong = int8;
  wrong.codes = int8.codes.t();
  refused(wrong, "dtk::dequantize_int8: codes is Char [16, 8] strides [1, 16]");
  wrong.codes = int8.codes.narrow(0, 0, 4);
  refused(wrong, "dtk::dequantize_int8: absmax is Float [8]");
  CHECK_THROWS_WITH(packed(at::zeros({4}), Packing::nf4, false),
                    Catch::Contains("packed: the weight is Float [4]"));
}

TEST_CASE("int8 packs to the bytes of bitsandbytes; a row of zeros stays one") {
  const std::string name = GENERATE("plain", "small", "wide");
  const PackedWeight ours = packed(fixture().at(name).to(at::kFloat), Packing::int8, false);
  CHECK(alike(ours.codes, fixture().at(name + ".int8.codes")));
  CHECK(alike(ours.absmax, fixture().at(name + ".int8.absmax")));
  const at::Tensor values = unpacked(ours, at::kFloat);
  const at::Tensor step = ours.absmax.unsqueeze(1) / 127;
  CHECK(((values - fixture().at(name).to(at::kFloat)).abs() <= step * 0.5001).all().item<bool>());
}

TEST_CASE("a layer of the 7B takes the bytes in NF4 that its sizes say") {
  int64_t bytes = 0;
  for (const auto& [out, in, count] :
       {std::tuple<int64_t, int64_t, int64_t>{4096, 4096, 4}, {11008, 4096, 3}}) {
    const PackedWeight one = empty_packed(Packing::nf4, out, in, true, at::kMeta);
    bytes +=
        count * static_cast<int64_t>(one.codes.nbytes() + one.absmax.nbytes() + one.nested_absmax.nbytes());
    CHECK(one.nested_offset.nbytes() == 4);
  }
  CHECK(bytes == 104'399'104);
  CHECK(32 * bytes == 3'340'771'328);
}

TEST_CASE("a product with a packed weight is the one with its values, bit for bit, and keeps neither") {
  const Packing packing = GENERATE(Packing::nf4, Packing::int8);
  const bool bf16 = GENERATE(false, true);
  policies::CountingAllocatorGuard counting;
  const policies::SavedTensorEngineGuard engine;
  const PackedWeight weight = some_packed(packing, 96, 64);
  for (const auto& [name, tensor] : weight.tensors()) policies::mark_frozen(tensor);
  const at::Tensor plain = unpacked(weight, bf16 ? at::kBFloat16 : at::kFloat);
  policies::mark_frozen(plain);
  const at::Tensor x =
      at::randn({2, 5, 64}, policies::make_generator(at::kCPU, 5), at::kFloat).requires_grad_(true);
  const int64_t weight_bytes = static_cast<int64_t>(plain.nbytes());
  const auto run = [&](const std::function<at::Tensor(const at::Tensor&)>& product) {
    const policies::AutocastGuard autocast(at::kCPU, bf16, at::kBFloat16);
    policies::cpu_accounts().start_event_log();
    at::Tensor y = product(x);
    const policies::AutocastGuard no_autocast(at::kCPU, false, at::kBFloat16);
    torch::autograd::backward({y.to(at::kFloat).pow(2).sum()}, {});
    std::map<uint64_t, int64_t> alive;
    int64_t unpacked_at_once = 0, unpacked = 0;
    for (const policies::MemoryEvent& event : policies::cpu_accounts().stop_event_log()) {
      if (event.bytes != weight_bytes) continue;
      if (event.kind == policies::MemoryEvent::Kind::birth) {
        ++unpacked;
        alive[event.serial] = event.bytes;
      }
      if (event.kind == policies::MemoryEvent::Kind::death) alive.erase(event.serial);
      unpacked_at_once = std::max<int64_t>(unpacked_at_once, std::ssize(alive));
    }
    Tensors all = pack(y.detach(), x.grad().clone());
    x.mutable_grad().reset();
    return std::tuple(std::move(all), unpacked, unpacked_at_once);
  };
  const auto [of_plain, none, never] = run([&](const at::Tensor& in) { return at::linear(in, plain); });
  const auto [of_packed, twice, at_once] =
      run([&](const at::Tensor& in) { return packed_linear(in, weight); });
  CHECK(none == 0);
  CHECK(twice == 2);  // forward and backward
  CHECK(at_once == 1);
  for (size_t i = 0; i < of_plain.size(); ++i) CHECK(alike(of_plain[i], of_packed[i]));
}
