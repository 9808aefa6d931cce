#include "toolkit/train/optimizer.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <dtk/policies/internal/path_globs.h>
#include <dtk/policies/memory_ledger.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <stdexcept>

#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/train/shard_files.h"

namespace dtk {

using policies::Category;
using policies::OwnerScope;

namespace {

// The L2 norm of each of P tensors of one dtype, as (P). The CPU's kernel takes a whole norm on one thread
// and waits for memory, so the threads share the tensors out: the bits are the same for any number of
// threads.
at::Tensor norms_of(const std::vector<at::Tensor>& tensors) {
  const at::Tensor& first = tensors.front();
  if (!first.is_cpu()) return at::stack(at::_foreach_norm(tensors, 2));
  const at::Tensor norms = at::empty({static_cast<int64_t>(tensors.size())}, first.options());
  const std::vector<at::Tensor> each = norms.unbind();
  const at::ThreadLocalState caller;  // grad mode, and whether anything is computed at all
  at::parallel_for(0, norms.numel(), /*grain_size=*/1, [&](int64_t begin, int64_t end) {
    const at::ThreadLocalStateGuard as_caller(caller);
    for (int64_t i = begin; i < end; ++i) {
      at::Tensor norm = each[static_cast<size_t>(i)];
      at::linalg_vector_norm_out(norm, tensors[static_cast<size_t>(i)], 2);
    }
  });
  return norms;
}

// "blocks.0: 2e-5"
std::pair<std::string, double> parse_rate(const std::string& entry) {
  const size_t colon = entry.rfind(':');
  char* end = nullptr;
  const double rate = colon == entry.npos ? 0 : std::strtod(entry.c_str() + colon + 1, &end);
  if (colon != entry.npos && colon > 0 && end != nullptr && *end == '\0' && rate > 0 && std::isfinite(rate))
    return {entry.substr(0, colon), rate};
  throw ConfigError("optimizer.rates: \"" + entry +
                    "\" is no pattern with a rate above 0; write for example \"blocks.0: 2e-5\"");
}

// Whether the pattern means the parameter or something that it lies in.
bool covers(const std::string& pattern, const std::string& name) {
  for (size_t end = name.size(); end != 0 && end != name.npos; end = name.rfind('.', end - 1)) {
    if (policies::glob_matches(pattern, std::string_view(name).substr(0, end))) return true;
  }
  return false;
}

}  // namespace

AdamW::AdamW(const OptimizerOptions& options, std::unique_ptr<policies::Shards> alone,
             policies::Shards* given, NotFinite on_not_finite)
    : alone_(std::move(alone)),
      shards_(given != nullptr ? *given : *alone_),
      options_(options),
      on_not_finite_(on_not_finite) {
  for (const auto& [name, parameter] : shards_.own()) {
    names_.push_back(name);
    parameters_.push_back(parameter);
    OwnerScope owner(Category::optimizer, "exp_avg");
    exp_avg_.push_back(at::zeros_like(parameter, at::kFloat));
    OwnerScope second(Category::optimizer, "exp_avg_sq");
    exp_avg_sq_.push_back(at::zeros_like(parameter, at::kFloat));
  }
  groups_ = groups_of(options_, names_);
  if (options_.decays == Decays::matrices) groups_ = without_decay_of_vectors(groups_);
  OwnerScope owner(Category::optimizer, "scalars");
  const auto scalar = at::TensorOptions().dtype(at::kFloat).device(parameters_.front().device());
  step_ = at::zeros({}, scalar);
  gradient_norm_ = at::zeros({}, scalar);
  stopped_ = at::zeros({}, scalar);
}

AdamW::AdamW(const OptimizerOptions& options, policies::Shards& shards, NotFinite on_not_finite)
    : AdamW(options, nullptr, &shards, on_not_finite) {}

AdamW::AdamW(const OptimizerOptions& options,
             const std::vector<std::pair<std::string, at::Tensor>>& parameters, NotFinite on_not_finite)
    : AdamW(options, std::make_unique<policies::Shards>(parameters), nullptr, on_not_finite) {}

std::vector<std::string> AdamW::without_gradient() const {
  std::vector<std::string> names;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].grad().defined()) names.push_back(names_[i]);
  }
  return names;
}

std::vector<at::Tensor> AdamW::gradients() const {
  const std::vector<std::string> missed = without_gradient();
  if (!missed.empty())
    throw std::logic_error("AdamW: parameter " + missed.front() + " got no gradient in this step");
  std::vector<at::Tensor> result;
  result.reserve(parameters_.size());
  for (const at::Tensor& parameter : parameters_) result.push_back(parameter.grad());
  return result;
}

void AdamW::prepare(bool measured, const at::Tensor& loss) {
  at::NoGradGuard no_grad;
  divisor_.reset();
  std::vector<at::Tensor> grads = gradients();
  if (measured || skips() || options_.clip > 0) {
    measure(grads, loss);
    if (options_.clip > 0) divisor_ = ((gradient_norm_ + 1e-6) / options_.clip).clamp_min_(1.0);
  } else {
    looks_back_ = true;
  }
  counts_ = 1 - stopped_;
  gradients_ = std::move(grads);
}

void AdamW::apply(double lr) {
  at::NoGradGuard no_grad;
  step_.add_(counts_);
  counts_.reset();
  for (const Group& group : groups_) apply_to(group, lr);
  gradients_.clear();
  divisor_.reset();
}

void AdamW::apply_to(const Group& group, double lr) {
  const auto of_group = [&](const std::vector<at::Tensor>& all) {
    if (group.members.size() == all.size() && !shards_.divides()) return all;
    std::vector<at::Tensor> some;
    for (const size_t member : group.members)
      if (parameters_[member].numel() > 0) some.push_back(all[member]);
    return some;
  };
  const std::vector<at::Tensor> own = of_group(parameters_);
  if (own.empty()) return;  // other ranks have all of it
  const std::vector<at::Tensor> steps(own.size(), step_);
  at::_fused_adamw_(own, of_group(gradients_), of_group(exp_avg_), of_group(exp_avg_sq_), {}, steps,
                    lr * group.factor, options_.beta1, options_.beta2, group.weight_decay, options_.eps,
                    /*amsgrad=*/false, /*maximize=*/false, divisor_, stopped_);
}

std::vector<AdamW::Group> AdamW::groups_of(const OptimizerOptions& options,
                                           const std::vector<std::string>& names) {
  std::vector<Group> groups(1, {1.0, options.weight_decay, {}});
  std::vector<std::string> chosen_by(names.size());
  for (const std::string& entry : options.rates) {
    const auto [pattern, rate] = parse_rate(entry);
    Group group{rate / options.lr, options.weight_decay, {}};
    for (size_t i = 0; i < names.size(); ++i) {
      if (!covers(pattern, names[i])) continue;
      if (!chosen_by[i].empty()) {
        throw ConfigError(
            fmt::format("optimizer.rates: both \"{}\" and \"{}\" are of {}; let each parameter have one rate",
                        chosen_by[i], entry, names[i]));
      }
      chosen_by[i] = entry;
      group.members.push_back(i);
    }
    if (group.members.empty()) {
      throw ConfigError(
          fmt::format("optimizer.rates: \"{}\" is of no parameter that is trained; the nearest are {}", entry,
                      policies::nearest_paths(pattern, names)));
    }
    groups.push_back(std::move(group));
  }
  for (size_t i = 0; i < names.size(); ++i) {
    if (chosen_by[i].empty()) groups.front().members.push_back(i);
  }
  std::erase_if(groups, [](const Group& group) { return group.members.empty(); });
  return groups;
}

std::vector<AdamW::Group> AdamW::without_decay_of_vectors(const std::vector<Group>& groups) const {
  std::vector<Group> split;
  for (const Group& group : groups) {
    Group matrices{group.factor, group.weight_decay, {}}, vectors{group.factor, 0.0, {}};
    for (const size_t member : group.members)
      (shards_.parameters()[member].second.dim() < 2 ? vectors : matrices).members.push_back(member);
    for (Group* const one : {&matrices, &vectors})
      if (!one->members.empty()) split.push_back(std::move(*one));
  }
  return split;
}

// The L2 norm over all ranks of what each has, one tensor a parameter: over fixed parts, so that its bits
// tell nothing of their number.
at::Tensor AdamW::norm_of(const std::vector<at::Tensor>& tensors) const {
  const std::vector<policies::Shards::NormPart>& own = shards_.own_norm_parts();
  std::vector<at::Tensor> parts;
  parts.reserve(own.size());
  at::Tensor flat;  // of `of`, whose parts follow each other
  size_t of = tensors.size();
  for (const auto& [parameter, part, index] : own) {
    const at::Tensor& tensor = tensors[parameter];
    if (part.elements == tensor.numel()) {
      parts.push_back(tensor);
      continue;
    }
    if (parameter != of) flat = tensor.reshape(-1);
    of = parameter;
    parts.push_back(flat.narrow(0, part.begin, part.elements));
  }
  if (!shards_.divides()) return at::linalg_vector_norm(norms_of(parts), 2);
  at::Tensor all = at::zeros({shards_.norm_parts()}, step_.options());
  if (!parts.empty()) {
    const at::Tensor norms = norms_of(parts);
    for (size_t first = 0, end = 0; first < own.size(); first = end) {  // of those that follow each other
      const auto begin = static_cast<int64_t>(first);
      while (end < own.size() && own[end].index - own[first].index == static_cast<int64_t>(end - first))
        ++end;
      const auto count = static_cast<int64_t>(end - first);
      all.narrow(0, own[first].index, count).copy_(norms.narrow(0, begin, count));
    }
  }
  shards_.add_up(all);
  at::Tensor norm = at::linalg_vector_norm(all, 2);
  policies::free_now(all);
  return norm;
}

void AdamW::measure(const std::vector<at::Tensor>& gradients, const at::Tensor& loss) {
  if (!skips()) {
    gradient_norm_.copy_(norm_of(gradients));
    stop_unless_finite(gradient_norm_);
    return;
  }
  const at::Tensor norm = norm_of(gradients);
  stopped_.zero_();
  stop_unless_finite(norm);
  if (loss.defined()) stop_unless_finite(loss);
  gradient_norm_.copy_(at::where(stopped_.to(at::kBool), gradient_norm_, norm));
}

void AdamW::look_back() {
  if (!looks_back_) return;
  at::NoGradGuard no_grad;
  stop_unless_finite(norm_of(exp_avg_));
  looks_back_ = false;
}

void AdamW::stop_unless_finite(const at::Tensor& norm) {
  stopped_.copy_(stopped_.logical_or(norm.isfinite().logical_not()));
}

void AdamW::release_gradients() {
  gradients_.clear();
  for (const at::Tensor& parameter : parameters_) parameter.mutable_grad().reset();
}

std::vector<NamedTensor> AdamW::state() const {
  std::vector<NamedTensor> state;
  for (size_t i = 0; i < names_.size(); ++i) {
    state.push_back({"exp_avg." + names_[i], exp_avg_[i]});
    state.push_back({"exp_avg_sq." + names_[i], exp_avg_sq_[i]});
  }
  state.push_back({"step", step_});
  return state;
}

std::vector<WrittenTensor> AdamW::written_state() const {
  std::vector<WrittenTensor> state;
  for (size_t i = 0; i < names_.size(); ++i) {
    state.push_back(written_whole(shards_, i, "exp_avg." + names_[i], exp_avg_[i]));
    state.push_back(written_whole(shards_, i, "exp_avg_sq." + names_[i], exp_avg_sq_[i]));
  }
  state.emplace_back("step", step_);
  return state;
}

void AdamW::restore(const std::vector<StoredTensor>& state) {
  std::vector<StoredTensor> own;
  for (const StoredTensor& entry : state)
    own.push_back(
        stored_own_part(shards_, shards_.index_of(entry.name.substr(entry.name.find('.') + 1)), entry));
  copy_by_name(own, this->state(), "optimizer state");
}

}  // namespace dtk
