// Random values that are pure functions of their place, equal on every machine and standard library.
#pragma once
#include <cstdint>

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

}  // namespace dtk
