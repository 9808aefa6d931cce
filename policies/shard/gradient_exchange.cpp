#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <dtk/policies/gradient_exchange.h>
#include <dtk/policies/internal/when_accumulated.h>
#include <dtk/policies/memory_ledger.h>

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>

#include "shard/flat_parts.h"

namespace dtk::policies {
namespace {

// Units on their way at once: one alone leaves a slow link idle while its last bytes are answered.
constexpr size_t kMaxOnTheirWay = 2;
constexpr char kWhat[] = "in the exchange of gradients";

Collectives& collectives_of(Shards& shards) {
  if (shards.collectives() != nullptr) return *shards.collectives();
  throw std::invalid_argument("GradientExchange: one rank has nobody to exchange gradients with");
}

}  // namespace

struct GradientExchange::Unit {
  const ParameterUnit& layout;
  const std::vector<int64_t>& ends;  // elements, by rank, of what it adds up
  std::vector<bool> reached;         // members, by the running backward pass
  // In a round: the own gradients until they are sent, and those of all ranks until they are added.
  at::Tensor bucket = {}, received = {};
  Collectives::Pending pending = {};
  // In a step: the own part of the sums, then all of them unless they are divided.
  at::Tensor sum = {}, whole = {};

  int64_t begin(size_t rank) const { return rank == 0 ? 0 : ends[rank - 1]; }
  int64_t part(size_t rank) const { return ends[rank] - begin(rank); }
  bool is_ready() const { return std::all_of(reached.begin(), reached.end(), std::identity()); }
  void forget_pass() { reached.assign(layout.members.size(), false); }
};

GradientExchange::GradientExchange(Shards& shards, GradientSums sums)
    : shards_(shards),
      collectives_(collectives_of(shards)),
      rank_(static_cast<size_t>(shards.rank())),
      sums_(sums),
      alive_(std::make_shared<char>()) {
  for (size_t i = 0; i < shards_.units().size(); ++i) {
    units_.push_back(std::make_unique<Unit>(Unit{shards_.units()[i], shards_.ends(i), {}}));
    Unit* const unit = units_.back().get();
    unit->forget_pass();
    for (size_t member = 0; member < unit->layout.members.size(); ++member) {
      when_accumulated(
          shards_.parameters()[unit->layout.members[member].index].second,
          [this, unit, member](const at::Tensor&) { accumulated(*unit, member); }, alive_);
    }
  }
  const OwnerScope owner(Category::optimizer, "scalars");
  values_ = at::zeros({shards_.ranks()}, shards_.parameters().front().second.options().requires_grad(false));
  release();
}

GradientExchange::~GradientExchange() = default;

at::Tensor GradientExchange::empty(int64_t elements) const {
  return at::empty({elements}, values_.options());
}

void GradientExchange::count_again(int64_t rounds) {
  TrafficByCollective more;
  for (const auto& [collective, all] : collectives_.sent()) {
    const Traffic before = sent_before_round_[collective];
    more[collective] = {rounds * (all.bytes - before.bytes), rounds * (all.messages - before.messages)};
  }
  collectives_.count(more);
}

void GradientExchange::begin_round(MicroBatchRound round) {
  if (round.contributes.size() != static_cast<size_t>(shards_.ranks()))
    throw std::invalid_argument("GradientExchange: a round names each rank");
  round_ = std::move(round);
  in_round_ = true;
  if (sums_ == GradientSums::ordered) std::fill(adds_.begin(), adds_.end(), false);
  for (size_t rank = 0; rank < adds_.size(); ++rank) adds_[rank] = adds_[rank] || round_.contributes[rank];
  if (!round_.contributes[rank_]) put_aside();
  unsent_ = units_.size();
  sent_before_round_ = collectives_.sent();
  const at::NoGradGuard no_grad;
  values_.zero_();
}

// A pass that counts for nothing finds no gradient of passes before, and leaves none.
void GradientExchange::put_aside() {
  aside_.clear();
  for (const auto& [name, parameter] : shards_.parameters())
    aside_.push_back(std::exchange(parameter.mutable_grad(), at::Tensor()));
}

void GradientExchange::put_back(size_t parameter) {
  shards_.parameters()[parameter].second.mutable_grad() = std::exchange(aside_[parameter], at::Tensor());
}

void GradientExchange::set_value(const at::Tensor& own) {
  const at::NoGradGuard no_grad;
  values_[static_cast<int64_t>(rank_)].copy_(own);
}

void GradientExchange::accumulated(Unit& unit, size_t member) {
  if (!in_round_) throw std::logic_error("GradientExchange: a backward pass outside of a round");
  if (unit.reached[member]) throw std::logic_error("GradientExchange: a second backward pass in a round");
  unit.reached[member] = true;
  const at::NoGradGuard no_grad;
  if (!round_.contributes[rank_]) put_back(unit.layout.members[member].index);
  if (adds_[rank_] && (sums_ == GradientSums::ordered || round_.is_last)) take(unit, member);
  send_ready();
}

// The gradient of one parameter into the unit's bucket.
void GradientExchange::take(Unit& unit, size_t member) {
  if (!unit.bucket.defined()) {
    const OwnerScope owner(Category::gradients, "buckets");
    unit.bucket = at::zeros({unit.layout.elements}, values_.options());  // also what lies between parameters
  }
  const auto& [index, offset, elements] = unit.layout.members[member];
  at::Tensor& gradient = shards_.parameters()[index].second.mutable_grad();
  if (!gradient.defined()) return;
  unit.bucket.narrow(0, offset, elements).view(gradient.sizes()).copy_(gradient);
  gradient.reset();
}

void GradientExchange::send_ready() {
  while (unsent_ > 0 && units_[unsent_ - 1]->is_ready()) send(*units_[--unsent_]);
}

void GradientExchange::send(Unit& unit) {
  unit.forget_pass();
  if (sums_ == GradientSums::native) {
    if (!round_.is_last) return;
    // Of passes before, where this rank had none in this round.
    for (size_t i = 0; adds_[rank_] && i < unit.layout.members.size(); ++i) take(unit, i);
  }
  if (on_their_way_.size() == kMaxOnTheirWay) arrive_first();
  depart(unit);
}

// Each rank has a part of the unit's gradients of all micro-batches at once, as they are added one after the
// other. While they are on their way, backward goes on to the next unit.
void GradientExchange::depart(Unit& unit) {
  const int64_t adding = std::count(adds_.begin(), adds_.end(), true);
  if (adding == 0) return complete(unit);
  const int64_t part = unit.part(rank_);
  std::vector<int64_t> taken(adds_.size(), 0), given = taken;
  for (size_t rank = 0; rank < adds_.size(); ++rank) {
    if (adds_[rank]) taken[rank] = part;
    if (adds_[rank_]) given[rank] = unit.part(rank);
  }
  {
    const OwnerScope owner(Category::gradients, "buckets");
    unit.received = empty(part * adding);
    if (!unit.bucket.defined()) unit.bucket = empty(0);
  }
  unit.pending =
      collectives_.begin_all_to_all(unit.received, unit.bucket, std::move(taken), std::move(given), kWhat);
  on_their_way_.push_back(&unit);
}

void GradientExchange::arrive_first() {
  Unit& unit = *on_their_way_.front();
  on_their_way_.pop_front();
  collectives_.wait_for(unit.pending, kWhat);
  free_now(unit.bucket);
  const int64_t part = unit.part(rank_), adding = std::count(adds_.begin(), adds_.end(), true);
  int64_t next = 0;
  if (!unit.sum.defined()) {
    const OwnerScope owner(Category::gradients, unit.layout.label);
    unit.sum = empty(part);
    unit.sum.copy_(unit.received.narrow(0, 0, part));
    next = 1;
  }
  for (; next < adding; ++next) unit.sum.add_(part_of_flat(unit.received, next * part, part));
  free_now(unit.received);
  complete(unit);
}

void GradientExchange::complete(Unit& unit) {
  if (!round_.is_last || !unit.sum.defined()) return;
  if (!shards_.divides()) gather(unit);
  hand_out(unit);
}

void GradientExchange::gather(Unit& unit) {
  {
    const OwnerScope owner(Category::gradients, unit.layout.label);
    unit.whole = empty(unit.layout.elements);
  }
  unit.whole.narrow(0, unit.begin(rank_), unit.part(rank_)).copy_(unit.sum);
  free_now(unit.sum);
  collectives_.share_parts(unit.whole, unit.ends, "in the exchange of sums");
}

void GradientExchange::hand_out(Unit& unit) {
  for (const auto& [index, offset, elements] : unit.layout.members) {
    const ParameterPart own = shards_.own_part(index);
    const at::Tensor& parameter = shards_.own()[index].second;
    const at::Tensor& all = unit.whole.defined() ? unit.whole : unit.sum;
    const int64_t before = unit.whole.defined() ? 0 : unit.begin(rank_);
    const int64_t first = own.elements == 0 ? 0 : offset + own.begin - before;
    parameter.mutable_grad() = all.narrow(0, first, own.elements).view(parameter.sizes());
  }
}

void GradientExchange::refuse_missed() const {
  std::vector<std::string> missed;
  for (size_t i = 0; i < unsent_; ++i) {
    const Unit& unit = *units_[i];
    for (size_t member = 0; member < unit.reached.size(); ++member) {
      if (!unit.reached[member])
        missed.push_back(shards_.parameters()[unit.layout.members[member].index].first);
    }
  }
  const std::string more =
      missed.size() > 1 ? " and " + std::to_string(missed.size() - 1) + " more" : std::string();
  throw PolicyError("distributed", ": no gradient of a micro-batch reached " + missed.front() + more +
                                       "; where several ranks train, each micro-batch's loss must depend on "
                                       "all that is trained; train it on one rank");
}

void GradientExchange::end_round() {
  const at::NoGradGuard no_grad;
  if (round_.contributes[rank_] && unsent_ > 0) refuse_missed();
  for (size_t i = 0; i < aside_.size(); ++i)
    if (aside_[i].defined()) put_back(i);
  aside_.clear();
  while (unsent_ > 0) send(*units_[--unsent_]);
  while (!on_their_way_.empty()) arrive_first();
  collectives_.add_up(values_, "in the exchange of losses");
  in_round_ = false;
}

void GradientExchange::release() {
  in_round_ = false;
  aside_.clear();
  // What still runs of a collective, failed or left behind, may write into its tensors.
  const std::deque<Unit*> in_use = std::exchange(on_their_way_, {});
  adds_.assign(static_cast<size_t>(shards_.ranks()), false);
  for (const NamedTensors* const all : {&shards_.parameters(), &shards_.own()})
    for (const auto& [name, parameter] : *all) parameter.mutable_grad().reset();
  for (const auto& unit : units_) {
    unit->forget_pass();
    unit->pending.reset();
    for (at::Tensor* const one : {&unit->bucket, &unit->received, &unit->sum, &unit->whole}) {
      const bool is_on_its_way = std::find(in_use.begin(), in_use.end(), unit.get()) != in_use.end();
      if (collectives_.has_failed() || is_on_its_way) {
        one->reset();
      } else {
        free_now(*one);
      }
    }
  }
}

}  // namespace dtk::policies
