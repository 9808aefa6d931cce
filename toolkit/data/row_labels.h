// Names beside the rows of a grid of images.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "toolkit/data/image.h"

namespace dtk {

/// Text of one line per row, black, in letters of 7 pixels at scale 1: ASCII, "?" for any other character,
/// and at most 24 characters.
class RowLabels {
 public:
  RowLabels(const std::vector<std::string>& names, int64_t scale);

  int64_t width() const { return width_; }  ///< pixels of the longest
  /// Writes name `row` from `left` on, in the middle of `height` pixels from `top`; what lies beyond the
  /// image is left out.
  void paint(Image& image, size_t row, int64_t top, int64_t height, int64_t left) const;

 private:
  std::vector<std::string> names_;
  int64_t scale_, width_ = 0;
};

}  // namespace dtk
