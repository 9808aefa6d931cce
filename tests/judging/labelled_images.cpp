#include "labelled_images.h"

#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>

#include "judge_net.h"
#include "toolkit/core/errors.h"
#include "toolkit/data/idx.h"
#include "toolkit/io/safetensors.h"

namespace dtk::judging {
namespace {

using Path = std::filesystem::path;

struct SetFiles {
  const char* images;
  const char* labels;
};
constexpr SetFiles training_files = {"train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"};
constexpr SetFiles test_files = {"t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"};

[[noreturn]] void refuse(const Path& path, const std::string& what) {
  throw DataError(path.string() + ": " + what);
}

std::shared_ptr<const ImageSource> open_set(const Path& folder, const SetFiles& names) {
  std::shared_ptr<const ImageSource> source = open_idx(folder / names.images, folder / names.labels);
  if (source->channels() != 1 || source->height() != image_side || source->width() != image_side ||
      source->classes() != class_count) {
    refuse(folder / names.images,
           "not Fashion-MNIST: " + source->description() + "; wanted: images 1x28x28 of 10 classes");
  }
  return source;
}

at::Tensor find(const std::vector<StoredTensor>& tensors, const std::string& name, const Path& path) {
  for (const StoredTensor& entry : tensors) {
    if (entry.name == name) return entry.read();
  }
  refuse(path, "holds no tensor \"" + name + "\"; wanted: \"samples\" (N, 1, 28, 28) and \"labels\" (N)");
}

void check_samples(const at::Tensor& samples, const Path& path) {
  const bool fits = samples.dim() == 4 && samples.size(0) >= 2 && samples.size(1) == 1 &&
                    samples.size(2) == image_side && samples.size(3) == image_side;
  if (!fits || samples.scalar_type() != at::kFloat) {
    refuse(path, c10::str("\"samples\" is ", samples.scalar_type(), " ", samples.sizes(),
                          "; wanted: Float (N, 1, 28, 28), N at least 2"));
  }
  const int64_t bad = samples.isfinite().logical_not().sum().item<int64_t>();
  if (bad > 0) refuse(path, c10::str("\"samples\" holds ", bad, " values that are not finite"));
}

void check_labels(const at::Tensor& labels, int64_t samples, const Path& path) {
  if (labels.dim() != 1 || labels.size(0) != samples || labels.scalar_type() != at::kLong) {
    refuse(path, c10::str("\"labels\" is ", labels.scalar_type(), " ", labels.sizes(), "; wanted: Long [",
                          samples, "], one for each sample"));
  }
  const int64_t lowest = labels.min().item<int64_t>();
  const int64_t highest = labels.max().item<int64_t>();
  if (lowest < 0 || highest >= class_count) {
    refuse(path, c10::str("\"labels\" lie in [", lowest, ", ", highest, "]; allowed: 0 to 9"));
  }
}

}  // namespace

LabelledImages read_all(const ImageSource& source) {
  const int64_t count = source.size();
  const int64_t pixels = source.channels() * source.height() * source.width();
  LabelledImages all;
  all.images = at::empty({count, source.channels(), source.height(), source.width()}, at::kFloat);
  all.labels = at::empty({count}, at::kLong);
  auto* values = all.images.mutable_data_ptr<float>();
  auto* labels = all.labels.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < count; ++i) labels[i] = source.read_image(i, values + i * pixels);
  return all;
}

LabelledImages part(const LabelledImages& all, int64_t first, int64_t count) {
  return {all.images.narrow(0, first, count), all.labels.narrow(0, first, count)};
}

LabelledImages read_samples(FileSystem& files, const Path& path) {
  const std::vector<StoredTensor> tensors = open_safetensors(files, path);
  LabelledImages result{find(tensors, "samples", path), find(tensors, "labels", path)};
  check_samples(result.images, path);
  check_labels(result.labels, result.images.size(0), path);
  return result;
}

double share_out_of_range(const LabelledImages& samples) {
  return samples.images.abs().gt(1).to(at::kDouble).mean().item<double>();
}

std::shared_ptr<const ImageSource> open_training_set(const Path& folder) {
  return open_set(folder, training_files);
}

std::shared_ptr<const ImageSource> open_test_set(const Path& folder) {
  return open_set(folder, test_files);
}

std::string missing_dataset(FileSystem& files, const Path& folder) {
  for (const SetFiles& set : {training_files, test_files}) {
    for (const char* name : {set.images, set.labels}) {
      if (files.exists(folder / name)) continue;
      return "Fashion-MNIST is not on this machine: there is no " + (folder / name).string() +
             "; install the Debian package dataset-fashion-mnist";
    }
  }
  return "";
}

}  // namespace dtk::judging
