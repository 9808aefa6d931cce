// What a segment keeps of its batch norms on the CPU: 2 numbers a channel, so that a recomputation does not
// take the batch's statistics again; bits are those of a plain run.
#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <dtk/policies/checkpoint.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/saved_tensors.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include <vector>

#include "support/catch.h"
#include "support/device/settled_memory.h"
#include "support/policies/segment_tests.h"

using namespace dtk::policies;
using dtk::test::Fixture;
using dtk::test::settled_live;

namespace {

thread_local int64_t by_known_statistics = 0;

// While alive, counts the batch norms of this thread that are given their statistics.
class NormCount {
 public:
  NormCount() : handle_(at::addThreadLocalCallback(callback())) { by_known_statistics = 0; }
  ~NormCount() { at::removeCallback(handle_); }
  int64_t known() const { return by_known_statistics; }

 private:
  static at::RecordFunctionCallback callback() {
    return at::RecordFunctionCallback(
               [](const at::RecordFunction& call) -> std::unique_ptr<at::ObserverContext> {
                 const bool is_norm = std::string_view(call.name()) == "aten::native_batch_norm";
                 if (is_norm && !call.inputs()[5].toBool()) ++by_known_statistics;
                 return nullptr;
               })
        .needsInputs(true)
        .scopes({at::RecordScope::FUNCTION});
  }
  const at::CallbackHandle handle_;
};

struct Norm {
  at::Tensor weight, bias, mean, variance;

  at::Tensor operator()(const at::Tensor& x) const {
    return at::batch_norm(x, weight, bias, mean, variance, /*training=*/true, 0.1, 1e-5,
                          /*cudnn_enabled=*/false);
  }
};

Norm norm_of(int64_t channels, at::ScalarType type = at::kFloat) {
  const auto random = [&] { return at::randn({channels}, type).requires_grad_(true); };
  return {random(), random(), at::zeros({channels}, type), at::ones({channels}, type)};
}

struct NormStep {
  Tensors gradients, running;
  int64_t known = 0;
};

// One step of fn, which uses `norms`, as one segment or plainly.
NormStep step(bool segment, const ModuleFn& fn, const at::Tensor& x, const std::vector<Norm>& norms,
              const std::shared_ptr<KeptResults>& keep = nullptr) {
  NormStep outcome;
  Tensors leaves{x};
  for (const Norm& norm : norms) {
    if (norm.mean.defined()) norm.mean.zero_();
    if (norm.variance.defined()) norm.variance.fill_(1);
    for (const at::Tensor& one : {norm.weight, norm.bias})
      if (one.defined()) leaves.push_back(one);
  }
  const at::Tensor loss = (segment ? checkpoint("net", fn, {x}, keep) : fn({x}))[0].to(at::kFloat).sum();
  const NormCount count;
  outcome.gradients = torch::autograd::grad({loss}, leaves);
  outcome.known = count.known();
  for (const Norm& norm : norms) {
    for (const at::Tensor& one : {norm.mean, norm.variance})
      if (one.defined()) outcome.running.push_back(one.clone());
  }
  return outcome;
}

void check_equal(const Tensors& a, const Tensors& b) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) CHECK(at::equal(a[i], b[i]));
}

void check_equal(const NormStep& a, const NormStep& b) {
  check_equal(a.gradients, b.gradients);
  check_equal(a.running, b.running);
}

}  // namespace

TEST_CASE("a recomputation takes a batch norm's statistics from forward, bit for bit") {
  Fixture fixture;
  const auto format = GENERATE(at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast);
  const auto [type, of_parameters, known] =
      GENERATE(table<at::ScalarType, at::ScalarType, int64_t>({{at::kFloat, at::kFloat, 1},
                                                               {at::kDouble, at::kDouble, 1},
                                                               {at::kBFloat16, at::kFloat, 1},
                                                               {at::kBFloat16, at::kBFloat16, 0}}));
  const int form = GENERATE(0, 1, 2, 3);  // no weight, no bias, no running statistics
  CAPTURE(format, type, of_parameters, form);
  if (form == 3 && known == 1 && type == at::kBFloat16) return;  // nothing says that statistics are in fp32
  at::manual_seed(3);
  constexpr int64_t kChannels = 19;
  Norm norm = norm_of(kChannels, of_parameters);
  if (form == 1) norm.weight.reset();
  if (form == 2) norm.bias.reset();
  if (form == 3) norm = {{}, {}, {}, {}};
  const at::Tensor x =
      (at::randn({8, kChannels, 9, 7}) * 3 + 1).to(type).contiguous(format).requires_grad_(true);
  const ModuleFn fn = [&](Tensors&& in) { return Tensors{norm(in[0]).exp().tanh()}; };
  const NormStep plain = step(false, fn, x, {norm}), segment = step(true, fn, x, {norm});
  CHECK(plain.known == 0);
  CHECK(segment.known == known);
  check_equal(plain, segment);
}

TEST_CASE("what is kept of a batch norm are 2 numbers a channel") {
  Fixture fixture;
  constexpr int64_t kRows = 1000, kChannels = 16;
  const Norm norm = norm_of(kChannels);
  const at::Tensor x = at::randn({kRows, kChannels}).requires_grad_(true);
  const ModuleFn fn = [&](Tensors&& in) { return Tensors{norm(in[0]).exp().sum()}; };
  const auto kept = [&](bool segment) {
    const int64_t before = settled_live();
    const Tensors out = segment ? checkpoint("net", fn, {x}) : fn({x});
    return settled_live() - before - static_cast<int64_t>(out[0].nbytes());
  };
  constexpr int64_t kStatistics = 2 * kChannels * 4;
  CHECK(kept(false) == kStatistics + kRows * kChannels * 4);  // and the result of exp
  CHECK(kept(true) == kStatistics);
}

TEST_CASE("each of several norms gets its own statistics, nested, shared or among kept results") {
  Fixture fixture;
  at::manual_seed(4);
  constexpr int64_t kChannels = 5;
  const std::vector<Norm> norms{norm_of(kChannels), norm_of(kChannels)};
  const at::Tensor x = at::randn({11, kChannels}).requires_grad_(true);
  const auto nested = [&](Tensors&& in) {
    const ModuleFn inner = [&](Tensors&& h) { return Tensors{norms[1](norms[0](h[0]).sin()).exp()}; };
    return checkpoint("net.inner", inner, {norms[0](in[0]).tanh()})[0];
  };
  const ModuleFn chained = [&](Tensors&& in) {
    const at::Tensor first = named("first", norms[0](in[0]));
    const at::Tensor again = norms[0](first.sin());
    return Tensors{norms[1](again.tanh()).exp().sin()};
  };
  const auto kept = [](const char* entry) {
    return std::make_shared<KeptResults>(std::vector<std::string>{entry});
  };
  const NormStep plain = step(false, chained, x, norms);
  const NormStep all = step(true, chained, x, norms),
                 without_first = step(true, chained, x, norms, kept("first")),
                 none = step(true, chained, x, norms, kept("aten::native_batch_norm"));
  CHECK(all.known == 3);
  CHECK(without_first.known == 2);
  CHECK(none.known == 0);
  for (const NormStep& one : {all, without_first, none}) check_equal(plain, one);

  const ModuleFn outer = [&](Tensors&& in) { return Tensors{nested(std::move(in)).sin()}; };
  const NormStep plain_nested = step(false, outer, x, norms), twice = step(true, outer, x, norms);
  CHECK(plain_nested.known == 2);  // the inner segment's own recomputation
  CHECK(twice.known == 1 + 2 + 2);
  check_equal(plain_nested, twice);
}

TEST_CASE("a recomputation that runs its norms in another order takes their statistics again") {
  Fixture fixture;
  at::manual_seed(5);
  constexpr int64_t kChannels = 4;
  const std::vector<Norm> norms{norm_of(kChannels), norm_of(kChannels)};
  const at::Tensor x = at::randn({6, kChannels}).requires_grad_(true);
  const ModuleFn swapped = [&](Tensors&& in) {
    const size_t first = recomputing() ? 1 : 0;
    return Tensors{norms[1 - first](norms[first](in[0]).sin()).exp()};
  };
  const ModuleFn shared = [&](Tensors&& in) { return Tensors{norms[0](norms[0](in[0]).sin()).exp()}; };
  CHECK(step(true, shared, x, {norms[0]}).known == 2);
  const Tensors out = checkpoint("net", swapped, {x});
  const NormCount count;
  torch::autograd::grad({out[0].sum()}, {x});
  CHECK(count.known() == 0);
}

TEST_CASE("norms of statistics that change with the segment recompute them") {
  Fixture fixture;
  at::manual_seed(6);
  constexpr int64_t kChannels = 3;
  const at::Tensor x = at::randn({9, kChannels}).requires_grad_(true);
  const ModuleFn fn = [](Tensors&& in) {
    const Norm own{{}, {}, at::zeros({kChannels}), at::ones({kChannels})};
    const at::Tensor h = own(in[0]).exp();
    return Tensors{(h * own.mean * own.variance).sin()};
  };
  const NormStep plain = step(false, fn, x, {}), segment = step(true, fn, x, {});
  CHECK(segment.known == 0);
  check_equal(plain, segment);
}
