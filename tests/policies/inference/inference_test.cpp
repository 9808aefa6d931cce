// Rows a few at a time: which, in which order, with the values of all at once, and how many bytes that saves.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <dtk/policies/inference.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/policy_set.h>

#include "support/catch.h"

using namespace dtk::policies;

namespace {

Seam with(const InferenceOptions& options) {
  Seam seam;
  InferencePolicy(options).apply(seam);
  return seam;
}

InferenceOptions of_tokens(int64_t chunk) {
  InferenceOptions options;
  options.token_chunk = chunk;
  return options;
}

Tensors list(at::Tensor one) {
  Tensors all;
  all.push_back(std::move(one));
  return all;
}

}  // namespace

TEST_CASE("rows run a few at a time, each once and in order, by the size that is set for their kind") {
  InferenceOptions options;
  options.frame_chunk = 3;
  options.head_chunk = 2;
  options.token_chunk = 4;
  const Seam seam = with(options);
  const auto sizes_of = [&](const char* path, const RowsOf& rows) {
    std::vector<int64_t> sizes;
    int64_t next = 0;
    const ModuleFn fn = [&](Tensors&& in) {
      sizes.push_back(in[0].size(rows.dim));
      CHECK(in[0].flatten()[0].item<int64_t>() == next);
      next += in[0].numel();
      return list(in[0] * 2);
    };
    at::Tensor x =
        at::arange(7).view(rows.dim == 0 ? std::vector<int64_t>{7, 1} : std::vector<int64_t>{1, 7});
    const at::NoGradGuard no_grad;
    const Tensors found = seam.rows(path, fn, list(x), rows);
    CHECK(found.size() == 1);
    CHECK(found[0].equal(x * 2));
    return sizes;
  };
  CHECK(sizes_of("blocks.0", {.dim = 0}) == std::vector<int64_t>{3, 3, 1});
  CHECK(sizes_of("depth_head", {.dim = 0}) == std::vector<int64_t>{2, 2, 2, 1});
  CHECK(sizes_of("depth_head", {.dim = 1}) == std::vector<int64_t>{4, 3});
}

TEST_CASE("where no size is set, as few rows run as fill a product, and all where nobody says what does") {
  const InferenceOptions options;
  CHECK(rows_at_a_time(options, "blocks.0", {.dim = 0, .each = 893}) == 3);
  CHECK(rows_at_a_time(options, "blocks.0", {.dim = 0, .each = 5000}) == 1);
  CHECK(rows_at_a_time(options, "mlp", {.dim = 1, .each = 1}) == 4096);
  CHECK(rows_at_a_time(options, "mlp", {.dim = 1}) == 0);
  InferenceOptions whole;
  whole.frame_chunk = 0;
  CHECK(rows_at_a_time(whole, "blocks.0", {.dim = 0, .each = 893}) == 0);
}

TEST_CASE("with gradients, and where the policy is off, all rows run at once") {
  int calls = 0;
  const ModuleFn fn = [&](Tensors&& in) {
    ++calls;
    return list(in[0] * 2);
  };
  with(of_tokens(1)).rows("mlp", fn, list(at::ones({1, 5})), {.dim = 1});
  CHECK(calls == 1);
  InferenceOptions off = of_tokens(1);
  off.enabled = Enabled::off;
  const Seam seam = with(off);
  CHECK(seam.taps == Taps::all);
  CHECK_FALSE(seam.divides_tokens);
  const at::NoGradGuard no_grad;
  seam.rows("mlp", fn, list(at::ones({1, 5})), {.dim = 1});
  CHECK(calls == 2);
}

TEST_CASE(
    "a product of rows takes as many bytes as some of them, and is written over what nobody else holds") {
  const CountingAllocatorGuard counting;
  constexpr int64_t kTokens = 4096, kWidth = 64, kInner = 256;
  const at::Tensor in = at::randn({kInner, kWidth}), out = at::randn({kWidth, kInner});
  const ModuleFn fn = [&](Tensors&& x) {
    at::Tensor h = at::linear(x[0], in);
    h = at::linear(h, out);
    return list(x[0] + h);
  };
  const at::NoGradGuard no_grad;
  const auto peak_of = [&](const Seam& seam, bool shared) {
    at::Tensor x = at::ones({1, kTokens, kWidth});
    const at::Tensor held = shared ? x : at::Tensor();
    const int64_t before = cpu_accounts().live().bytes;
    cpu_accounts().reset_phases("rows");
    const Tensors found = seam.rows("mlp", fn, list(std::move(x)), {.dim = 1});
    CHECK(found[0].sizes() == at::IntArrayRef({1, kTokens, kWidth}));
    return highest(cpu_accounts().phases()).peak.bytes - before;
  };
  constexpr int64_t kFloat = 4, kChunk = 256;
  const auto inner = [](int64_t rows) { return rows * kInner * kFloat; };
  const auto narrow = [](int64_t rows) { return rows * kWidth * kFloat; };
  // h of both widths, then h and the sum.
  const int64_t whole = inner(kTokens) + narrow(kTokens);
  CHECK(peak_of(Seam(), false) == whole);
  CHECK(peak_of(with(of_tokens(kChunk)), false) == inner(kChunk) + narrow(kChunk));
  CHECK(peak_of(with(of_tokens(kChunk)), true) == narrow(kTokens) + inner(kChunk) + narrow(kChunk));
}

TEST_CASE("rows that lie on each other in memory are not written over") {
  const at::NoGradGuard no_grad;
  const ModuleFn fn = [](Tensors&& in) { return list(in[0] + 1); };
  const at::Tensor found =
      with(of_tokens(1)).rows("mlp", fn, list(at::zeros({1, 1, 3}).expand({1, 4, 3})), {.dim = 1}).front();
  CHECK(found.equal(at::ones({1, 4, 3})));
}

TEST_CASE("queries attend to all keys a few at a time, but where they see different ones") {
  InferenceOptions options;
  options.query_chunk = 3;
  const at::Tensor q = at::randn({2, 2, 8, 4}), k = at::randn({2, 2, 9, 4}), v = at::randn({2, 2, 9, 4});
  std::vector<int64_t> sizes;
  Seam seam;
  seam.attention = [&sizes, inner = seam.attention](at::Tensor some, at::Tensor keys, at::Tensor values,
                                                    const AttentionCall& call) {
    sizes.push_back(some.size(2));
    return inner(std::move(some), std::move(keys), std::move(values), call);
  };
  InferencePolicy(options).apply(seam);
  const at::NoGradGuard no_grad;
  const at::Tensor whole = at::scaled_dot_product_attention(q, k, v);
  CHECK(at::allclose(seam.attention(q.clone(), k, v, {}), whole, 0, 1e-6));
  CHECK(sizes == std::vector<int64_t>{3, 3, 2});
  sizes.clear();
  seam.attention(q.clone(), k, v, {.causal = true});
  CHECK(sizes == std::vector<int64_t>{8});
  sizes.clear();
  seam.attention(q.clone(), k, v, {.mask = at::ones({8, 9}, at::kBool)});
  CHECK(sizes == std::vector<int64_t>{8});
  sizes.clear();
  seam.attention(q.clone(), k, v, {.mask = at::ones({1, 9}, at::kBool)});
  CHECK(sizes == std::vector<int64_t>{3, 3, 2});
}

TEST_CASE("a set of policies has the one of inference only where nothing is trained") {
  const at::Tensor weight = at::ones({2, 2}).set_requires_grad(true);
  const auto names = [&](bool training) {
    Seam seam;
    const PolicySet set({}, {at::kCPU, {{"weight", weight}}, {"net"}, training}, seam);
    std::vector<std::string> all;
    for (const PolicyReport& report : set.reports()) all.push_back(report.policy);
    return all;
  };
  CHECK(names(true) == std::vector<std::string>{"precision", "attention", "fusion", "ema", "checkpoint"});
  CHECK(names(false) == std::vector<std::string>{"precision", "attention", "inference"});
  Seam seam;
  PolicySet set({}, {at::kCPU, {{"weight", weight}}, {"net"}, false}, seam);
  const auto scope = set.forward_scope();
  CHECK_FALSE((weight * 2).requires_grad());
}

TEST_CASE("what of the policy can be left out by itself is named with its value then") {
  PolicyOptions options;
  const auto names = [&] {
    std::vector<std::string> all;
    for (const OtherSetting& part : policy_kind("inference").parts_left_out(options))
      all.push_back(part.other);
    return all;
  };
  std::vector<std::string> wanted{"gradients = true", "narrow_weights = false", "taps = \"tapped\"",
                                  "taps = \"all\"",   "frame_chunk = 0",        "token_chunk = 0",
                                  "head_chunk = 0"};
  CHECK(names() == wanted);
  options.inference.query_chunk = 7;  // else queries run by tokens
  wanted.insert(wanted.end() - 1, "query_chunk = 0");
  CHECK(names() == wanted);
  options.inference.enabled = Enabled::off;
  CHECK(policy_kind("inference").parts_left_out(options).empty());
}
