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

at::Tensor flat(const at::Tensor& tensor, ParameterPart part) {
  return tensor.detach().view(-1).narrow(0, part.begin, part.elements);
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
      divides_(layout.divides && collectives_->ranks() > 1) {
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
  if (divides_ && !layout.modules.empty()) divide_weights(layout.modules);
  prefetch_ = layout.prefetch;
  if (divides_) divide();
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

void Shards::divide() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto& [name, parameter] = parameters_[i];
    const at::Tensor part = divides_weights() ? own_part_of_home(i) : flat(parameter, part_of(i, rank()));
    own_.emplace_back(name, part.detach().requires_grad_());
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

// `all`: (elements of the unit)
void Shards::take_own_into(const at::Tensor& all, size_t unit) const {
  for (const auto& [index, offset, elements] : units_[unit].members) {
    const ParameterPart own = own_part(index);
    all.narrow(0, offset + own.begin, own.elements).copy_(own_[index].second);
  }
}

void Shards::gather() {
  if (!divides_) return;
  if (divides_weights()) return let_go();
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < units_.size(); ++i) {
    const ParameterUnit& unit = units_[i];
    at::Tensor all;
    {
      const OwnerScope owner(Category::parameters, "gathered");
      all = at::zeros({unit.elements}, parameters_.front().second.options().requires_grad(false));
    }
    take_own_into(all, i);
    collectives_->share_parts(all, ends_[i], kWhenGathered);
    for (const auto& [index, offset, elements] : unit.members) {
      // Its own part may be on its way to an average.
      const ParameterPart own = own_part(index);
      const int64_t behind = own.begin + own.elements;
      for (const ParameterPart& part : {ParameterPart{0, own.begin}, {behind, elements - behind}}) {
        if (part.elements > 0)
          flat(parameters_[index].second, part).copy_(all.narrow(0, offset + part.begin, part.elements));
      }
    }
    free_now(all);
  }
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
