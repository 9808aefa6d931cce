#include "toolkit/core/numbers.h"

#include <cstdio>

namespace dtk {

std::string formatted(const char* pattern, double value) {
  char text[64];
  std::snprintf(text, sizeof text, pattern, value);
  return text;
}

std::string percent_text(int64_t part, int64_t whole) {
  if (whole == 0) return "0 %";
  const int64_t percent = (200 * part + whole) / (2 * whole);
  return percent == 0 && part > 0 ? "<1 %" : std::to_string(percent) + " %";
}

std::string flops_text(int64_t count) {
  const auto flops = static_cast<double>(count);
  char text[32];
  std::snprintf(text, sizeof text, "%.4g %s", flops / (flops < 1e12 ? 1e9 : 1e12),
                flops < 1e12 ? "GFLOP" : "TFLOP");
  return text;
}

std::string readable_bytes(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes < 1024) return std::to_string(bytes) + " B";
  if (bytes < 1024 * 1024) return formatted("%.1f KiB", value / 1024);
  if (bytes < 1024 * 1024 * 1024) return formatted("%.1f MiB", value / (1024 * 1024));
  return formatted("%.2f GiB", value / (1024.0 * 1024 * 1024));
}

std::string exact_bytes(int64_t bytes) {
  return readable_bytes(bytes) + " (" + std::to_string(bytes) + " bytes)";
}

}  // namespace dtk
