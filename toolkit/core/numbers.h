// Numbers and sizes as people read and write them.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace dtk {

/// "96 %", "<1 %"
std::string percent_text(int64_t part, int64_t whole);

/// "12,345,678"
std::string with_separators(int64_t number);

/// "12.3 GFLOP", "1.23 TFLOP"
std::string flops_text(int64_t count);

/// "1 operator", "6 operators"
std::string count_text(int64_t count, const char* noun);

/// "12.3 MiB", "1.45 GiB".
std::string readable_bytes(int64_t bytes);

/// "1.45 GiB (1556925645 bytes)"
std::string exact_bytes(int64_t bytes);

/// What the figures of one report are written in.
struct ByteUnit {
  const char* name;
  double bytes;
  int decimals;
};
/// With few digits for the largest figure, `bytes`.
ByteUnit unit_for(int64_t bytes);
/// "24.8"; "0" for nothing at all, "<0.1" for what would read as that.
std::string in_unit(int64_t bytes, const ByteUnit& unit);
/// "24.8 MiB"
std::string with_unit(int64_t bytes, const ByteUnit& unit);

/// Bytes of "2GB", "24G", "1.5 GiB", "800 kb", "24e9" or "4096", in any case: powers of 1000, with an i of
/// 1024; nothing for any other text, and for more than int64_t holds.
std::optional<int64_t> parse_bytes(const std::string& text);

/// 80 of "80%"; nothing for any other text, and outside of (0, 100].
std::optional<double> parse_percent(const std::string& text);

inline bool is_byte_size(const std::string& text) {
  return parse_bytes(text).value_or(0) > 0 || parse_percent(text).has_value();
}

}  // namespace dtk
