// What CUDA's caching allocator would take from the device for a series of storages.
#pragma once
#include <c10/core/Stream.h>
#include <dtk/planner/device_terms.h>

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>

namespace dtk::planner {

/// Follows c10/cuda/CUDACachingAllocator.cpp with its default settings: storages are rounded up to 512 bytes
/// and cut out of segments, the smallest free piece of the same stream that holds one first; a segment is
/// taken where there is none, and kept. Pieces of one size are taken from the lowest address, and segments
/// are thought to come at rising ones. Not thread-safe.
class Segments {
 public:
  /// `id`: of the storage, at freed() too. `bytes` > 0.
  void born(uint64_t id, int64_t bytes, c10::StreamId stream);
  /// Storages that were never born here are passed over.
  void freed(uint64_t id);
  /// Never less than before.
  const Reserved& reserved() const { return reserved_; }

 private:
  struct Piece {
    int64_t bytes = 0;
    int64_t segment = 0;
    c10::StreamId stream = 0;
    bool is_small = false;
    bool is_free = false;
  };
  using Pieces = std::map<int64_t, Piece>;  // by address

  Pieces::iterator take(int64_t bytes, c10::StreamId stream);
  void join_next(Pieces::iterator piece);
  auto key(Pieces::const_iterator piece) const {
    return std::tuple(piece->second.stream, piece->second.bytes, piece->first);
  }

  Pieces pieces_;
  std::array<std::set<std::tuple<c10::StreamId, int64_t, int64_t>>, 2>
      free_;                               // of large segments, of small ones
  std::map<uint64_t, int64_t> addresses_;  // by id
  Reserved reserved_;
};

}  // namespace dtk::planner
