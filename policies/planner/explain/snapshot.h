// What is read off a watched job: which storages autograd holds at the end of a forward pass, for whom, and
// what each module was given; the largest parameter and the temporaries of its size.
#pragma once
#include <dtk/planner/explain.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace dtk::planner {

struct Snapshot {
  static constexpr int kOutside = -1;
  using Storage = uint64_t;  // MemoryBlock::serial

  /// One run of a module. Parameters are in none of these.
  struct Instance {
    std::string path;
    int parent = kOutside;
    std::map<Storage, int64_t> inputs;  // bytes
    std::vector<Storage> outputs;       // without those that are inputs
    int64_t tensors_saved = 0;          // within it, parameters too
  };
  struct Holder {
    int instance = kOutside;  // the innermost
    std::string path;         // of it, else where the thread was
    friend auto operator<=>(const Holder&, const Holder&) = default;
  };
  struct Kept {
    int64_t bytes = 0;
    std::vector<Holder> holders;
  };

  std::vector<Instance> instances;  // parents before those within them
  std::map<Storage, Kept> kept;

  int64_t bytes() const;
  bool within(int instance, const std::string& path) const;
  /// The path of the module that no other one runs; outside of all the holder's own.
  const std::string& outermost(const Holder& holder) const;
};

/// Reads the ledger's event log. `names`: of parameters, by MemoryEvent::serial.
LargestParameter largest_parameter(const std::vector<policies::MemoryEvent>& events,
                                   const std::vector<std::string>& phases,
                                   const std::map<uint64_t, std::string>& names);

/// Fills saved, outside, entering, kept_by and segments.
void explain_snapshot(const Snapshot& snapshot, Observed& observed);

}  // namespace dtk::planner
