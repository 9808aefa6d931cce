// A reader of files, for libFuzzer to attack and for ctest to replay what it found.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace dtk::fuzz {

struct Target {
  /// Reads `input` as a file of its kind. What it throws must be a dtk::Error: what a user is told. Aborts
  /// where what was read contradicts itself.
  void (*read)(std::string_view input);
  /// Bytes of memory that reading may take at most, beside the input itself.
  int64_t (*max_bytes)(std::string_view input);
  /// Makes a checksum that a mutation broke right again, so that what lies behind it is reached; null: none.
  void (*mend)(std::string& input) = nullptr;
};

// Each in targets/<name>.cpp, its corpus in corpus/<name>/.
#define DTK_FUZZ_TARGETS(X)                                                                           \
  X(archive)                                                                                          \
  X(calibration)                                                                                      \
  X(cameras)                                                                                          \
  X(checkpoint) X(configuration) X(dialogues) X(frames) X(history) X(idx) X(images) X(latents) X(npz) \
      X(recording) X(safetensors) X(scales) X(torch_file)
#define DTK_FUZZ_DECLARE(name) extern const Target name;
DTK_FUZZ_TARGETS(DTK_FUZZ_DECLARE)
#undef DTK_FUZZ_DECLARE

/// Reads `input`; true if it was taken, false if it was refused in a message of reasonable length. Aborts
/// otherwise, with what was thrown.
bool attempt(const Target& target, std::string_view input);

/// A bound that is linear in the input.
template <int64_t PerByte, int64_t FixedKiB>
int64_t linear(std::string_view input) {
  return PerByte * static_cast<int64_t>(input.size()) + (FixedKiB << 10);
}

}  // namespace dtk::fuzz
