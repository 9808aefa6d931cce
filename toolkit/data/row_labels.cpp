#include "toolkit/data/row_labels.h"

#include <stb/stb_easy_font.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace dtk {
namespace {

constexpr size_t most = 24;           // characters
constexpr int64_t letter_height = 7;  // pixels, of a capital
constexpr size_t bytes_a_quad = 64;   // four corners of 16 bytes, as stb_easy_font writes them
constexpr size_t max_quads = 20;      // of one character

// A character of UTF-8 that is no ASCII becomes one "?".
std::string in_ascii(const std::string& name) {
  std::string text;
  for (const char c : name) {
    const auto code = static_cast<unsigned char>(c);
    if ((code & 0xc0) != 0x80) text += code >= 0x20 && code < 0x7f ? c : '?';
  }
  if (text.size() > most) text = text.substr(0, most - 3) + "...";
  return text;
}

// Pixels from (x0, y0) to before (x1, y1), at scale 1.
struct Quad {
  float x0, y0, x1, y1;
};

std::vector<Quad> quads_of(std::string text) {
  std::array<char, most * max_quads * bytes_a_quad> corners;
  const int count =
      stb_easy_font_print(0, 0, text.data(), nullptr, corners.data(), static_cast<int>(corners.size()));
  std::vector<Quad> quads;
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    const char* const quad = corners.data() + i * bytes_a_quad;
    Quad one{};
    std::memcpy(&one.x0, quad, 2 * sizeof(float));
    std::memcpy(&one.x1, quad + bytes_a_quad / 2, 2 * sizeof(float));
    quads.push_back(one);
  }
  return quads;
}

}  // namespace

RowLabels::RowLabels(const std::vector<std::string>& names, int64_t scale) : scale_(scale) {
  for (const std::string& name : names) {
    names_.push_back(in_ascii(name));
    std::string text = names_.back();
    width_ = std::max(width_, scale * stb_easy_font_width(text.data()));
  }
}

void RowLabels::paint(Image& image, size_t row, int64_t top, int64_t height, int64_t left) const {
  const int64_t first = top + (height - letter_height * scale_) / 2;
  const auto scaled = [this](float place) { return static_cast<int64_t>(place) * scale_; };
  for (const Quad& quad : quads_of(names_.at(row))) {
    for (int64_t y = std::max<int64_t>(0, first + scaled(quad.y0));
         y < std::min(image.height, first + scaled(quad.y1)); ++y) {
      for (int64_t x = left + scaled(quad.x0); x < std::min(image.width, left + scaled(quad.x1)); ++x) {
        const auto pixel = image.pixels.begin() + (y * image.width + x) * image.channels;
        std::fill(pixel, pixel + image.channels, uint8_t{0});
      }
    }
  }
}

}  // namespace dtk
