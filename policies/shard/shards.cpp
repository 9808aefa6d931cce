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

}  // namespace

std::vector<int64_t> ParameterUnit::ends(int64_t parts) const {
  const int64_t cells = elements / kCell;
  std::vector<int64_t> all;
  for (int64_t part = 1; part <= parts; ++part) all.push_back((part * cells + parts - 1) / parts * kCell);
  return all;
}

Shards::Shards(const NamedTensors& parameters, const ShardLayout& layout) {
  lay_out(parameters, layout);
  list_norm_parts(std::max<int64_t>(1, layout.norm_parts));
}

Shards::Shards(c10::intrusive_ptr<c10d::Backend> group, const NamedTensors& parameters,
               const ShardLayout& layout)
    : collectives_(std::make_unique<Collectives>(std::move(group))),
      divides_(layout.divides && collectives_->ranks() > 1),
      prefetch_(layout.prefetch) {
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
    name_users(layout.modules);
    place_units(layout.level);
    divide();
  }
  list_norm_parts(norm_parts);
}

Shards::~Shards() = default;

void Shards::lay_out(const NamedTensors& parameters, const ShardLayout& layout) {
  for (const auto& [name, parameter] : parameters) {
    if (!parameter.requires_grad()) continue;
    const int64_t unit_bytes =
        units_.empty() ? 0 : units_.back().elements * static_cast<int64_t>(sizeof(float));
    if (units_.empty() || unit_bytes >= layout.min_unit) units_.emplace_back().label = name;
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

// Each in one storage, where its parts are sent from and received.
void Shards::place_units(ShardLevel level) {
  const at::NoGradGuard no_grad;
  divides_weights_ = level == ShardLevel::parameters;
  alive_ = std::make_shared<char>();
  for (size_t i = 0; i < units_.size(); ++i) {
    const ParameterUnit& unit = units_[i];
    Home& home = *homes_.emplace_back(std::make_unique<Home>());
    const auto options = parameters_[unit.members.front().index].second.options().requires_grad(false);
    {
      const OwnerScope owner(Category::parameters, divides_weights_ ? "gathered" : unit.label);
      home.whole = at::zeros({unit.elements}, options);
    }
    for (const auto& [index, offset, elements] : unit.members) {
      const at::Tensor parameter = parameters_[index].second;
      const at::Tensor place = home.whole.narrow(0, offset, elements).view(parameter.sizes());
      place.copy_(parameter);
      parameter.set_data(place);
    }
    const int64_t begin = begin_of_part(i, rank());
    home.own = home.whole.narrow(0, begin, ends_[i][static_cast<size_t>(rank())] - begin);
    if (!divides_weights_) continue;
    {
      const OwnerScope owner(Category::parameters, unit.label);
      home.own = home.own.clone();
    }
    home.members = unit.members.size();
    home.complaint = "policies.shard.level = \"parameters\": " + unit.label +
                     " are not on this rank: they are read outside of the module that they lie in; read them "
                     "in it, or set \"optimizer\"";
    watch_gradients(i);
    home.let_go();
  }
}

void Shards::divide() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto& [unit, member] = place_[i];
    const ParameterPart part = part_of(i, rank());
    const int64_t offset = units_[unit].members[member].offset;
    const int64_t first = part.elements == 0 ? 0 : offset + part.begin - begin_of_part(unit, rank());
    own_.emplace_back(parameters_[i].first,
                      homes_[unit]->own.narrow(0, first, part.elements).detach().requires_grad_());
  }
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
  // With a version of its own: to autograd the weights are those that it saved.
  homes_[unit]->coming =
      collectives_->begin_share_parts(homes_[unit]->whole.tensor_data(), ends_[unit], kWhenGathered);
}

void Shards::finish_gather(size_t unit) const {
  auto coming = std::exchange(homes_[unit]->coming, {});
  for (Collectives::Pending& one : coming) collectives_->wait_for(one, kWhenGathered);
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
      received = at::empty({part.elements}, own.options());
    }
    collectives_->receive(received, from, kWhenWritten);
    take(received);
    free_now(received);
  }
}

void Shards::give_part(const at::Tensor& own, int64_t to) const {
  if (divides_ && own.numel() > 0) collectives_->send(own, to, kWhenWritten);
}

std::optional<size_t> Shards::index_of(const std::string& name) const {
  const auto found = std::find_if(parameters_.begin(), parameters_.end(),
                                  [&](const auto& one) { return one.first == name; });
  if (found == parameters_.end()) return std::nullopt;
  return static_cast<size_t>(found - parameters_.begin());
}

}  // namespace dtk::policies
