#include "toolkit/train/model_family.h"

#include <algorithm>
#include <map>
#include <stdexcept>

#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"

namespace dtk {

namespace {

const ModelFamily& whole(const ConfiguredFamily& family) {
  if (const auto* const found = dynamic_cast<const ModelFamily*>(&family)) return *found;
  throw std::logic_error("the model family " + family.name() + " has options only; register a ModelFamily");
}

}  // namespace

const ModelFamily& family_of(const RunConfig& config) {
  return whole(family_named(config.train.model));
}

ModelFacts facts_of(const RunConfig& config) {
  return family_of(config).facts(config);
}

SizedJob ModelFamily::of_size(const RunConfig& config, int64_t tokens) const {
  const int64_t each = facts(config).tokens, samples = std::max<int64_t>(1, tokens / each);
  SizedJob job{config, samples * each};
  job.config.data.batch = samples * config.train.accumulate;
  job.config.memory.split = std::min(config.memory.split, samples);
  return job;
}

std::array<SizedJob, 2> ModelFamily::two_sizes(const RunConfig& config) const {
  const int64_t tokens = facts(config).tokens;
  return {of_size(config, tokens), of_size(config, 2 * tokens)};
}

std::vector<policies::PolicyReport> ModelFamily::infer_planned(const RunConfig&, c10::Device, int64_t,
                                                               const PutIn&) const {
  throw std::logic_error("the model family " + name() + " infers nothing of its own");
}

double ModelFamily::training_flops_per_sample(const RunConfig& config, int64_t planned_step) const {
  return static_cast<double>(planned_step) / static_cast<double>(config.data.batch);
}

std::vector<NamedTensor> ModelFamily::to_export(const Weights& weights, const RunConfig& config,
                                                const ExportChanges& changes) const {
  const auto model = make_model(config, at::kMeta, std::nullopt, {});  // names and shapes only
  const Weights own = complete_weights(*model, weights);
  model->check_fit(own);
  const Exporting exporting = this->exporting(own, config, changes);
  std::map<std::string, const StoredTensor*> stored;
  for (const StoredTensor& tensor : own.tensors) stored[tensor.name] = &tensor;
  std::vector<NamedTensor> tensors;
  for (const auto& parameter : model->in_files()) {
    const auto found = stored.find(parameter.first);
    if (found == stored.end()) {
      tensors.push_back({parameter.first, untrained(config, parameter.first)});
      continue;
    }
    for (NamedTensor& one : exporting(*found->second)) tensors.push_back(std::move(one));
  }
  return tensors;
}

ModelFamily::Exporting ModelFamily::exporting(const Weights&, const RunConfig&,
                                              const ExportChanges& changes) const {
  const std::string models = "models of train.model = \"" + name() + "\" ";
  if (changes.merge) throw ConfigError("--merge: " + models + "are trained without adapters; leave it out");
  if (!changes.pack.empty())
    throw ConfigError(fmt::format("--pack {}: {}have no packed form; leave it out", changes.pack, models));
  return [](const StoredTensor& tensor) -> std::vector<NamedTensor> {
    return {{tensor.name, tensor.read().to(at::kFloat)}};
  };
}

AdapterFiles ModelFamily::adapter(const Weights& weights, const RunConfig&) const {
  throw ConfigError(
      fmt::format("--adapter: {} have none: models of train.model = \"{}\" are trained without adapters; "
                  "write them all with --out",
                  weights.name, name()));
}

at::Tensor ModelFamily::untrained(const RunConfig&, const std::string& name) const {
  throw FileError("no weights for " + name);
}

UnpaintedImage ModelFamily::picture_of(const RunConfig&, const std::vector<NamedTensor>&,
                                       const std::vector<std::string>&) const {
  throw std::logic_error("samples of the model family " + name() + " are no pictures");
}

bool SampleUsage::has(const std::string& argument) const {
  return std::any_of(arguments.begin(), arguments.end(),
                     [&](const auto& one) { return one.name == argument; });
}

std::vector<SampleUsage> sample_usages() {
  std::vector<SampleUsage> usages;
  for (const ConfiguredFamily* const family : families()) {
    SampleUsage usage = whole(*family).sample_usage();
    const auto same = [&](const SampleUsage& other) { return usage.first() == other.first(); };
    if (std::none_of(usages.begin(), usages.end(), same)) usages.push_back(std::move(usage));
  }
  return usages;
}

void check_arguments(const ModelFamily& family, const SampleArguments& arguments,
                     const std::string& weights) {
  const SampleUsage own = family.sample_usage();
  if (arguments.own.count(own.first()) > 0) return;
  for (const SampleUsage& other : sample_usages()) {
    const auto given = arguments.own.find(other.first());
    if (given == arguments.own.end()) continue;
    const auto* const text = std::get_if<std::string>(&given->second);
    const std::string why = !own.model.empty()     ? " is a " + own.model + ", which has none"
                            : !other.model.empty() ? " is no " + other.model
                                                   : " has none";
    throw ConfigError(fmt::format("--{}{}: the model of {}{}; draw {} with --{} {} --out {}", given->first,
                                  text != nullptr ? " " + *text : "", weights, why, own.samples, own.first(),
                                  own.value, own.out));
  }
}

std::string model_text(const ModelFacts& facts, int64_t parameters) {
  return fmt::format("{}, {:.4g} M parameters: {}", facts.model, static_cast<double>(parameters) / 1e6,
                     facts.sizes);
}

}  // namespace dtk
