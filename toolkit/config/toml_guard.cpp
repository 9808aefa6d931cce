#include "toolkit/config/toml_guard.h"

#include <algorithm>

#include "toolkit/config/document.h"
#include "toolkit/core/format.h"

namespace dtk {
namespace {

constexpr int kMaxParts = 16;
constexpr size_t kMaxKeyBytes = 1024;

/// Goes through a document token by token. It knows texts and comments, and what may be a key.
class Guard {
 public:
  explicit Guard(std::string_view text) : text_(text) {
    constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";
    if (text_.starts_with(byte_order_mark)) text_.remove_prefix(byte_order_mark.size());
  }

  void run() {
    while (!text_.empty()) {
      const char c = text_.front();
      if (c == '#') {
        pass_comment();
      } else if (c == '"' || c == '\'') {
        pass_text(c);
      } else {
        pass_other(c);
      }
    }
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const { throw SyntaxError{at_, what}; }

  void advance(size_t bytes) {
    for (const char c : text_.substr(0, bytes)) {
      const bool continues =
          (static_cast<unsigned char>(c) & 0xc0) == 0x80;  // UTF-8: columns are code points
      if (c == '\n') at_ = {at_.line + 1, 1};
      if (c != '\n' && !continues) ++at_.column;
    }
    text_.remove_prefix(bytes);
  }

  void pass_comment() {
    if (in_header_) refuse("a comment within a table's header");
    advance(std::min(text_.find('\n'), text_.size()));
  }

  /// `quote` opens it; three of them a text of several lines.
  void pass_text(char quote) {
    const std::string three(3, quote);
    const bool several_lines = text_.starts_with(three);
    const std::string_view end = several_lines ? three : std::string_view(three).substr(0, 1);
    size_t at = end.size();
    while (at < text_.size() && !text_.substr(at).starts_with(end) && (several_lines || text_[at] != '\n'))
      at += quote == '"' && text_[at] == '\\' ? 2 : 1;
    const size_t bytes = std::min(
        at < text_.size() && text_[at] == '\n' && !several_lines ? at : at + end.size(), text_.size());
    key_bytes_ += bytes;
    is_first_ = false;
    advance(bytes);
    // A text of several lines may itself end in one or two of its quotes.
    for (int i = 0; several_lines && i < 2 && !text_.empty() && text_.front() == quote; ++i) advance(1);
  }

  void pass_other(char c) {
    if (static_cast<unsigned char>(c) >= 0x80)
      refuse("a character beyond ASCII outside of a text; put it in quotes");
    const bool is_blank = c == ' ' || c == '\t' || c == '\r';
    if (c == '[' && is_first_ && depth_ == 0) in_header_ = true;
    if (c == '.' && ++parts_ >= kMaxParts) refuse(fmt::format("a key of more than {} parts", kMaxParts));
    if (c == '=' || c == '.' || (c == ']' && in_header_)) check_key();
    if (!in_header_) depth_ += c == '[' || c == '{' ? 1 : c == ']' || c == '}' ? -1 : 0;
    if (c == ']' && !text_.substr(1).starts_with("]")) in_header_ = false;
    const bool ends_key = c == '=' || c == ',' || c == '[' || c == ']' || c == '{' || c == '}' || c == '\n';
    key_bytes_ = ends_key ? 0 : key_bytes_ + (is_blank ? 0 : 1);
    if (ends_key) parts_ = 0;
    if (key_bytes_ > kMaxKeyBytes && !is_blank) check_key();
    if (c == '\n') in_header_ = false;
    is_first_ = c == '\n' ? depth_ <= 0 : is_first_ && is_blank;
    if (c == '\n' && is_first_) depth_ = 0;
    advance(1);
  }

  void check_key() const {
    if (key_bytes_ > kMaxKeyBytes) refuse(fmt::format("a key of more than {} bytes", kMaxKeyBytes));
  }

  std::string_view text_;
  Position at_{1, 1};
  size_t key_bytes_ = 0;  // of what may be a key
  int parts_ = 0, depth_ = 0;
  bool is_first_ = true;  // nothing but blanks before it in a line that no list goes on in
  bool in_header_ = false;
};

}  // namespace

void guard_toml(std::string_view text) {
  constexpr size_t max_bytes = size_t{1} << 20;
  if (text.size() > max_bytes)
    throw SyntaxError{{1, 1}, fmt::format("a text of more than {} bytes", max_bytes)};
  Guard(text).run();
}

}  // namespace dtk
