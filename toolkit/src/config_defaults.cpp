#include "config_defaults.h"

#include <dtk/toolkit/diffusion_choices.h>
#include <dtk/toolkit/respacing.h>

#include <stdexcept>

#include "config_text.h"

namespace dtk {
namespace {

template <class T>
void settle(LoadedConfig& loaded, const std::string& key, T& member, const T& value,
            const std::string& reason) {
  if (loaded.places.count(key) > 0) return;
  member = value;
  loaded.origins[key] = "default: " + reason;
}

// The published code learns a variance beside ε; with v and x_0 a fixed one is usual.
void settle_learn_sigma(LoadedConfig& loaded) {
  const std::string& objective = loaded.config.diffusion.objective;
  const std::string reason = objective == "rectified_flow" ? "rectified flow predicts no variance"
                             : objective == "epsilon"      ? "as the original DiT"
                                                           : "usual with objective " + objective;
  settle(loaded, "model.learn_sigma", loaded.config.model.learn_sigma, objective == "epsilon", reason);
}

void settle_sampler(LoadedConfig& loaded) {
  const std::string& objective = loaded.config.diffusion.objective;
  settle(loaded, "sample.sampler", loaded.config.sample.sampler, samplers_for(objective).front(),
         "usual with objective " + objective);
}

void settle_steps(LoadedConfig& loaded) {
  SampleOptions& sample = loaded.config.sample;
  const int64_t all = loaded.config.diffusion.steps, usual = default_steps(sample.sampler);
  if (!has_diffusion_steps(sample.sampler) || (usual <= all && !sample.respacing)) {
    return settle(loaded, "sample.steps", sample.steps, usual, "usual with " + sample.sampler);
  }
  if (!sample.respacing) {
    return settle(loaded, "sample.steps", sample.steps, all, "all that the diffusion has");
  }
  try {
    const auto kept = static_cast<int64_t>(respaced_steps(*sample.respacing, all).size());
    settle(loaded, "sample.steps", sample.steps, kept,
           "what sample.respacing = " + toml_text(*sample.respacing) + " gives");
  } catch (const std::invalid_argument&) {  // check_rules() says what is wrong with it
  }
}

}  // namespace

void settle_defaults(LoadedConfig& loaded) {
  settle_learn_sigma(loaded);
  settle_sampler(loaded);
  settle_steps(loaded);
}

}  // namespace dtk
