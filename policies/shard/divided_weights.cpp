// Weights of which each rank has its part. A unit's parameters are views of one storage, whose memory comes
// when the unit is gathered and goes when nobody uses it; the storage, what views it and what autograd saved
// stay.
#include "shard/divided_weights.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/util/StringUtil.h>
#include <dtk/policies/internal/recomputing.h>
#include <dtk/policies/internal/when_accumulated.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/shards.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "hooks/operator_watch.h"
#include "shard/targets.h"

namespace dtk::policies {
namespace {

// Who reads memory that is not there is told why, by a LibTorch that can forget that again; others crash.
template <class Storage>
constexpr bool kSaysWhy = requires(Storage& storage) {
  storage.clear_data_ptr_access_error_msg_();
};
template <class Storage>
void refuse_reads(Storage& storage, [[maybe_unused]] const std::string& why) {
  if constexpr (kSaysWhy<Storage>) storage.release_data_and_set_meta_custom_data_ptr_error_msg_(why);
}
template <class Storage>
void allow_reads(Storage& storage) {
  if constexpr (kSaysWhy<Storage>) storage.clear_data_ptr_access_error_msg_();
}

// As `like`, of the same size, with this memory.
at::Tensor over(at::DataPtr memory, const at::Tensor& like) {
  at::Tensor made = like.tensor_data();
  made.unsafeGetTensorImpl()->set_allow_tensor_metadata_change(true);
  made.unsafeGetTensorImpl()->set_storage_keep_dtype(
      c10::Storage(c10::Storage::use_byte_size_t(), like.nbytes(), std::move(memory), /*allocator=*/nullptr,
                   /*resizable=*/false));
  return made;
}

constexpr std::string_view kNoModule;
const std::vector<size_t> kNoUnits;

}  // namespace

// Through an operator, so that a plan's device and the books have it, too.
void Shards::Home::take_memory() {
  const OwnerScope owner(Category::parameters, "gathered");
  const at::Tensor memory = at::empty(whole.sizes(), whole.options());
  allow_reads(storage());
  storage().set_data_ptr_noswap(memory.storage().set_data_ptr(at::DataPtr(nullptr, whole.device())));
}

int64_t Shards::Home::byte_of(int64_t element) const {
  const auto behind = std::find_if(stretches.begin(), stretches.end(),
                                   [&](const Stretch& one) { return one.begin > element; });
  const Stretch& stretch = *std::prev(behind);
  return stretch.byte + (element - stretch.begin) * static_cast<int64_t>(c10::elementSize(stretch.type));
}

void Shards::Home::widen() {
  if (!has_bf16()) return;
  take_memory();
  const at::Tensor into = whole.tensor_data();
  each_sent(0, into.numel(), [&](const at::Tensor& sent, int64_t from, int64_t elements) {
    into.narrow(0, from, elements).copy_(sent);
  });
  free_now(received);
}

void Shards::Home::let_go() {
  if (has_bf16()) free_now(received);
  storage().set_data_ptr_noswap(at::DataPtr(nullptr, whole.device()));
  refuse_reads(storage(), complaint);
  is_whole = is_ahead = false;
  without_gradient = 0;
}

at::Tensor Shards::Home::second_view() const {
  return over(at::DataPtr(storage().mutable_data(), whole.device()), whole);
}

void Shards::Home::send_off() {
  // Then they are read as they were: a crash would say no more.
  if (!kSaysWhy<c10::StorageImpl>) return;
  received = over(storage().set_data_ptr(at::DataPtr(nullptr, whole.device())), whole);
  refuse_reads(storage(), complaint);
}

void Shards::Home::come_back() {
  if (!received.defined()) return;
  allow_reads(storage());
  storage().set_data_ptr_noswap(received.storage().set_data_ptr(at::DataPtr(nullptr, whole.device())));
  received.reset();
}

void Shards::name_users(const std::vector<std::string>& modules) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const std::string& name = parameters_[i].first;
    const size_t unit = place_[i].first;
    const std::string module(units_[unit].is_target ? innermost_module(name, modules) : kNoModule);
    std::vector<size_t>& units = units_of_[module];
    if (units.empty() || units.back() != unit) units.push_back(unit);
  }
  std::vector<size_t> order;
  for (const std::string& module : targets_) {
    const std::vector<size_t>& units = units_of(module);
    if (units.empty()) continue;
    turns_.push_back(module);
    order.insert(order.end(), units.begin(), units.end());
  }
  with_gradients_ = std::make_unique<Order>(order, /*learns=*/true);
  without_gradients_ = std::make_unique<Order>(std::move(order), /*learns=*/false);
}

// Ranks gather together: one that leaves a module out, or runs it at another time, would wait for ever.
void Shards::take_turn(std::string_view module) {
  if (next_turn_ < turns_.size() && turns_[next_turn_] == module) {
    ++next_turn_;
    return;
  }
  const std::string next = next_turn_ < turns_.size() ? turns_[next_turn_] : "backward";
  throw PolicyError(
      "policies.shard.level",
      c10::str(" = \"parameters\": a pass comes to ", module, ", and next is ", next,
               ": all ranks gather the weights of the modules together, so that each pass runs each of them "
               "once, in the order of their paths; where that cannot be, set \"optimizer\""));
}

void Shards::watch_gradients(size_t unit) {
  for (const ParameterUnit::Member& member : units_[unit].members)
    when_accumulated(
        parameters_[member.index].second, [this, unit](const at::Tensor&) { accumulated(unit); }, alive_);
}

const std::vector<size_t>& Shards::units_of(std::string_view module) const {
  const auto found = units_of_.find(module);
  return found == units_of_.end() ? kNoUnits : found->second;
}

// `order`: of the pass, where it gathers for a module.
void Shards::make_whole(const std::vector<size_t>& units, Order* order) {
  const at::NoGradGuard no_grad;
  const UnwatchedScope no_part_of_a_segment;  // whose recomputation may find the weights there
  std::vector<size_t> come;
  for (const size_t i : units)
    if (!homes_[i]->is_whole || homes_[i]->is_ahead) come.push_back(i);
  for (const size_t i : come) {
    homes_[i]->is_ahead = false;
    if (order != nullptr) order->came_to(i);
  }
  for (size_t i = 0; i < homes_.size(); ++i) {
    const Home& home = *homes_[i];
    const bool is_wanted = std::find(units.begin(), units.end(), i) != units.end();
    if (home.is_whole && !home.is_used() && !is_wanted && !is_expected(i, order)) let_go(i);
  }
  for (const size_t i : come)
    if (!homes_[i]->is_whole) take_memory(i);
  for (const size_t i : come) {
    finish_gather(i);
    homes_[i]->widen();
  }
  if (order != nullptr && !come.empty()) gather_ahead(*order);
}

// Of what was gathered ahead.
bool Shards::is_expected(size_t unit, const Order* order) const {
  if (!homes_[unit]->is_ahead || order == nullptr) return false;
  for (int64_t i = 0; i < prefetch_; ++i)
    if (order->next(i) == unit) return true;
  return false;
}

void Shards::gather_ahead(const Order& order) {
  for (int64_t i = 0; i < prefetch_; ++i) {
    const std::optional<size_t> next = order.next(i);
    if (!next) return;
    Home& home = *homes_[*next];
    if (home.is_ahead) continue;
    if (home.is_whole) return;  // and may be gone when its turn comes
    take_memory(*next);
    home.is_ahead = true;
  }
}

void Shards::take_memory(size_t unit) {
  Home& home = *homes_[unit];
  const int64_t begin = begin_of_part(unit, rank()), elements = home.own.numel();
  if (home.has_bf16()) {
    const OwnerScope owner(Category::parameters, "gathered");
    home.received = at::empty({home.byte_ends.back()}, home.whole.options().dtype(at::kByte));
    home.each_sent(begin, begin + elements, [&](const at::Tensor& sent, int64_t from, int64_t some) {
      sent.copy_(home.own.narrow(0, from - begin, some));
    });
  } else {
    home.take_memory();
    home.whole.tensor_data().narrow(0, begin, elements).copy_(home.own);
  }
  begin_gather(unit);
  home.is_whole = true;
}

void Shards::let_go(size_t unit) {
  finish_gather(unit);
  homes_[unit]->let_go();
}

void Shards::begin_pass() {
  if (!divides_weights_) return arrive(kNoModule);
  let_go();
  order_ = (at::GradMode::is_enabled() ? with_gradients_ : without_gradients_).get();
  order_->begin();
  const std::vector<size_t>& units = units_of(kNoModule);
  make_whole(units, nullptr);
  for (const size_t unit : units) homes_[unit]->use_until_gradients();
}

void Shards::let_go() {
  // What still runs of a collective that failed may write into them.
  if (collectives_ != nullptr && collectives_->has_failed()) return;
  next_turn_ = 0;
  for (size_t i = 0; i < homes_.size(); ++i) {
    homes_[i]->without_gradient = 0;
    if (homes_[i]->is_whole) let_go(i);
  }
}

Shards::Use::Use(Shards& shards, std::string_view module)
    : shards_(shards), units_(shards.divides_weights_ ? shards.units_of(module) : kNoUnits) {
  if (!shards_.divides_weights_) shards_.arrive(module);
  if (units_.empty()) return;
  if (at::GradMode::is_enabled() && !recomputing()) shards_.take_turn(module);
  shards_.make_whole(units_, shards_.order_);
  for (const size_t unit : units_) ++shards_.homes_[unit]->uses;
}

Shards::Use::~Use() {
  for (const size_t unit : units_) {
    Home& home = *shards_.homes_[unit];
    if (recomputing()) home.use_until_gradients();
    --home.uses;
  }
}

void Shards::use_in_backward(std::string_view module) {
  const std::vector<size_t>& units = units_of(module);
  if (!divides_weights_ || units.empty()) return;
  if (next_turn_ < turns_.size()) take_turn("backward");
  make_whole(units, order_);
  for (const size_t unit : units) homes_[unit]->use_until_gradients();
}

void Shards::accumulated(size_t unit) {
  Home& home = *homes_[unit];
  if (home.without_gradient == 0 || --home.without_gradient > 0 || home.is_used()) return;
  home.let_go();
}

}  // namespace dtk::policies
