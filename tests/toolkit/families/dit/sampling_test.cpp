// Drawing from a DiT: what depends on the seed, and what does not depend on how many are drawn at a time.
#include "toolkit/families/dit/sampling.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/memory_ledger.h>

#include "support/catch.h"
#include "toolkit/train/apply_policies.h"

using namespace dtk;

namespace {

models::Dit model_of(bool learn_sigma) {
  models::DitOptions options;
  options.depth = 1;
  options.hidden = 16;
  options.heads = 2;
  options.patch = 4;
  options.image_size = 8;
  options.channels = 2;
  options.classes = 4;
  options.learn_sigma = learn_sigma;
  models::Dit dit(options, at::kCPU, policies::make_generator(at::kCPU, 3));
  at::NoGradGuard no_grad;
  const at::Generator generator = policies::make_generator(at::kCPU, 4);
  for (const auto& [name, parameter] : dit.parameters()) {
    if (parameter.requires_grad()) parameter.detach().normal_(0.0, 0.1, generator);
  }
  return dit;
}

const std::vector<int64_t> labels = {0, 1, 2, 3, 0, 1, 2};

struct Case {
  Prediction objective;
  SamplerKind sampler;
  double eta;
  bool learn_sigma, random;
};
const Case cases[] = {{Prediction::velocity, SamplerKind::euler, 0, false, false},
                      {Prediction::velocity, SamplerKind::heun, 0, false, false},
                      {Prediction::epsilon, SamplerKind::ddpm, 0, true, true},
                      {Prediction::epsilon, SamplerKind::ddim, 0, true, false},
                      {Prediction::v, SamplerKind::ddim, 0.5, false, true},
                      {Prediction::x0, SamplerKind::ddpm, 0, false, true}};

dit::DrawOptions drawn_in_steps(SamplerKind sampler, int64_t steps) {
  return {{.sampler = sampler}, steps, {}};
}

at::Tensor drawn(const Case& one, int64_t batch, double guidance = 2.0, int64_t seed = 5, int64_t steps = 6) {
  dit::DrawOptions options = drawn_in_steps(one.sampler, steps);
  options.sampler.eta = one.eta;
  options.grid.guidance = guidance;
  options.grid.seed = seed;
  return dit::sample(model_of(one.learn_sigma), {.objective = one.objective}, options, labels, batch);
}

}  // namespace

TEST_CASE("samples do not depend on how many are drawn at a time, for every sampler") {
  for (const Case& one : cases) {
    INFO(policies::text_of(one.objective) << ", " << policies::text_of(one.sampler));
    const at::Tensor whole = drawn(one, 7);
    CHECK(whole.sizes() == at::IntArrayRef({7, 2, 8, 8}));
    CHECK(whole.isfinite().all().item<bool>());
    CHECK(at::equal(drawn(one, 7), whole));
    for (const int64_t batch : {1, 3}) {
      CHECK((drawn(one, batch) - whole).abs().max().item<double>() < 1e-4 * whole.abs().max().item<double>());
    }
    CHECK_FALSE(at::allclose(drawn(one, 7, 2.0, 6), whole, 0.1, 0.1));  // another seed
    CHECK_FALSE(at::allclose(drawn(one, 7, 1.0), whole, 0.01, 0.01));   // no guidance
  }
}

TEST_CASE("ranks draw the micro-batches that are theirs, and together the bits of one") {
  const dit::DrawOptions options = drawn_in_steps(SamplerKind::ddpm, 3);
  const models::Dit model = model_of(false);
  const auto drawn_by = [&](const RankShare& share) {
    return dit::sample(model, {.objective = Prediction::v}, options, labels, 3, {}, share);
  };
  const at::Tensor whole = drawn_by({});
  for (const int64_t ranks : {2, 3, 4}) {  // of three micro-batches
    at::Tensor bits = at::zeros_like(whole, at::kInt);
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const at::Tensor own = drawn_by({rank, ranks});
      const int64_t rows = own.ne(0).flatten(1).any(1).sum().item<int64_t>();
      CHECK(rows == (ranks == 2 && rank == 0 ? 4 : rank == 2 ? 1 : rank == 3 ? 0 : 3));
      bits.add_(own.view(at::kInt));
      const at::Tensor moved = own + 1;
      dit::zero_others(moved, 3, {rank, ranks});
      CHECK(moved.ne(0).flatten(1).any(1).sum().item<int64_t>() == rows);
    }
    CHECK(at::equal(bits, whole.view(at::kInt)));
  }
}

TEST_CASE("samples of one class differ, and noise of steps is drawn where the sampler has any") {
  for (const Case& one : cases) {
    INFO(policies::text_of(one.objective) << ", " << policies::text_of(one.sampler));
    const at::Tensor x = drawn(one, 7);
    CHECK_FALSE(at::allclose(x[0], x[4], 0.1, 0.1));
    Case deterministic = one;
    if (!one.random) continue;
    deterministic.sampler = SamplerKind::ddim, deterministic.eta = 0;
    CHECK_FALSE(at::allclose(drawn(deterministic, 7), x, 0.01, 0.01));
  }
}

TEST_CASE("sampling touches no default generator") {
  at::manual_seed(3);
  const auto state = [] { return policies::generator_state(at::globalContext().defaultGenerator(at::kCPU)); };
  const std::string before = state();
  for (const Case& one : cases) drawn(one, 3);
  CHECK(state() == before);
}

TEST_CASE("the noise of one step is held at a time") {
  const policies::CountingAllocatorGuard counting;
  const models::Dit dit = model_of(false);
  const std::vector<int64_t> many(64, 1);
  const auto peak = [&](int64_t steps) {
    policies::cpu_accounts().reset_phases("sample");
    const dit::DrawOptions options = drawn_in_steps(SamplerKind::ddpm, steps);
    dit::sample(dit, {.objective = Prediction::epsilon}, options, many, 64);
    return policies::highest(policies::cpu_accounts().phases()).peak.bytes;
  };
  const int64_t one_step = 64 * 2 * 8 * 8 * 4, few = peak(5), many_steps = peak(25);
  CHECK(many_steps - few < one_step);
  CHECK(many_steps - few == 20 * 72);  // the tables of as many more steps
}

TEST_CASE("drawing gives up between two steps") {
  const dit::DrawOptions options = drawn_in_steps(SamplerKind::ddpm, 6);
  std::vector<int64_t> done;
  const at::Tensor x = dit::sample(model_of(false), {.objective = Prediction::v}, options, labels, 3,
                                   [&](int64_t steps_done, int64_t steps) {
                                     CHECK(steps == 18);  // three micro-batches
                                     done.push_back(steps_done);
                                     return steps_done < 8;
                                   });
  CHECK_FALSE(x.defined());
  CHECK(done == std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8});
}

TEST_CASE(
    "tokens that run a few at a time change no sample, and an MLP holds the inner numbers of those alone") {
  const policies::CountingAllocatorGuard counting;
  constexpr int64_t kSamples = 16, kTokens = 16, kHidden = 96;
  models::DitOptions shape;
  shape.depth = 1;
  shape.hidden = kHidden;
  shape.heads = 2;
  shape.patch = 2;
  shape.image_size = 8;
  shape.channels = 1;
  shape.classes = 4;
  shape.learn_sigma = false;
  const std::vector<int64_t> many(kSamples, 1);
  const auto sampled = [&](std::optional<int64_t> chunk) {
    models::Dit dit(shape, at::kCPU, policies::make_generator(at::kCPU, 3));
    policies::PolicyOptions options;
    options.precision.enabled = policies::Enabled::off;
    options.inference.token_chunk = chunk;
    policies::PolicySet set =
        put_policies_in(options, dit.seam, dit.parameters(), dit.paths(), /*training=*/false);
    const auto scope = set.forward_scope();
    const int64_t before = policies::cpu_accounts().live().bytes;
    policies::cpu_accounts().reset_phases("sample");
    at::Tensor x = dit::sample(dit, {.objective = Prediction::velocity},
                               drawn_in_steps(SamplerKind::euler, 3), many, kSamples);
    return std::pair(std::move(x), policies::highest(policies::cpu_accounts().phases()).peak.bytes - before);
  };
  const auto [whole, peak] = sampled(std::nullopt);
  const auto [some, lower] = sampled(4);
  CHECK((some - whole).abs().max().item<double>() <= 1e-5 * whole.abs().max().item<double>());
  // Before and behind the rectifier, four times as wide as tokens are: of all of them, or of a quarter.
  const int64_t inner = kSamples * kTokens * 4 * kHidden * 4;
  CHECK(peak - lower > inner);
  CHECK(peak - lower <= 2 * inner);
}
