// libFuzzer's side of the target DTK_FUZZ_TARGET.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "fuzz/target.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // A copy that ends where its memory does: a byte read behind it is seen.
  const std::string input(reinterpret_cast<const char*>(data), size);
  dtk::fuzz::attempt(dtk::fuzz::DTK_FUZZ_TARGET, input);
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned) {
  const size_t mutated = LLVMFuzzerMutate(data, size, max_size);
  if (dtk::fuzz::DTK_FUZZ_TARGET.mend == nullptr) return mutated;
  std::string text(reinterpret_cast<const char*>(data), mutated);
  dtk::fuzz::DTK_FUZZ_TARGET.mend(text);
  const size_t bytes = std::min(text.size(), max_size);
  std::copy_n(text.data(), bytes, reinterpret_cast<char*>(data));
  return bytes;
}
