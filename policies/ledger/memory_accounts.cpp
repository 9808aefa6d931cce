#include <dtk/policies/memory_accounts.h>

#include <algorithm>
#include <deque>
#include <stdexcept>
#include <unordered_map>
#include <utility>

namespace dtk::policies {
namespace {

constexpr uint16_t kLive = 0xB10C;
constexpr uint16_t kDead = 0xDEAD;

struct OwnerTable {
  std::mutex mutex;
  std::deque<Owner> owners;
  std::unordered_map<std::string, uint32_t> ids;  // key: category digit, label, 0, made_by
};

// Leaked on purpose: blocks are freed by static destructors of other libraries.
OwnerTable& owner_table() {
  static auto* table = new OwnerTable;
  return *table;
}

Owner owner_at(size_t index) {
  auto& table = owner_table();
  std::lock_guard lock(table.mutex);
  return table.owners.at(index);
}

bool temporary(OwnerId id) {
  return id.category == Category::temporaries;
}

void check(const MemoryBlock* block) {
  if (block->mark != kLive)
    throw std::logic_error("memory ledger: not a live block of the counting allocator");
}

}  // namespace

const char* name_of(Category category) {
  static constexpr const char* kNames[kCategories] = {"parameters", "frozen",      "casts",   "gradients",
                                                      "optimizer",  "ema",         "saved",   "offloaded",
                                                      "data",       "temporaries", "scratch", "other"};
  return kNames[static_cast<int>(category)];
}

OwnerId owner_id(Category category, std::string_view label, std::string_view made_by) {
  std::string key(1, static_cast<char>('0' + static_cast<int>(category)));
  key += label;
  key += '\0';
  key += made_by;
  auto& table = owner_table();
  std::lock_guard lock(table.mutex);
  const auto [entry, added] =
      table.ids.try_emplace(std::move(key), static_cast<uint32_t>(table.owners.size()));
  if (added) table.owners.push_back({category, std::string(label), std::string(made_by)});
  return {entry->second, category};
}

Owner owner_of(OwnerId id) {
  return owner_at(id.index);
}

void MemorySums::add(OwnerId owner, int64_t more) {
  if (owner.index >= by_owner.size()) by_owner.resize(owner.index + 1, 0);
  by_owner[owner.index] += more;
  bytes += more;
}

int64_t MemorySums::of(Category category) const {
  int64_t sum = 0;
  for (size_t i = 0; i < by_owner.size(); ++i) {
    if (by_owner[i] != 0 && owner_at(i).category == category) sum += by_owner[i];
  }
  return sum;
}

std::map<Category, std::map<std::string, int64_t>> MemorySums::items() const {
  std::map<Category, std::map<std::string, int64_t>> result;
  for (size_t i = 0; i < by_owner.size(); ++i) {
    if (by_owner[i] == 0) continue;
    const Owner owner = owner_at(i);
    result[owner.category][owner.label] += by_owner[i];
  }
  return result;
}

std::map<std::string, int64_t> MemorySums::by_operator(Category category) const {
  std::map<std::string, int64_t> result;
  for (size_t i = 0; i < by_owner.size(); ++i) {
    if (by_owner[i] == 0) continue;
    const Owner owner = owner_at(i);
    if (owner.category == category) result[owner.made_by] += by_owner[i];
  }
  return result;
}

void MemoryAccounts::log(MemoryEvent::Kind kind, uint64_t serial, int64_t bytes, OwnerId from, OwnerId to) {
  if (logging_) events_.push_back({kind, serial, bytes, from, to});
}

// The sums at a peak are copied only when the total is about to fall: while it rises, and while blocks
// change hands at the top, a copy would be thrown away by the next event.
void MemoryAccounts::keep_peak() {
  if (!peak_pending_) return;
  phases_[phase_].sums = live_;
  phases_[phase_].born_before = serial_;
  peak_pending_ = false;
}

void MemoryAccounts::raise_peak() {
  Phase& phase = phases_[phase_];
  if (live_.bytes <= phase.peak) return;
  phase.peak = live_.bytes;
  peak_pending_ = true;
}

void MemoryAccounts::birth(MemoryBlock* block, int64_t bytes, OwnerId owner, uint64_t operation) {
  std::lock_guard lock(mutex_);
  *block = MemoryBlock{nullptr, first_, bytes, serial_++, owner, owner, operation, 0, kLive, tier_};
  if (first_ != nullptr) first_->previous = block;
  first_ = block;
  live_.add(owner, bytes);
  log(MemoryEvent::Kind::birth, block->serial, bytes, owner, owner);
  raise_peak();
}

// Only its death shows that a block was scratch, so a peak that was noted while it lived is corrected. That
// can only be the current phase's: no phase begins or ends within an operator.
void MemoryAccounts::book_as_scratch(MemoryBlock* block) {
  const OwnerId from = block->owner, to = owner_id(Category::scratch, owner_of(from).label);
  log(MemoryEvent::Kind::scratch, block->serial, block->bytes, from, to);
  live_.add(from, -block->bytes);
  live_.add(to, block->bytes);
  block->owner = to;
  Phase& phase = phases_[phase_];
  if (peak_pending_ || block->serial >= phase.born_before) return;
  phase.sums.add(from, -block->bytes);
  phase.sums.add(to, block->bytes);
}

void MemoryAccounts::death(MemoryBlock* block, bool within_operation) {
  std::lock_guard lock(mutex_);
  check(block);
  if (within_operation && temporary(block->owner)) book_as_scratch(block);
  keep_peak();
  live_.add(block->owner, -block->bytes);
  log(MemoryEvent::Kind::death, block->serial, block->bytes, block->owner, block->owner);
  (block->previous != nullptr ? block->previous->next : first_) = block->next;
  if (block->next != nullptr) block->next->previous = block->previous;
  block->mark = kDead;
}

void MemoryAccounts::move(MemoryBlock* block, OwnerId to) {
  if (block->owner == to) return;
  log(MemoryEvent::Kind::transfer, block->serial, block->bytes, block->owner, to);
  live_.add(block->owner, -block->bytes);
  live_.add(to, block->bytes);
  block->owner = to;
}

void MemoryAccounts::assign(MemoryBlock* block, OwnerId owner) {
  const bool held_if_saved = temporary(owner);
  std::lock_guard lock(mutex_);
  check(block);
  block->holder = owner;
  if (block->saved == 0 || !held_if_saved) move(block, owner);
}

void MemoryAccounts::hold(MemoryBlock* block, OwnerId owner) {
  std::lock_guard lock(mutex_);
  check(block);
  if (block->saved++ == 0 && temporary(block->holder)) move(block, made_by_holder(owner, block->holder));
}

// The pair's owner, found without its names: this is asked for each tensor that is saved.
OwnerId MemoryAccounts::made_by_holder(OwnerId owner, OwnerId holder) {
  const auto [entry, added] = made_by_.try_emplace({owner.index, holder.index});
  if (added) entry->second = owner_id(owner.category, owner_of(owner).label, owner_of(holder).label);
  return entry->second;
}

void MemoryAccounts::release(MemoryBlock* block) {
  std::lock_guard lock(mutex_);
  check(block);
  if (--block->saved == 0) move(block, block->holder);
}

size_t MemoryAccounts::phase_index(std::string_view name) {
  for (size_t i = 0; i < phases_.size(); ++i) {
    if (phases_[i].name == name) return i;
  }
  phases_.push_back({std::string(name), -1, {}});
  return phases_.size() - 1;
}

std::string MemoryAccounts::enter_phase(std::string_view name) {
  std::lock_guard lock(mutex_);
  keep_peak();
  std::string left = phases_[phase_].name;
  phase_ = phase_index(name);
  log(MemoryEvent::Kind::phase, phase_, 0, {}, {});
  raise_peak();
  return left;
}

std::string MemoryAccounts::phase() const {
  std::lock_guard lock(mutex_);
  return phases_[phase_].name;
}

int64_t MemoryAccounts::disown_temporaries() {
  std::lock_guard lock(mutex_);
  keep_peak();
  int64_t moved = 0;
  for (MemoryBlock* block = first_; block != nullptr; block = block->next) {
    if (!temporary(block->owner)) continue;
    block->holder = owner_id(Category::other, owner_of(block->owner).label);
    move(block, block->holder);
    moved += block->bytes;
  }
  return moved;
}

int64_t MemoryAccounts::set_limit(int64_t bytes) {
  return limit_.exchange(bytes);
}

bool MemoryAccounts::has_room(int64_t bytes) const {
  const int64_t most = limit_;
  return most == kNoLimit || bytes <= most - live_bytes();
}

int64_t MemoryAccounts::live_bytes() const {
  std::lock_guard lock(mutex_);
  return live_.bytes;
}

MemorySums MemoryAccounts::live() const {
  std::lock_guard lock(mutex_);
  return live_;
}

MemorySums MemoryAccounts::walk() const {
  std::lock_guard lock(mutex_);
  MemorySums sums;
  sums.by_owner.resize(live_.by_owner.size(), 0);
  for (const MemoryBlock* block = first_; block != nullptr; block = block->next) {
    sums.by_owner.at(block->owner.index) += block->bytes;
    sums.bytes += block->bytes;
  }
  return sums;
}

std::vector<PhasePeak> MemoryAccounts::phases() const {
  std::lock_guard lock(mutex_);
  std::vector<PhasePeak> result;
  for (size_t i = 0; i < phases_.size(); ++i) {
    if (phases_[i].peak < 0) continue;
    const bool pending = i == phase_ && peak_pending_;
    result.push_back({phases_[i].name, pending ? live_ : phases_[i].sums});
  }
  return result;
}

const PhasePeak* phase_named(const std::vector<PhasePeak>& phases, const std::string& name) {
  const auto found =
      std::find_if(phases.begin(), phases.end(), [&](const PhasePeak& one) { return one.name == name; });
  return found != phases.end() ? &*found : nullptr;
}

PhasePeak highest(const std::vector<PhasePeak>& phases) {
  const PhasePeak* result = nullptr;
  for (const PhasePeak& phase : phases) {
    if (result == nullptr || phase.peak.bytes > result->peak.bytes) result = &phase;
  }
  return result != nullptr ? *result : PhasePeak{"build", {}};
}

void MemoryAccounts::reset_phases(std::string_view first_phase) {
  std::lock_guard lock(mutex_);
  phases_.assign(1, Phase{std::string(first_phase), -1, {}});
  phase_ = 0;
  peak_pending_ = false;
  log(MemoryEvent::Kind::reset, 0, 0, {}, {});
  raise_peak();
}

MemorySums MemoryAccounts::start_event_log() {
  std::lock_guard lock(mutex_);
  events_.clear();
  logging_ = true;
  return live_;
}

std::vector<MemoryEvent> MemoryAccounts::stop_event_log() {
  std::lock_guard lock(mutex_);
  logging_ = false;
  return std::exchange(events_, {});
}

std::vector<std::string> MemoryAccounts::phase_names() const {
  std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const Phase& phase : phases_) names.push_back(phase.name);
  return names;
}

}  // namespace dtk::policies
