#include "toolkit/data/latents.h"

#include <c10/util/accumulate.h>

#include <vector>

#include "fuzz/input_files.h"
#include "fuzz/target.h"
#include "support/files/npz_bytes.h"

namespace dtk::fuzz {
namespace {

/// The first byte chooses the kind of the file that follows it. Beside a .npy file lie labels of two samples.
void read_latents(std::string_view input) {
  if (input.empty()) return;
  const bool is_npy = (input[0] & 1) == 0;
  static const std::string two_labels =
      std::string("\x93NUMPY\1\0\x46\0", 10) +
      "{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }            \n" + std::string(16, '\0');
  LatentFiles files;
  files.latents = input_folder().write(is_npy ? "latents.npy" : "latents.safetensors", input.substr(1));
  if (is_npy) files.labels = input_folder().write("labels.npy", two_labels);
  const auto source = open_latents(files);
  constexpr int64_t most = 1 << 20;
  const int64_t values = source->channels() * source->height() * source->width();
  if (values > most) return;
  std::vector<float> image(static_cast<size_t>(values));
  for (const int64_t index : {int64_t{0}, source->size() - 1}) source->read_image(index, image.data());
}

}  // namespace

const Target latents = {read_latents, linear<128, 256>};

}  // namespace dtk::fuzz
