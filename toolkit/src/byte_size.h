// Sizes as people write them.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace dtk {

/// Bytes of "2GB", "1.5 GiB", "800 kB" or "4096": powers of 1000, with an i of 1024; nothing for any other
/// text, and for more than int64_t holds.
std::optional<int64_t> parse_bytes(const std::string& text);

}  // namespace dtk
