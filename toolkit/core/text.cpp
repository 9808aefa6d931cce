#include "toolkit/core/text.h"

#include "toolkit/core/format.h"

namespace dtk {
namespace {

/// Bytes of the UTF-8 character that `text` begins with (Unicode, table 3-7); 0 if it begins with none.
size_t character_bytes(std::string_view text) {
  const auto byte = [&](size_t at) { return at < text.size() ? static_cast<unsigned char>(text[at]) : 0U; };
  const unsigned first = byte(0), second = byte(1);
  if (first < 0x80) return 1;
  const size_t bytes = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
  const unsigned lowest = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned highest = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (bytes == 0 || second < lowest || second > highest) return 0;
  for (size_t at = 2; at < bytes; ++at) {
    if ((byte(at) & 0xc0) != 0x80) return 0;
  }
  return bytes;
}

bool is_control(std::string_view character) {
  const auto code = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return (code < 0x20 && code != '\n' && code != '\t') || code == 0x7f;
  return code == 0xc2 && static_cast<unsigned char>(character[1]) < 0xa0;  // U+0080 to U+009F
}

}  // namespace

std::string printable(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const size_t bytes = character_bytes(text);
    const std::string_view character = text.substr(0, std::max<size_t>(bytes, 1));
    if (bytes > 0 && !is_control(character)) {
      result += character;
    } else {
      for (const char c : character) result += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
    text.remove_prefix(character.size());
  }
  return result;
}

std::string shown(const std::filesystem::path& path) {
  std::string text;
  for (const char c : path.string()) {
    if (c == '\n') {
      text += "\\x0a";
    } else {
      text += c;
    }
  }
  return text;
}

std::string lines_within(const std::string& text, size_t columns) {
  std::string result;
  for (const std::string& line : split(text, '\n')) {
    const size_t begin = std::min(line.find_first_not_of(' '), line.size());
    const std::string indent(begin + 2, ' ');
    std::string row = line.substr(0, begin);
    bool is_empty = true;
    for (const std::string& word : split(line.substr(begin), ' ')) {
      if (!is_empty && row.size() + 1 + word.size() > columns) {
        result += row + '\n';
        row = indent;
        is_empty = true;
      }
      row += (is_empty ? "" : " ") + word;
      is_empty = false;
    }
    result += row + '\n';
  }
  result.pop_back();
  return result;
}

std::string shell_quoted(const std::string& text) {
  constexpr std::string_view plain = "-_./:=,+@%";
  const bool is_plain = !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           plain.find(c) != std::string_view::npos;
  });
  if (is_plain) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

bool natural_less(std::string_view a, std::string_view b) {
  const auto digits_at = [](std::string_view text, size_t at) {
    size_t end = at;
    while (end < text.size() && text[end] >= '0' && text[end] <= '9') ++end;
    return text.substr(at, end - at);
  };
  const auto without_zeros = [](std::string_view digits) {
    return digits.substr(std::min(digits.find_first_not_of('0'), digits.size()));
  };
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    const std::string_view x = digits_at(a, i), y = digits_at(b, j);
    if (x.empty() || y.empty()) {
      if (a[i] != b[j]) return static_cast<unsigned char>(a[i]) < static_cast<unsigned char>(b[j]);
      ++i, ++j;
      continue;
    }
    const std::string_view p = without_zeros(x), q = without_zeros(y);
    if (p.size() != q.size()) return p.size() < q.size();
    if (p != q) return p < q;
    i += x.size(), j += y.size();
  }
  if (i < a.size() || j < b.size()) return j < b.size();
  return a < b;
}

std::string first_few(const std::vector<std::string>& names, size_t shown) {
  if (names.size() <= shown) return listed(names, ", ");
  const std::vector<std::string> first(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown));
  return fmt::format("{} and {} more", listed(first, ", "), names.size() - shown);
}

std::string escaped(const std::string& text) {
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
      result += fmt::format("\\u{:04X}", code);
    } else {
      result += c;
    }
  }
  return result;
}

}  // namespace dtk
