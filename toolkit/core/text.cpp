#include "toolkit/core/text.h"

namespace dtk {

std::string escaped(const std::string& text) {
  constexpr char hex[] = "0123456789ABCDEF";
  std::string result;
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (c == '\n') {
      result += "\\n";
    } else if (c == '\t') {
      result += "\\t";
    } else if (code < 0x20 || code == 0x7f) {
      result += "\\u00";
      result += hex[code >> 4];
      result += hex[code & 15];
    } else {
      result += c;
    }
  }
  return result;
}

}  // namespace dtk
