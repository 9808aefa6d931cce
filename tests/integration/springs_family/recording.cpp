#include "recording.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "toolkit/core/errors.h"
#include "toolkit/io/file_system.h"

namespace springs {
namespace {

using dtk::Batch;

constexpr std::string_view kMagic = "SPRINGS1";
constexpr size_t kHeader = 16;

int64_t values_of_sample(int64_t steps) {
  return 4 + 3 * steps;
}

class Recording final : public dtk::DataSource {
 public:
  Recording(std::string name, std::vector<float> values, int64_t samples, int64_t steps)
      : name_(std::move(name)), values_(std::move(values)), samples_(samples), steps_(steps) {}
  int64_t size() const override { return samples_; }
  std::string description() const override {
    return std::to_string(samples_) + " swings of " + std::to_string(steps_) + " steps (" + name_ + ")";
  }
  Batch allocate(int64_t count, bool pinned) const override {
    return allocate_samples(count, steps_, at::TensorOptions().pinned_memory(pinned));
  }
  void read(int64_t index, uint64_t, const Batch& batch, int64_t row) const override {
    if (index < 0 || index >= samples_ || row < 0 || row >= batch.samples())
      throw std::out_of_range("springs: sample " + std::to_string(index) + " in row " + std::to_string(row));
    const float* from = values_.data() + index * values_of_sample(steps_);
    for (const at::Tensor& tensor : batch.tensors) {
      const int64_t count = tensor.numel() / tensor.size(0);
      std::copy_n(from, count, tensor.mutable_data_ptr<float>() + row * count);
      from += count;
    }
  }

 private:
  const std::string name_;
  const std::vector<float> values_;
  const int64_t samples_, steps_;
};

[[noreturn]] void fail(const std::filesystem::path& file, const std::string& what) {
  throw dtk::DataError(file.string() + ": " + what);
}

uint32_t number_at(std::string_view bytes, size_t offset) {
  uint32_t number = 0;
  std::memcpy(&number, bytes.data() + offset, sizeof number);
  return number;
}

}  // namespace

Batch allocate_samples(int64_t count, int64_t steps, at::TensorOptions options) {
  return {{at::empty({count, 2, 2}, options), at::empty({count, steps}, options),
           at::empty({count, steps, 2}, options)}};
}

std::shared_ptr<const dtk::DataSource> open_recording(const std::filesystem::path& file, int64_t steps) {
  dtk::FileSystem& files = dtk::posix_file_system();
  if (!files.exists(file) || files.is_folder(file)) fail(file, "no such file; name a recording");
  const std::string bytes = files.read(file);
  if (bytes.size() < kHeader || !bytes.starts_with(kMagic))
    fail(file, "no recording of springs, which begins with \"SPRINGS1\" and two numbers");
  const uint64_t samples = number_at(bytes, 8), seen_steps = number_at(bytes, 12);
  if (samples == 0) fail(file, "it holds no samples");
  if (seen_steps != static_cast<uint64_t>(steps)) {
    fail(file, "its samples have " + std::to_string(seen_steps) + " steps, and springs.steps = " +
                   std::to_string(steps) + "; set springs.steps as the recording has them");
  }
  const uint64_t wanted = samples * static_cast<uint64_t>(values_of_sample(steps)) * sizeof(float);
  if (bytes.size() - kHeader != wanted) {
    fail(file, "it says " + std::to_string(samples) + " samples, which are " + std::to_string(wanted) +
                   " bytes, and holds " + std::to_string(bytes.size() - kHeader));
  }
  std::vector<float> values(wanted / sizeof(float));
  std::memcpy(values.data(), bytes.data() + kHeader, wanted);
  const auto odd =
      std::find_if_not(values.begin(), values.end(), [](float value) { return std::isfinite(value); });
  if (odd != values.end()) {
    fail(file, "sample " + std::to_string((odd - values.begin()) / values_of_sample(steps)) +
                   " holds a value that is not finite");
  }
  return std::make_shared<Recording>(file.filename().string(), std::move(values),
                                     static_cast<int64_t>(samples), steps);
}

std::shared_ptr<const dtk::DataSource> planned_recording(int64_t samples, int64_t steps) {
  std::vector<float> zeros(static_cast<size_t>(samples * values_of_sample(steps)));
  return std::make_shared<Recording>("planned", std::move(zeros), samples, steps);
}

}  // namespace springs
