#include "toolkit/data/idx.h"

#include <algorithm>
#include <vector>

#include "fuzz/input_files.h"
#include "fuzz/target.h"

namespace dtk::fuzz {
namespace {

/// The first two bytes say how long the file of labels is that the input ends with.
void read_idx(std::string_view input) {
  if (input.size() < 2) return;
  const size_t wanted =
      static_cast<unsigned char>(input[0]) * size_t{256} + static_cast<unsigned char>(input[1]);
  const size_t labels = std::min(wanted, input.size() - 2);
  const auto source = open_idx(input_folder().write("images", input.substr(2, input.size() - 2 - labels)),
                               input_folder().write("labels", input.substr(input.size() - labels)));
  std::vector<float> image(static_cast<size_t>(source->height() * source->width()));
  for (const int64_t index : {int64_t{0}, source->size() - 1}) source->read_image(index, image.data());
}

/// Deflated data may be as much larger.
int64_t max_bytes_of_idx(std::string_view input) {
  return linear<4 * 1032, 1024>(input);
}

}  // namespace

const Target idx = {read_idx, max_bytes_of_idx};

}  // namespace dtk::fuzz
