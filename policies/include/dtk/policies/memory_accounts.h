// The books of the memory ledger: every live block has exactly one owner, and the sums by owner are kept
// at the instant of each phase's peak. Knows nothing of LibTorch; the counting allocator feeds it.
#pragma once
#include <dtk/policies/phase_meter.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dtk::policies {

/// What a block is for. `casts` are low-precision copies of weights that autograd keeps; `offloaded` is host
/// memory in which what autograd keeps waits for backward; `temporaries` are
/// born and freed within a step and labelled by operator; `scratch` is born and freed within one call of one
/// operator, whose kernel, library and thread count decide on it; `other` is what nobody claimed.
enum class Category : uint8_t {
  parameters,
  frozen,  // parameters that are not trained
  casts,
  gradients,
  optimizer,
  ema,
  saved,
  offloaded,
  data,
  temporaries,
  scratch,
  other
};
inline constexpr int kCategories = 12;
const char* name_of(Category category);

/// An owner is a category and a label below it (module path, operator name), interned for the process's
/// lifetime. Thread-safe.
struct OwnerId {
  uint32_t index = 0;
  Category category = Category::other;
  friend bool operator==(const OwnerId&, const OwnerId&) = default;
};
struct Owner {
  Category category;
  std::string label;
  std::string made_by;  // of what is saved: the operator whose result it is; else ""
};
OwnerId owner_id(Category category, std::string_view label, std::string_view made_by = "");
Owner owner_of(OwnerId id);

/// Whose books a block is in: those of CPU memory; in a job on the CPU, those of what a job on a device would
/// keep in the host's memory; those of a device whose storages are counted one by one (counted_blocks.h).
enum class MemoryTier : uint8_t { cpu, host, device };

/// Header in front of each counted block. The blocks form a list through their headers, so that the
/// ledger needs no map from address to block.
struct alignas(64) MemoryBlock {
  MemoryBlock* previous = nullptr;
  MemoryBlock* next = nullptr;
  int64_t bytes = 0;
  uint64_t serial = 0;     // order of birth
  OwnerId owner;           // whom the bytes are counted for now
  OwnerId holder;          // whom they are counted for when autograd does not hold the block
  uint64_t operation = 0;  // the operator call it was born in, 0 outside of all
  uint32_t saved = 0;      // tensors saved for backward that lie in this block
  uint16_t mark = 0;       // guards against freeing what is not a counted block
  MemoryTier tier{};       // whose books the block is in; fixed at birth
  bool reserved = false;   // its memory is a plan's (virtual_memory.h)
};
static_assert(sizeof(MemoryBlock) == 64, "the user's pointer behind the header must stay 64-byte aligned");

/// One change of the books, as the event log records it. `from` == `to` for births (from unused) and
/// deaths (to unused).
struct MemoryEvent {
  // scratch: a transfer that holds for the block's whole life, also at a peak it was part of.
  // reset: the phases were forgotten; their numbers begin anew.
  enum class Kind : uint8_t { birth, death, transfer, scratch, phase, reset };
  Kind kind;
  uint64_t serial;  // block; for `phase` the index into phase names
  int64_t bytes;
  OwnerId from;
  OwnerId to;
};

/// Live bytes by owner at one instant.
struct MemorySums {
  int64_t bytes = 0;
  std::vector<int64_t> by_owner;  // index: OwnerId::index

  /// `more` bytes of the owner; fewer where it is negative.
  void add(OwnerId owner, int64_t more);
  /// Bytes of all owners of the category.
  int64_t of(Category category) const;
  /// Category -> label -> bytes, zero entries left out.
  std::map<Category, std::map<std::string, int64_t>> items() const;
  /// The bytes of a category once more, by Owner::made_by.
  std::map<std::string, int64_t> by_operator(Category category) const;
};

/// An allocation that was not given, and what was alive then.
struct RefusedAllocation {
  int64_t bytes = 0;
  std::string asked_by;  // the operator, or the label of the owner
  std::string phase;
  std::string module_path;  // "" outside of all modules, or not known
  MemorySums live;
  std::optional<int64_t> limit = {};  // bytes that may be alive, where a MemoryBudgetGuard refused it
  MemoryTier tier = MemoryTier::cpu;  // whose memory it is of
};

struct PhasePeak {
  std::string name;
  MemorySums peak;  // at the last moment before the phase's highest total fell
};

/// The phase with the highest peak; the first of them if several are equal.
PhasePeak highest(const std::vector<PhasePeak>& phases);

/// The entry of that name, or null.
const PhasePeak* phase_named(const std::vector<PhasePeak>& phases, const std::string& name);

/// Thread-safe. All byte counts are requested bytes, without header, alignment or malloc's own overhead.
class MemoryAccounts final : public PhaseMeter {
 public:
  explicit MemoryAccounts(MemoryTier tier = MemoryTier::cpu) : tier_(tier) {}
  /// `operation` tells calls of operators apart; 0 stands for none.
  void birth(MemoryBlock* block, int64_t bytes, OwnerId owner, uint64_t operation = 0);
  /// `within_operation`: the call the block was born in is still running. A temporary then was scratch.
  void death(MemoryBlock* block, bool within_operation = false);
  /// Gives the block to `owner`; while autograd holds a temporary, it stays counted as saved.
  void assign(MemoryBlock* block, OwnerId owner);
  /// A tensor in this block was saved for backward under `owner` (category saved) / was released.
  /// Only temporaries change hands: a parameter or an input batch that autograd also holds keeps its owner.
  void hold(MemoryBlock* block, OwnerId owner);
  void release(MemoryBlock* block);

  std::string enter_phase(std::string_view name) override;
  /// The present one.
  std::string phase() const;

  /// The most that may be alive at once, for whoever asks has_room() before a birth; returns the limit so
  /// far.
  int64_t set_limit(int64_t bytes);
  int64_t limit() const { return limit_; }
  bool has_room(int64_t bytes) const;
  static constexpr int64_t kNoLimit = INT64_MAX;

  /// Moves temporaries that are still alive to `other` under the same label: called between steps, where
  /// nothing temporary may live. Returns the bytes moved.
  int64_t disown_temporaries();

  /// Requested bytes that are alive.
  int64_t live_bytes() const;
  /// Live sums computed by walking all blocks, for tests: must equal live().
  MemorySums walk() const;
  /// The same as they are kept: by owner.
  MemorySums live() const;
  /// In the order in which they were entered first; a phase that was entered again is one entry.
  std::vector<PhasePeak> phases() const override;
  /// Forgets all phases and their peaks; the books of live blocks stay.
  void reset_phases(std::string_view first_phase);

  /// Records every change from now on (for tests; grows without bound). Returns the sums at the start.
  MemorySums start_event_log();
  std::vector<MemoryEvent> stop_event_log();
  std::vector<std::string> phase_names() const;

 private:
  struct Phase {
    std::string name;
    int64_t peak = -1;  // below any total, so that the first event sets it
    MemorySums sums;
    uint64_t born_before = 0;  // blocks older than this and alive were in `sums`
  };
  void book_as_scratch(MemoryBlock* block);
  OwnerId made_by_holder(OwnerId owner, OwnerId holder);
  void move(MemoryBlock* block, OwnerId to);
  void raise_peak();
  void keep_peak();
  void log(MemoryEvent::Kind kind, uint64_t serial, int64_t bytes, OwnerId from, OwnerId to);
  size_t phase_index(std::string_view name);

  const MemoryTier tier_;
  std::atomic<int64_t> limit_{kNoLimit};
  mutable std::mutex mutex_;  // guards everything below
  MemoryBlock* first_ = nullptr;
  uint64_t serial_ = 0;
  MemorySums live_;
  std::vector<Phase> phases_{{"build", -1, {}}};
  size_t phase_ = 0;
  bool peak_pending_ = false;  // the phase's peak rose and its sums are not copied yet
  std::map<std::pair<uint32_t, uint32_t>, OwnerId> made_by_;  // by indices of owner and holder
  bool logging_ = false;
  std::vector<MemoryEvent> events_;
};

}  // namespace dtk::policies
