// LLaVA against the original: sizes, features, logits, loss, gradients, and what is not computed.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <dtk/models/llava.h>
#include <dtk/policies/memory_ledger.h>
#include <torch/csrc/autograd/autograd.h>

#include <map>
#include <set>

#include "support/catch.h"
#include "support/fixture.h"
#include "toolkit/train/apply_policies.h"

using namespace dtk::models;

namespace {

at::Generator generator(uint64_t seed) {
  return at::detail::createCPUGenerator(seed);
}

LlavaOptions tiny_options() {
  LlavaOptions options;
  options.vision = {64, 128, 3, 4, 28, 14};
  options.text = {64, 172, 2, 4, 96};
  options.trained = {.vision = true, .projector = true, .text = true};
  options.loss_chunk = 5;
  return options;
}

// As transformers calls it.
std::string their_name(std::string name) {
  const std::pair<std::string, std::string> prefixes[] = {
      {"model.vision_tower.vision_tower.vision_model.", "model.vision_tower.vision_model."},
      {"model.mm_projector.0.", "model.multi_modal_projector.linear_1."},
      {"model.mm_projector.2.", "model.multi_modal_projector.linear_2."},
      {"model.", "model.language_model."}};
  for (const auto& [own, theirs] : prefixes) {
    if (name.starts_with(own)) return theirs + name.substr(own.size());
  }
  return name;
}

const dtk::test::Fixture& fixture() {
  static const dtk::test::Fixture one = dtk::test::read_fixture("llava_tiny");
  return one;
}

void load(const Llava& model) {
  NamedTensors renamed;
  for (const auto& [name, parameter] : model.parameters()) renamed.emplace_back(their_name(name), parameter);
  dtk::test::load_parameters(renamed, fixture(), "w.");
}

Llava tiny(LlavaOptions options = tiny_options()) {
  Llava model(options, at::kCPU, generator(1));
  load(model);
  return model;
}

at::Tensor rows(const at::Tensor& chosen) {
  return chosen.flatten().nonzero().flatten();
}

// Of the fixture, where the ids of a picture's tokens are 90.
LlavaBatch batch_of(const at::Tensor& labelled) {
  const at::Tensor ids = fixture().at("input_ids");
  LlavaBatch batch;
  batch.ids = ids;
  batch.pictures = fixture().at("pixel_values");
  batch.picture_rows = rows(ids == 90);
  batch.feature_rows = at::arange(batch.picture_rows.size(0));
  batch.label_rows = rows(labelled);
  return batch;
}

// Row t says what stands at t + 1.
LlavaBatch training_batch() {
  const at::Tensor labels = fixture().at("labels");
  const at::Tensor next = at::constant_pad_nd(labels.slice(1, 1), {0, 1}, -100);
  LlavaBatch batch = batch_of(next != -100);
  batch.labels = next.flatten().index_select(0, batch.label_rows);
  return batch;
}

int64_t count(const Llava& model, const std::string& prefix) {
  int64_t all = 0;
  for (const auto& [name, parameter] : model.parameters()) {
    if (name.starts_with(prefix)) all += parameter.numel();
  }
  return all;
}

double worst(const at::Tensor& a, const at::Tensor& b) {
  REQUIRE(a.sizes() == b.sizes());
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

}  // namespace

TEST_CASE("a LLaVA of each published size has the published number of parameters") {
  LlavaOptions options;
  options.preset = LlavaPreset::of_7b;
  const Llava small(options, at::kMeta);
  CHECK(count(small, "model.vision_tower.") == 303'507'456);
  CHECK(count(small, "model.mm_projector.") == 20'979'712);
  CHECK(count(small, "") == 303'507'456 + 20'979'712 + 6'738'415'616);
  CHECK(options.image_tokens() == 576);
  CHECK(options.tower_layers() == 23);
  options.preset = LlavaPreset::of_13b;
  const Llava large(options, at::kMeta);
  CHECK(count(large, "model.mm_projector.") == 31'467'520);
  CHECK(count(large, "") == 303'507'456 + 31'467'520 + 13'015'864'320);
}

TEST_CASE("features, logits and loss of a LLaVA are those of the original") {
  Llava model = tiny();
  model.seam.fuses = [fuses = GENERATE(false, true)](std::string_view) { return fuses; };
  const at::NoGradGuard no_grad;
  CHECK(worst(model.encode(fixture().at("pixel_values")), fixture().at("image_features")) <= 1e-5);
  const at::Tensor mask = fixture().at("attention_mask") == 1;
  const at::Tensor wanted = fixture().at("logits").flatten(0, 1).index_select(0, rows(mask));
  CHECK(worst(model.logits(batch_of(mask)), wanted) <= 2e-5);
  CHECK(model.loss(training_batch()).item<double>() == Approx(5.282987).margin(5e-6));
}

TEST_CASE("gradients of a LLaVA are those of the original, and the layer behind the tap has none") {
  Llava model = tiny();
  model.seam.fuses = [fuses = GENERATE(false, true)](std::string_view) { return fuses; };
  at::Tensor loss = model.loss(training_batch());
  torch::autograd::backward({loss}, {});
  std::map<std::string, at::Tensor> gradients;  // by their names, sorted
  std::set<std::string> without;
  double squares = 0;
  for (const auto& [name, parameter] : model.parameters()) {
    if (!parameter.grad().defined()) {
      without.insert(name);
      continue;
    }
    gradients[their_name(name)] = parameter.grad();
    squares += parameter.grad().to(at::kDouble).pow(2).sum().item<double>();
  }
  CHECK(std::sqrt(squares) == Approx(9.75734).margin(1e-4));
  CHECK(without == std::set<std::string>(model.unused().begin(), model.unused().end()));
  CHECK(without.size() == 18);
  const at::Tensor norms = fixture().at("grad.norms_sorted_by_name");
  REQUIRE(norms.numel() == std::ssize(gradients));
  int64_t i = 0;
  for (const auto& [name, gradient] : gradients) {
    CAPTURE(name);
    CHECK(gradient.to(at::kDouble).norm().item<double>() ==
          Approx(norms[i++].item<double>()).epsilon(1e-4).margin(1e-6));
    if (fixture().has("grad." + name)) {
      const at::Tensor& wanted = fixture().at("grad." + name);
      CHECK(worst(gradient, wanted) <= 1e-4 * wanted.abs().max().item<double>());
    }
  }
}

TEST_CASE("the modules of a LLaVA run in the order of its paths, and the tower stops at the tap") {
  Llava model = tiny();
  std::vector<std::string> seen;
  model.seam.run = [&](std::string_view path, const ModuleFn& fn, Tensors&& in) {
    seen.emplace_back(path);
    return fn(std::move(in));
  };
  int causal = 0, others = 0;
  const Attention stock = model.seam.attention;
  model.seam.attention = [&](at::Tensor q, at::Tensor k, at::Tensor v, const AttentionCall& call) {
    CHECK_FALSE(call.mask.has_value());
    (call.causal ? causal : others) += 1;
    return stock(std::move(q), std::move(k), std::move(v), call);
  };
  const at::NoGradGuard no_grad;
  model.loss(training_batch());
  CHECK(seen == model.paths());
  CHECK(std::count_if(seen.begin(), seen.end(), [](const std::string& path) {
          return path.find("encoder.layers") != std::string::npos;
        }) == 2);
  CHECK(causal == 2);
  CHECK(others == 2);
}

TEST_CASE("what is frozen in a LLaVA has no gradient and is stored as it was asked for") {
  LlavaOptions options = tiny_options();
  options.trained = {.vision = false, .projector = true, .text = false};
  options.base = GENERATE(LlavaBase::fp32, LlavaBase::bf16);
  const Llava model = tiny(options);
  at::Tensor loss = model.loss(training_batch());
  torch::autograd::backward({loss}, {});
  for (const auto& [name, parameter] : model.parameters()) {
    const bool trained = name.starts_with("model.mm_projector.");
    CAPTURE(name);
    CHECK(parameter.grad().defined() == trained);
    CHECK(parameter.scalar_type() ==
          (trained || options.base == LlavaBase::fp32 ? at::kFloat : at::kBFloat16));
  }
  CHECK(model.unused().empty());
  CHECK(loss.item<double>() == Approx(5.283).margin(options.base == LlavaBase::fp32 ? 1e-4 : 0.05));
}

TEST_CASE("a batch of text only gives the projector, and a tower that is trained, gradients of zeros") {
  LlavaOptions options = tiny_options();
  options.base = LlavaBase::fp32;
  options.trained.vision = GENERATE(true, false);
  const Llava model = tiny(options);
  const std::set<std::string> unused(model.unused().begin(), model.unused().end());
  LlavaBatch batch;
  batch.ids = at::arange(1, 9).view({1, 8});
  batch.pictures = at::empty({0, 3, 28, 28});
  batch.feature_rows = batch.picture_rows = at::empty({0}, at::kLong);
  batch.label_rows = at::arange(3, 7);
  batch.labels = at::arange(5, 9);
  torch::autograd::backward({model.loss(batch)}, {});
  for (const auto& [name, parameter] : model.parameters()) {
    CAPTURE(name);
    const bool is_text = !name.starts_with("model.mm_projector.") && !name.starts_with("model.vision_tower.");
    if (is_text || unused.count(name) > 0 || !parameter.requires_grad()) continue;
    REQUIRE(parameter.grad().defined());
    CHECK(parameter.grad().count_nonzero().item<int64_t>() == 0);
  }
}

TEST_CASE("features that truncation cut off a LLaVA's sample go nowhere") {
  const Llava model = tiny();
  const at::NoGradGuard no_grad;
  LlavaBatch whole = training_batch(), cut = training_batch();
  const at::Tensor swapped = at::tensor({4, 5, 6, 7, 0, 1, 2, 3}, at::kLong);
  cut.feature_rows = swapped.index_select(0, at::arange(4, 8));  // all of the first picture
  cut.picture_rows = whole.picture_rows.slice(0, 0, 4);
  whole.pictures = whole.pictures.slice(0, 0, 1);
  whole.feature_rows = whole.feature_rows.slice(0, 0, 4);
  whole.picture_rows = whole.picture_rows.slice(0, 0, 4);
  CHECK(worst(model.loss(cut), model.loss(whole)) <= 1e-6);
}

TEST_CASE("cross-entropy in chunks is the plain one, with its gradients") {
  const int64_t chunk = GENERATE(1, 4, 7, 100);
  const bool head_trains = GENERATE(true, false);
  CAPTURE(chunk, head_trains);
  const at::Tensor x = at::randn({7, 16}, generator(1), at::kFloat).requires_grad_(true);
  const at::Tensor head = at::randn({40, 16}, generator(2), at::kFloat).requires_grad_(head_trains);
  const at::Tensor labels = at::tensor({3, 0, 39, 7, 7, 1, 20}, at::kLong);
  const auto gradients_of = [&](at::Tensor loss) {
    torch::autograd::backward({loss / 3}, {});
    Tensors both = pack(x.grad().clone(), head_trains ? head.grad().clone() : at::Tensor());
    x.mutable_grad().reset();
    head.mutable_grad().reset();
    return both;
  };
  const at::Tensor ours = chunked_cross_entropy(x, head, labels, chunk);
  const at::Tensor plain = at::cross_entropy_loss(at::linear(x, head), labels);
  CHECK(worst(ours.detach(), plain.detach()) <= 1e-6 * plain.item<double>());
  const Tensors of_ours = gradients_of(ours), of_plain = gradients_of(plain);
  CHECK(worst(of_ours[0], of_plain[0]) <= 1e-6);
  if (head_trains) CHECK(worst(of_ours[1], of_plain[1]) <= 1e-6);
  const at::NoGradGuard no_grad;
  CHECK(worst(chunked_cross_entropy(x, head, labels, chunk), plain.detach()) <= 1e-6 * plain.item<double>());
}

TEST_CASE("options of no LLaVA are refused with the key and what to set") {
  const auto message = [](LlavaOptions options) {
    const std::vector<LlavaProblem> found = problems(options);
    return found.empty() ? "" : found.front().key + ": " + found.front().message;
  };
  LlavaOptions options = tiny_options();
  CHECK(message(options).empty());
  options.projector = "mlpx_gelu";
  CHECK(message(options) ==
        "projector: llava.projector = \"mlpx_gelu\"; allowed: \"mlp2x_gelu\" with any digit "
        "from 1, \"linear\" and \"identity\"");
  options = {};
  options.text.hidden = 64;
  CHECK_THAT(message(options),
             Catch::StartsWith("preset: llava.preset = \"custom\" needs all sizes; missing: "
                               "llava.vision.hidden, llava.vision.mlp"));
  options = tiny_options();
  options.text.heads = 3;
  CHECK(message(options) ==
        "text.hidden: llava.text.hidden = 64 is not divisible by twice llava.text.heads = 3, as rotary "
        "positions "
        "turn halves of a head; set llava.text.hidden = 60 or 66");
  options = tiny_options();
  options.tap = -5;
  CHECK(message(options) ==
        "tap: llava.tap = -5 is before the first of the tower's 4 hidden states; set "
        "llava.tap = -4 or later");
}

TEST_CASE("a LLaVA's prompts run a few tokens at a time, with the answer of all at once and fewer bytes") {
  const dtk::policies::CountingAllocatorGuard counting;
  LlavaOptions options = tiny_options();
  options.text.mlp = 2048;  // so that it is the peak
  const auto answered = [&](int64_t chunk) {
    Llava model(options, at::kCPU, generator(1));
    dtk::policies::PolicyOptions policies;
    policies.precision.enabled = dtk::policies::Enabled::off;
    policies.inference.token_chunk = chunk;
    auto set =
        dtk::put_policies_in(policies, model.seam, model.parameters(), model.paths(), /*training=*/false);
    const auto scope = set.forward_scope();
    LlavaBatch prompt;
    prompt.ids = at::arange(80).remainder(90).view({1, 80});
    prompt.pictures = at::zeros({0, 3, 28, 28});
    prompt.feature_rows = prompt.picture_rows = prompt.label_rows = at::zeros({0}, at::kLong);
    dtk::policies::cpu_accounts().reset_phases("answer");
    const auto tokens = model.continued(prompt, 3, [](int64_t) { return true; });
    return std::pair(tokens->clone(),
                     dtk::policies::highest(dtk::policies::cpu_accounts().phases()).peak.bytes);
  };
  const auto [whole, peak] = answered(0);
  const auto [some, lower] = answered(8);
  CHECK(some.equal(whole));
  // Of 80 tokens gate and up are alive at once, and their product; of 8 a tenth.
  CHECK(peak - lower > 2 * (80 - 8) * 2048 * 4);
}
