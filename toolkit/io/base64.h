#pragma once
#include <string>

namespace dtk {

/// Bytes as letters, digits, + and /, filled up with = (RFC 4648), without line breaks.
std::string base64(const std::string& bytes);

}  // namespace dtk
