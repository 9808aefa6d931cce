// Random values that are pure functions of their place, equal on every machine and standard library; and one
// seed, many independent streams of them: each use has a stream of its own, derived from the seed and a name,
// so that adding one changes no other.
#pragma once
#include <cstdint>
#include <string_view>

namespace dtk {

/// The output function of splitmix64, a bijection.
constexpr uint64_t mix64(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31);
}

/// Number `index` of the splitmix64 sequence that starts at `key`. Part of the definition of the data order:
/// a change makes old runs irreproducible.
constexpr uint64_t draw64(uint64_t key, uint64_t index) {
  return mix64(key + (index + 1) * 0x9e3779b97f4a7c15U);
}

/// Seed of the stream `name` of a run with `seed`.
constexpr uint64_t stream_seed(int64_t seed, std::string_view name) {
  auto key = static_cast<uint64_t>(seed);
  for (const char letter : name) key = draw64(key, static_cast<unsigned char>(letter));
  return key;
}

/// Seed of what is drawn for samples of which the first stands at `position` of `epoch`'s order, by a stream
/// with seed `stream`: a run that goes on draws what one that never stopped does, and keeps nothing for it.
/// LibTorch's generator on a CPU takes 32 bits of it.
constexpr uint64_t seed_at(uint64_t stream, int64_t epoch, int64_t position) {
  return draw64(draw64(stream, static_cast<uint64_t>(epoch)), static_cast<uint64_t>(position));
}

}  // namespace dtk
