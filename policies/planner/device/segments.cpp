#include "device/segments.h"

#include <algorithm>
#include <iterator>

namespace dtk::planner {
namespace {

constexpr int64_t kMiB = 1 << 20;
// kMinBlockSize, kSmallSize, kSmallBuffer, kMinLargeAlloc, kLargeBuffer, kRoundLarge of
// c10/core/AllocatorConfig.h.
constexpr int64_t kMinBlock = 512, kSmall = kMiB, kSmallSegment = 2 * kMiB, kOwnSegment = 10 * kMiB,
                  kLargeSegment = 20 * kMiB, kLargeRounding = 2 * kMiB;

int64_t rounded(int64_t bytes, int64_t multiple) {
  return (bytes + multiple - 1) / multiple * multiple;
}

int64_t segment_for(int64_t bytes) {
  if (bytes <= kSmall) return kSmallSegment;
  return bytes < kOwnSegment ? kLargeSegment : rounded(bytes, kLargeRounding);
}

}  // namespace

Segments::Pieces::iterator Segments::take(int64_t bytes, c10::StreamId stream) {
  const bool is_small = bytes <= kSmall;
  auto& free = free_[is_small];
  const auto found = free.lower_bound({stream, bytes, 0});
  if (found != free.end() && std::get<0>(*found) == stream) {
    const auto piece = pieces_.find(std::get<2>(*found));
    free.erase(found);
    return piece;
  }
  const int64_t segment = segment_for(bytes), address = reserved_.bytes;
  reserved_.bytes += segment;
  if (is_small) reserved_.small_bytes += segment;
  return pieces_.emplace(address, Piece{segment, reserved_.segments++, stream, is_small}).first;
}

void Segments::born(uint64_t id, int64_t asked, c10::StreamId stream) {
  const int64_t bytes = rounded(asked, kMinBlock);
  const auto piece = take(bytes, stream);
  piece->second.is_free = false;
  const int64_t rest = piece->second.bytes - bytes;
  if (piece->second.is_small ? rest >= kMinBlock : rest > kSmall) {
    Piece behind = piece->second;
    behind.bytes = rest;
    behind.is_free = true;
    piece->second.bytes = bytes;
    const auto added = pieces_.emplace_hint(std::next(piece), piece->first + bytes, behind);
    free_[behind.is_small].insert(key(added));
  }
  addresses_[id] = piece->first;
}

// What follows becomes part of `piece`, if both are free and of one segment.
void Segments::join_next(Pieces::iterator piece) {
  const auto next = std::next(piece);
  if (next == pieces_.end() || !next->second.is_free || next->second.segment != piece->second.segment) return;
  auto& free = free_[piece->second.is_small];
  free.erase(key(piece));
  free.erase(key(next));
  piece->second.bytes += next->second.bytes;
  pieces_.erase(next);
  free.insert(key(piece));
}

void Segments::freed(uint64_t id) {
  const auto known = addresses_.find(id);
  if (known == addresses_.end()) return;
  const auto piece = pieces_.find(known->second);
  addresses_.erase(known);
  piece->second.is_free = true;
  free_[piece->second.is_small].insert(key(piece));
  join_next(piece);
  if (piece != pieces_.begin() && std::prev(piece)->second.is_free) join_next(std::prev(piece));
}

}  // namespace dtk::planner
