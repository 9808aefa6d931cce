// Numbers as people read them.
#pragma once
#include <cstdint>
#include <string>

namespace dtk {

/// "96 %", "<1 %"
std::string percent_text(int64_t part, int64_t whole);

/// "12.3 GFLOP", "1.23 TFLOP"
std::string flops_text(int64_t count);

/// "12.3 MiB", "1.45 GiB".
std::string readable_bytes(int64_t bytes);

/// "1.45 GiB (1556925645 bytes)"
std::string exact_bytes(int64_t bytes);

}  // namespace dtk
