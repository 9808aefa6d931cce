#include "toolkit/core/numbers.h"

#include "toolkit/core/format.h"

namespace dtk {

std::string percent_text(int64_t part, int64_t whole) {
  if (whole == 0) return "0 %";
  const int64_t percent = (200 * part + whole) / (2 * whole);
  return percent == 0 && part > 0 ? "<1 %" : fmt::format("{} %", percent);
}

std::string flops_text(int64_t count) {
  const auto flops = static_cast<double>(count);
  return flops < 1e12 ? fmt::format("{:.4g} GFLOP", flops / 1e9) : fmt::format("{:.4g} TFLOP", flops / 1e12);
}

std::string readable_bytes(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes < 1024) return fmt::format("{} B", bytes);
  if (bytes < 1024 * 1024) return fmt::format("{:.1f} KiB", value / 1024);
  if (bytes < 1024 * 1024 * 1024) return fmt::format("{:.1f} MiB", value / (1024 * 1024));
  return fmt::format("{:.2f} GiB", value / (1024.0 * 1024 * 1024));
}

std::string exact_bytes(int64_t bytes) {
  return fmt::format("{} ({} bytes)", readable_bytes(bytes), bytes);
}

}  // namespace dtk
