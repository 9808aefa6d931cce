#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/util/StringUtil.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/shards.h>

#include <algorithm>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>

#include "shard/divided_weights.h"
#include "shard/targets.h"

namespace dtk::policies {
namespace {

// Elements. AdamW's kernel rounds the elements of a vector otherwise than those behind the last whole one, so
// that no parameter and no part of one may end within a vector of a unit.
constexpr int64_t kCell = 64;

constexpr char kWhenWritten[] = "while a checkpoint is written";

int64_t in_cells(int64_t elements) {
  return (elements + kCell - 1) / kCell * kCell;
}

ParameterPart common(ParameterPart a, ParameterPart b) {
  const int64_t begin = std::max(a.begin, b.begin);
  const int64_t end = std::min(a.begin + a.elements, b.begin + b.elements);
  return {begin, std::max<int64_t>(0, end - begin)};
}

// Members end where the next begins, at a whole cell.
std::vector<Stretch> stretches_of(const ParameterUnit& unit, const NamedTensors& parameters) {
  std::vector<Stretch> all;
  int64_t bytes = 0;
  for (size_t i = 0; i < unit.members.size(); ++i) {
    const ParameterUnit::Member& member = unit.members[i];
    const int64_t end = i + 1 < unit.members.size() ? unit.members[i + 1].offset : unit.elements;
    const bool is_rounded = parameters[member.index].second.dim() > 1;
    const c10::ScalarType type = is_rounded ? at::kBFloat16 : at::kFloat;
    if (all.empty() || all.back().type != type) all.push_back({member.offset, 0, type, bytes});
    all.back().elements += end - member.offset;
    bytes += (end - member.offset) * static_cast<int64_t>(c10::elementSize(type));
  }
  return all;
}

}  // namespace

std::vector<int64_t> ParameterUnit::ends(int64_t parts) const {
  const int64_t cells = elements / kCell;
  std::vector<int64_t> all;
  for (int64_t part = 1; part <= parts; ++part) all.push_back((part * cells + parts - 1) / parts * kCell);
  return all;
}

Shards::Shards(const NamedTensors& parameters, const ShardLayout& layout) : targets_(targets_of(layout)) {
  lay_out(parameters, layout);
  list_norm_parts(std::max<int64_t>(1, layout.norm_parts));
}

Shards::Shards(c10::intrusive_ptr<c10d::Backend> group, const NamedTensors& parameters,
               const ShardLayout& layout)
    : collectives_(std::make_unique<Collectives>(std::move(group))),
      divides_(layout.divides && collectives_->ranks() > 1),
      prefetch_(layout.prefetch),
      targets_(targets_of(layout)) {
  for (const auto& [name, parameter] : parameters) {
    if (!parameter.requires_grad() || (parameter.scalar_type() == at::kFloat && parameter.is_contiguous()))
      continue;
    throw PolicyError("distributed",
                      c10::str(": gradients of several ranks are added in fp32 as they lie, and ", name,
                               " is ", parameter.scalar_type(), " with sizes ", parameter.sizes(),
                               " and strides ", parameter.strides(), "; train it on one rank"));
  }
  const int64_t norm_parts = layout.norm_parts == 0 ? ranks() : layout.norm_parts;
  if (norm_parts % ranks() != 0) throw std::invalid_argument("Shards: the ranks do not divide norm_parts");
  lay_out(parameters, layout);
  if (divides_) {
    if (layout.level == ShardLevel::parameters && layout.modules.empty())
      throw std::invalid_argument(
          "Shards: weights are divided among the modules that read them, and none is named");
    if (layout.level == ShardLevel::parameters && targets_.empty())
      throw PolicyError(
          "policies.shard.targets",
          " names no module, so that all weights would be whole in each pass; name some, such as "
          "[\"*\"], or take level = \"optimizer\"");
    name_users(layout.modules);
    divides_weights_ = layout.level == ShardLevel::parameters;
    if (divides_weights_) sends_ = layout.gather;
    alive_ = std::make_shared<char>();
    make_homes();
  }
  list_norm_parts(norm_parts);
}

// Parameters outlive it, and have their memory again.
Shards::~Shards() {
  try {
    if (collectives_ != nullptr && !collectives_->has_failed()) settle();
  } catch (const std::exception&) {  // they stay unreadable
  }
}

void Shards::make_homes() {
  for (const ParameterUnit& unit : units_) {
    Home& home = *homes_.emplace_back(std::make_unique<Home>());
    home.complaint = divides_weights_
                         ? "policies.shard.level = \"parameters\": " + unit.label +
                               " are not on this rank: they are read outside of the module that they lie in; "
                               "read them in it, or set \"optimizer\""
                         : "policies.shard: " + unit.label +
                               " are on their way behind a step: they are read outside of the module that "
                               "they lie in; read them in it, or leave it out of policies.shard.targets";
    if (!unit.is_target || sends_ != ShardGather::bf16) continue;
    home.stretches = stretches_of(unit, parameters_);
    for (const int64_t end : ends_[homes_.size() - 1]) home.byte_ends.push_back(home.byte_of(end));
  }
  for (const auto& [name, parameter] : parameters_) own_.emplace_back(name, at::Tensor());
  for (size_t i = 0; i < parameters_.size(); ++i)
    if (!parameters_[i].second.is_meta()) move_in(i);
}

void Shards::lay_out(const NamedTensors& parameters, const ShardLayout& layout) {
  for (const auto& [name, parameter] : parameters) {
    if (!parameter.requires_grad()) continue;
    const bool is_target = is_among(targets_, innermost_module(name, layout.modules));
    const bool joins = !units_.empty() && units_.back().is_target == is_target &&
                       units_.back().elements * static_cast<int64_t>(sizeof(float)) < layout.min_unit;
    if (!joins) {
      units_.emplace_back().label = name;
      units_.back().is_target = is_target;
    }
    ParameterUnit& unit = units_.back();
    place_.emplace_back(units_.size() - 1, unit.members.size());
    unit.members.push_back({parameters_.size(), unit.elements, parameter.numel()});
    unit.elements += in_cells(parameter.numel());
    parameters_.emplace_back(name, parameter);
  }
  if (units_.empty()) throw std::invalid_argument("Shards: no parameter needs a gradient");
  for (ParameterUnit& unit : units_) {
    if (unit.members.size() > 1) unit.label += c10::str(" and ", unit.members.size() - 1, " more");
    ends_.push_back(unit.ends(ranks()));
  }
}

void Shards::place(const std::string& name, const at::Tensor& parameter) {
  const std::optional<size_t> index = index_of(name);
  if (!index) return;
  at::Tensor& known = parameters_[*index].second;
  if (known.is_same(parameter)) return;
  if (!known.is_meta() || known.sizes() != parameter.sizes() ||
      known.scalar_type() != parameter.scalar_type() || !parameter.is_contiguous() ||
      !parameter.requires_grad()) {
    throw std::invalid_argument(
        c10::str("Shards: ", name, " was laid out as ", known.is_meta() ? "" : "another tensor, of ",
                 known.scalar_type(), " ", known.sizes(), ", and is placed as ", parameter.scalar_type(), " ",
                 parameter.sizes(), "; place each parameter once, contiguous, trained, as it was laid out"));
  }
  known = parameter;
  if (divides_) move_in(*index);
}

// Into its unit's storage, where parts are sent from and received. A unit is divided as soon as it is full,
// so that while a model is made no more than one of them is whole.
void Shards::move_in(size_t parameter) {
  const at::NoGradGuard no_grad;
  const at::Tensor& from = parameters_[parameter].second;
  const auto& [index, member] = place_[parameter];
  const ParameterUnit& unit = units_[index];
  Home& home = *homes_[index];
  if (!home.whole.defined()) {
    const OwnerScope owner(Category::parameters, divides_weights_ ? "gathered" : unit.label);
    home.whole = at::zeros({unit.elements}, from.options().requires_grad(false));
  }
  const ParameterUnit::Member& where = unit.members[member];
  const at::Tensor to = home.whole.narrow(0, where.offset, where.elements).view(from.sizes());
  to.copy_(from);
  from.set_data(to);
  if (++home.members == unit.members.size()) divide(index);
}

void Shards::divide(size_t unit) {
  Home& home = *homes_[unit];
  const int64_t begin = begin_of_part(unit, rank());
  const at::Tensor all = gathers_late() ? home.second_view() : home.whole;
  home.own = all.narrow(0, begin, ends_[unit][static_cast<size_t>(rank())] - begin);
  if (divides_weights_) {
    const OwnerScope owner(Category::parameters, units_[unit].label);
    home.own = home.own.clone();
  }
  for (const auto& [index, offset, elements] : units_[unit].members) {
    const ParameterPart part = part_of(index, rank());
    const int64_t first = part.elements == 0 ? 0 : offset + part.begin - begin;
    own_[index].second = home.own.narrow(0, first, part.elements).detach().requires_grad_();
  }
  if (!divides_weights_) return;
  watch_gradients(unit);
  home.let_go();
}

int64_t Shards::begin_of_part(size_t unit, int64_t rank) const {
  return rank == 0 ? 0 : ends_[unit][static_cast<size_t>(rank) - 1];
}

ParameterPart Shards::part_of(size_t parameter, int64_t rank) const {
  const auto& [unit, member] = place_[parameter];
  const auto& [index, offset, elements] = units_[unit].members[member];
  const int64_t begin = begin_of_part(unit, rank);
  ParameterPart part = common({begin, ends_[unit][static_cast<size_t>(rank)] - begin}, {offset, elements});
  part.begin = part.elements == 0 ? 0 : part.begin - offset;
  return part;
}

ParameterPart Shards::own_part(size_t parameter) const {
  return divides_ ? part_of(parameter, rank()) : ParameterPart{0, parameters_[parameter].second.numel()};
}

void Shards::list_norm_parts(int64_t parts) {
  for (const ParameterUnit& unit : units_) {
    int64_t begin = 0;
    auto member = unit.members.begin();
    for (const int64_t end : unit.ends(parts)) {
      while (member != unit.members.end() && member->offset < end) {
        const ParameterPart part = common({begin, end - begin}, {member->offset, member->elements});
        const ParameterPart own = own_part(member->index);
        const int64_t first = part.begin - member->offset - own.begin;  // of its own part
        if (part.elements > 0 && first >= 0 && first + part.elements <= own.elements)
          own_norm_parts_.push_back({member->index, {first, part.elements}, norm_parts_});
        if (part.elements > 0) ++norm_parts_;
        if (member->offset + member->elements > end) break;  // it goes on in the next
        ++member;
      }
      begin = end;
    }
  }
}

void Shards::begin_gather(size_t unit) {
  Home& home = *homes_[unit];
  if (gathers_late()) home.send_off();
  // With a version of its own: to autograd the weights are those that it saved.
  const at::Tensor into = home.received.defined() ? home.received : home.whole.tensor_data();
  home.coming =
      collectives_->begin_share_parts(into, home.has_bf16() ? home.byte_ends : ends_[unit], kWhenGathered);
}

void Shards::finish_gather(size_t unit) const {
  Home& home = *homes_[unit];
  auto coming = std::exchange(home.coming, {});
  for (Collectives::Pending& one : coming) collectives_->wait_for(one, kWhenGathered);
  // What still runs of a collective that failed may write into it.
  if (gathers_late() && !collectives_->has_failed()) home.come_back();
}

void Shards::begin_gather() {
  if (divides_weights_) return let_go();
  settle();
  for (size_t i = 0; i < homes_.size(); ++i) begin_gather(i);
  // To autograd, a backward pass from before would read what has changed.
  for (const auto& [name, parameter] : parameters_) parameter.unsafeGetTensorImpl()->bump_version();
}

void Shards::arrive(std::string_view module) {
  for (const size_t unit : units_of(module)) finish_gather(unit);
}

void Shards::settle() const {
  for (size_t i = 0; i < homes_.size(); ++i) finish_gather(i);
}

void Shards::gather() {
  begin_gather();
  settle();
}

void Shards::add_up(at::Tensor& values) {
  if (divides_) collectives_->add_up(values, "in the exchange of norms");
}

void Shards::each_part(size_t parameter, const at::Tensor& own,
                       const std::function<void(const at::Tensor&)>& take) const {
  if (!divides_) return take(own);
  const at::NoGradGuard no_grad;
  for (int64_t from = 0; from < ranks(); ++from) {
    const ParameterPart part = part_of(parameter, from);
    if (part.elements == 0) continue;
    if (from == rank()) {
      take(own);
      continue;
    }
    at::Tensor received;
    {
      const OwnerScope owner(Category::parameters, "gathered");
      // An average in host memory, too, comes by the group of the device.
      received = at::empty({part.elements}, own.options().device(parameters_[parameter].second.device()));
    }
    collectives_->receive(received, from, kWhenWritten);
    take(received);
    free_now(received);
  }
}

void Shards::give_part(const at::Tensor& own, int64_t to) const {
  if (!divides_ || own.numel() == 0) return;
  collectives_->send(own.to(parameters_.front().second.device()), to, kWhenWritten);
}

std::optional<size_t> Shards::index_of(const std::string& name) const {
  const auto found = std::find_if(parameters_.begin(), parameters_.end(),
                                  [&](const auto& one) { return one.first == name; });
  if (found == parameters_.end()) return std::nullopt;
  return static_cast<size_t>(found - parameters_.begin());
}

}  // namespace dtk::policies
