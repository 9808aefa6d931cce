#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/util/StringUtil.h>
#include <dtk/policies/gradient_exchange.h>
#include <dtk/policies/internal/when_accumulated.h>
#include <dtk/policies/memory_ledger.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>

namespace dtk::policies {
namespace {

// Elements. AdamW's kernel rounds the elements of a vector otherwise than those behind the last whole one, so
// that no parameter and no part of one may end within a vector of a unit.
constexpr int64_t kCell = 64;

int64_t whole_cells(int64_t elements) {
  return (elements + kCell - 1) / kCell;
}

int64_t bytes_of(int64_t elements) {
  return elements * static_cast<int64_t>(sizeof(float));
}

// A Work that was waited for may be held by its group's thread for a moment, and its tensors with it: what
// must be free now is let go by its storage.
void free_now(at::Tensor& tensor) {
  if (!tensor.defined()) return;
  const at::Device device = tensor.device();
  tensor.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(at::DataPtr(nullptr, device));
  tensor.reset();
}

using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;

}  // namespace

std::string collective_cause(const std::exception& error) {
  std::string text = error.what();
  text.resize(std::min(text.find('\n'), text.size()));
  if (text.starts_with('[') && text.find("] ") != text.npos) text.erase(0, text.find("] ") + 2);
  text.resize(std::min(text.find(". This is typically caused"), text.size()));
  if (text.ends_with('.')) text.pop_back();
  return text;
}

struct GradientExchange::Unit {
  struct Member {
    std::string name;
    at::Tensor parameter;
    int64_t offset;        // elements
    bool reached = false;  // by the running backward pass
  };
  std::vector<Member> members;
  // Elements, by rank, of what it adds up; begins where the one before ends.
  std::vector<int64_t> ends = {};
  // In a round: the own gradients, until they are sent.
  at::Tensor bucket = {};
  size_t ready = 0;  // members
  // In a step: the own part of the sums, then all of them.
  at::Tensor sum = {}, whole = {};

  int64_t elements() const { return ends.back(); }
  int64_t begin(int64_t rank) const { return rank == 0 ? 0 : ends[static_cast<size_t>(rank) - 1]; }
  int64_t part(int64_t rank) const { return ends[static_cast<size_t>(rank)] - begin(rank); }
  // Of ranks that add something up: all but the last ones of a small unit.
  int64_t parts() const {
    return std::count_if(ends.begin(), ends.end(), [before = int64_t{0}](int64_t end) mutable {
      return end > std::exchange(before, end);
    });
  }
  void forget_pass() {
    ready = 0;
    for (Member& member : members) member.reached = false;
  }
  std::string label() const {
    const std::string& first = members.front().name;
    return members.size() == 1 ? first : c10::str(first, " and ", members.size() - 1, " more");
  }
  at::Tensor of(const Member& member, const at::Tensor& all) const {
    return all.narrow(0, member.offset, member.parameter.numel()).view(member.parameter.sizes());
  }
};

GradientExchange::GradientExchange(c10::intrusive_ptr<c10d::Backend> group, const NamedTensors& parameters,
                                   const ExchangeOptions& options)
    : group_(std::move(group)),
      rank_(group_->getRank()),
      ranks_(group_->getSize()),
      sums_(options.sums),
      alive_(std::make_shared<char>()) {
  int64_t elements = 0;  // of the last unit
  for (const auto& [name, parameter] : parameters) {
    if (!parameter.requires_grad()) continue;
    if (parameter.scalar_type() != at::kFloat || !parameter.is_contiguous()) {
      throw PolicyError("distributed",
                        c10::str(": gradients of several ranks are added in fp32 as they lie, and ", name,
                                 " is ", parameter.scalar_type(), " with sizes ", parameter.sizes(),
                                 " and strides ", parameter.strides(), "; train it on one rank"));
    }
    if (units_.empty() || bytes_of(elements) >= options.min_unit) {
      units_.push_back(std::make_unique<Unit>());
      elements = 0;
    }
    units_.back()->members.push_back({name, parameter, elements});
    elements += whole_cells(parameter.numel()) * kCell;
    units_.back()->ends = {elements};
  }
  if (units_.empty()) throw std::invalid_argument("GradientExchange: no parameter needs a gradient");
  for (const auto& unit : units_) {
    const int64_t cells = unit->elements() / kCell;
    unit->ends.clear();
    for (int64_t rank = 1; rank <= ranks_; ++rank)
      unit->ends.push_back((rank * cells + ranks_ - 1) / ranks_ * kCell);
    for (size_t i = 0; i < unit->members.size(); ++i) {
      when_accumulated(
          unit->members[i].parameter, [this, to = unit.get(), i](const at::Tensor&) { accumulated(*to, i); },
          alive_);
    }
  }
  const OwnerScope owner(Category::optimizer, "scalars");
  values_ = at::zeros({ranks_}, units_.front()->members.front().parameter.options().requires_grad(false));
}

GradientExchange::~GradientExchange() = default;

// Begins collectives and waits for them.
template <class Begin>
void GradientExchange::finish(const char* what, const Begin& begin) {
  const auto begun = std::chrono::steady_clock::now();
  try {
    Works works;
    begin(works);
    for (const auto& work : works) work->wait();
  } catch (const std::exception& error) {
    has_failed_ = true;
    throw CollectiveError(c10::str(what, ": ", collective_cause(error)));
  }
  waited_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}

void GradientExchange::count(const char* collective, int64_t bytes, int64_t messages) {
  sent_[collective] += {bytes, messages};
}

void GradientExchange::count_again(int64_t rounds) {
  for (auto& [collective, all] : sent_) {
    const Traffic before = sent_before_round_[collective];
    all += {rounds * (all.bytes - before.bytes), rounds * (all.messages - before.messages)};
  }
}

int64_t GradientExchange::contributors() const {
  return std::count(round_.contributes.begin(), round_.contributes.end(), true);
}

void GradientExchange::begin_round(MicroBatchRound round) {
  if (static_cast<int64_t>(round.contributes.size()) != ranks_)
    throw std::invalid_argument("GradientExchange: a round names each rank");
  round_ = std::move(round);
  in_round_ = true;
  had_gradients_ = had_gradients_ || contributors() > 0;
  unsent_ = units_.size();
  sent_before_round_ = sent_;
  const at::NoGradGuard no_grad;
  values_.zero_();
}

void GradientExchange::set_value(const at::Tensor& own) {
  const at::NoGradGuard no_grad;
  values_[rank_].copy_(own);
}

void GradientExchange::accumulated(Unit& unit, size_t member) {
  if (!in_round_) throw std::logic_error("GradientExchange: a backward pass outside of a round");
  if (std::exchange(unit.members[member].reached, true))
    throw std::logic_error("GradientExchange: a second backward pass in a round");
  ++unit.ready;
  const at::NoGradGuard no_grad;
  if (sums_ == GradientSums::ordered || round_.is_last) take(unit, member);
  send_ready();
}

// The gradient of one parameter into the unit's bucket.
void GradientExchange::take(Unit& unit, size_t member) {
  if (!unit.bucket.defined()) {
    const OwnerScope owner(Category::gradients, "buckets");
    unit.bucket = at::zeros({unit.elements()}, values_.options());  // also what lies between parameters
  }
  at::Tensor& gradient = unit.members[member].parameter.mutable_grad();
  if (!gradient.defined()) return;
  unit.of(unit.members[member], unit.bucket).copy_(gradient);
  gradient.reset();
}

void GradientExchange::send_ready() {
  while (unsent_ > 0 && units_[unsent_ - 1]->ready == units_[unsent_ - 1]->members.size())
    send(*units_[--unsent_]);
}

void GradientExchange::send(Unit& unit) {
  unit.forget_pass();
  if (sums_ == GradientSums::native) {
    if (round_.is_last && had_gradients_) reduce(unit);
    return;
  }
  add_up(unit);
  if (round_.is_last) gather(unit);
}

// Each rank has a part of the unit's gradients of all micro-batches at once, as they are added one after the
// other.
void GradientExchange::add_up(Unit& unit) {
  if (contributors() == 0) return;
  const auto rank = static_cast<size_t>(rank_);
  const int64_t part = unit.part(rank_);
  std::vector<int64_t> taken(static_cast<size_t>(ranks_), 0), sent = taken;
  for (size_t from = 0; from < taken.size(); ++from) {
    if (round_.contributes[from]) taken[from] = part;
    if (round_.contributes[rank]) sent[from] = unit.part(static_cast<int64_t>(from));
  }
  at::Tensor received;
  {
    const OwnerScope owner(Category::gradients, "buckets");
    received = at::empty({part * contributors()}, values_.options());
    if (!unit.bucket.defined()) unit.bucket = at::empty({0}, values_.options());
  }
  finish("in the exchange of gradients",
         [&](Works& works) { works.push_back(group_->alltoall_base(received, unit.bucket, taken, sent)); });
  if (round_.contributes[rank])
    count("alltoall", bytes_of(unit.elements() - part), unit.parts() - (part > 0 ? 1 : 0));
  free_now(unit.bucket);
  int64_t next = 0;
  if (!unit.sum.defined()) {
    const OwnerScope owner(Category::gradients, unit.label());
    unit.sum = at::empty({part}, values_.options());
    unit.sum.copy_(received.narrow(0, 0, part));
    next = 1;
  }
  for (; next < contributors(); ++next) unit.sum.add_(received.narrow(0, next * part, part));
  free_now(received);
}

void GradientExchange::gather(Unit& unit) {
  if (!unit.sum.defined()) return;  // nothing in this step had a loss
  {
    const OwnerScope owner(Category::gradients, unit.label());
    unit.whole = at::empty({unit.elements()}, values_.options());
  }
  unit.whole.narrow(0, unit.begin(rank_), unit.part(rank_)).copy_(unit.sum);
  free_now(unit.sum);
  finish("in the exchange of sums", [&](Works& works) {
    for (int64_t from = 0; from < ranks_; ++from) {
      if (unit.part(from) == 0) continue;
      std::vector<at::Tensor> part{unit.whole.narrow(0, unit.begin(from), unit.part(from))};
      c10d::BroadcastOptions options;
      options.rootRank = from;
      works.push_back(group_->broadcast(part, options));
    }
  });
  if (unit.part(rank_) > 0) count("broadcast", bytes_of(unit.part(rank_)) * (ranks_ - 1), ranks_ - 1);
  hand_out(unit);
}

void GradientExchange::reduce(Unit& unit) {
  for (size_t i = 0; i < unit.members.size(); ++i) take(unit, i);  // of passes before, where this had none
  unit.whole = std::exchange(unit.bucket, at::Tensor());
  claim(unit.whole, Category::gradients, unit.label());
  finish("in the exchange of gradients", [&](Works& works) {
    std::vector<at::Tensor> all{unit.whole};
    works.push_back(group_->allreduce(all));
  });
  count("allreduce", 2 * bytes_of(unit.elements()) * (ranks_ - 1) / ranks_, 2 * (ranks_ - 1));
  hand_out(unit);
}

void GradientExchange::hand_out(Unit& unit) {
  for (const Unit::Member& member : unit.members)
    member.parameter.mutable_grad() = unit.of(member, unit.whole);
}

void GradientExchange::refuse_missed() const {
  std::vector<std::string> missed;
  for (size_t i = 0; i < unsent_; ++i) {
    for (const Unit::Member& member : units_[i]->members)
      if (!member.reached) missed.push_back(member.name);
  }
  const std::string more =
      missed.size() > 1 ? " and " + std::to_string(missed.size() - 1) + " more" : std::string();
  throw PolicyError("distributed", ": no gradient of a micro-batch reached " + missed.front() + more +
                                       "; where several ranks train, each micro-batch's loss must depend on "
                                       "all that is trained; train it on one rank");
}

void GradientExchange::end_round() {
  const at::NoGradGuard no_grad;
  if (round_.contributes[static_cast<size_t>(rank_)] && unsent_ > 0) refuse_missed();
  while (unsent_ > 0) send(*units_[--unsent_]);
  finish("in the exchange of losses", [&](Works& works) {
    std::vector<at::Tensor> all{values_};
    works.push_back(group_->allreduce(all));
  });
  count("allreduce", 2 * bytes_of(ranks_) * (ranks_ - 1) / ranks_, 2 * (ranks_ - 1));
  in_round_ = false;
}

void GradientExchange::release() {
  in_round_ = had_gradients_ = false;
  for (const auto& unit : units_) {
    unit->forget_pass();
    for (const Unit::Member& member : unit->members) member.parameter.mutable_grad().reset();
    for (at::Tensor* const one : {&unit->bucket, &unit->sum, &unit->whole}) {
      if (has_failed_) {
        one->reset();  // what still runs of a collective that failed may write into it
      } else {
        free_now(*one);
      }
    }
  }
}

}  // namespace dtk::policies
