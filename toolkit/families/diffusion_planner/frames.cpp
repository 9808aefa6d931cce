#include "toolkit/families/diffusion_planner/frames.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <exception>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <thread>

#include "toolkit/core/errors.h"
#include "toolkit/data/image_folder.h"

namespace dtk::diffusion_planner {
namespace {

namespace fs = std::filesystem;

constexpr const char* make_again = "; make the frame again, or take it out of the list";

uint64_t count_of(const NpzArray& array) {
  uint64_t count = 1;
  for (const int64_t size : array.shape) count *= static_cast<uint64_t>(size);
  return count;
}

/// "[3, 0, 7]": the place of value `at` in an array.
std::string index_text(const NpzArray& array, uint64_t at) {
  std::string text;
  for (size_t dimension = array.shape.size(); dimension-- > 0;) {
    const auto size = static_cast<uint64_t>(array.shape[dimension]);
    text = std::to_string(at % size) + (text.empty() ? "" : ", ") + text;
    at /= size;
  }
  return "[" + text + "]";
}

[[noreturn]] void fail(const std::string& path, const NpzArray& array, const std::string& what) {
  throw DataError(path + ": array \"" + array.key + "\" " + what + make_again);
}

/// The first value that is not finite: its exponent is all ones. By bits and in blocks, which compilers
/// vectorize.
std::optional<uint64_t> first_not_finite(const float* values, uint64_t count) {
  constexpr uint32_t exponent = 0x7f800000;
  constexpr uint64_t block = 256;
  const auto is_bad = [](float value) { return (std::bit_cast<uint32_t>(value) & exponent) == exponent; };
  for (uint64_t begin = 0; begin < count; begin += block) {
    const uint64_t end = std::min(begin + block, count);
    uint32_t bad = 0;
    for (uint64_t i = begin; i < end; ++i) bad |= static_cast<uint32_t>(is_bad(values[i]));
    if (bad == 0) continue;
    return static_cast<uint64_t>(std::find_if(values + begin, values + end, is_bad) - values);
  }
  return std::nullopt;
}

void check_values(const std::string& path, const NpzArray& array, const void* data) {
  const uint64_t count = count_of(array);
  if (array.type == c10::ScalarType::Float) {
    const auto* const values = static_cast<const float*>(data);
    const auto bad = first_not_finite(values, count);
    if (!bad) return;
    const std::string seen = std::isnan(values[*bad]) ? "NaN" : values[*bad] > 0 ? "infinity" : "-infinity";
    fail(path, array, "holds " + seen + " at " + index_text(array, *bad) + "; allowed: finite numbers");
  } else if (array.type == c10::ScalarType::Bool) {
    const auto* const values = static_cast<const unsigned char*>(data);
    const auto* const bad =
        std::find_if(values, values + count, [](unsigned char value) { return value > 1; });
    if (bad == values + count) return;
    fail(path, array,
         "holds the byte " + std::to_string(*bad) + " at " +
             index_text(array, static_cast<uint64_t>(bad - values)) + "; allowed for a bool: 0 and 1");
  } else if (array.key == "turn_indicators") {
    constexpr int32_t most = 4;
    const int32_t label = static_cast<const int32_t*>(data)[count - 1];
    if (label >= 0 && label <= most) return;
    fail(path, array,
         "holds " + std::to_string(label) + " at " + index_text(array, count - 1) +
             "; allowed: 0 to 4 (none, disable, left, right, keep)");
  }
}

void check_version(const NpzReader& file, const std::string& path) {
  const NpzArray version = {.key = "version", .type = c10::ScalarType::UInt32, .shape = {1}};
  if (!file.has(version.key)) {
    fail(path, version,
         "is missing; allowed: " + std::to_string(kFrameVersion) +
             " (frames of upstream's layout have none: choose the preset \"UP\")");
  }
  uint32_t seen = 0;
  file.read(version, &seen);
  if (seen == kFrameVersion) return;
  fail(path, version, "is " + std::to_string(seen) + "; allowed: " + std::to_string(kFrameVersion));
}

/// Where row `row` of an array's tensor begins.
char* row_of(const NpzArray& array, const at::Tensor& tensor, int64_t row) {
  const bool fits = tensor.defined() && tensor.scalar_type() == array.type && tensor.is_contiguous() &&
                    tensor.device().is_cpu() && tensor.dim() > 0 &&
                    tensor.sizes().slice(1).equals(array.shape);
  if (!fits)
    throw std::invalid_argument("Frames: the batch's " + array.key + " is not as allocate() makes it");
  if (row < 0 || row >= tensor.size(0)) {
    throw std::out_of_range("Frames: row " + std::to_string(row) + " of " + std::to_string(tensor.size(0)));
  }
  const uint64_t bytes = count_of(array) * c10::elementSize(array.type);
  return static_cast<char*>(tensor.mutable_data_ptr()) + static_cast<uint64_t>(row) * bytes;
}

bool is_marked_synthetic(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / synthetic_marker, error);
}

std::string file_or_folder_name(const fs::path& path) {
  return path.has_filename() ? path.filename().string() : path.parent_path().filename().string();
}

/// Calls work() on `threads` threads, this one among them, and waits for all. work() must not throw.
template <class Work>
void on_threads(int threads, const Work& work) {
  std::vector<std::jthread> others;
  while (static_cast<int>(others.size()) + 1 < threads) others.emplace_back(work);
  work();
}

}  // namespace

Frames::Frames(const fs::path& folder_or_list, FrameOptions options)
    : options_(std::move(options)),
      arrays_(frame_arrays(options_.layout, options_.sizes)),
      list_(read_frame_list(folder_or_list)),
      name_(file_or_folder_name(folder_or_list)) {
  remarks_.synthetic = is_marked_synthetic(fs::path(list_.frames.front()).parent_path());
  if (options_.skip_corrupt) {
    leave_out_corrupt();
  } else {
    check_files();
  }
}

/// Opening a pipe would wait for somebody to write to it.
void Frames::check_is_there(size_t index) const {
  std::error_code error;
  const fs::file_status status = fs::status(list_.frames[index], error);
  if (fs::is_regular_file(status)) return;
  throw DataError(list_.place(index) + list_.frames[index] +
                  (fs::exists(status) ? ": not a regular file" : ": no such file") +
                  "; take it out of the list, or put the frame there");
}

void Frames::check_files() const {
  for (size_t i = 0; i < list_.frames.size(); ++i) check_is_there(i);
  const Batch frame = allocate(1);
  read(0, frame, 0);
}

void Frames::leave_out_corrupt() {
  std::vector<std::string> reasons(list_.frames.size());  // each is written by one thread
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr error;  // protected by mutex; of no frame's file, such as no memory
  on_threads(std::min(options_.threads, static_cast<int>(std::min<size_t>(reasons.size(), 1024))), [&] {
    try {
      const Batch frame = allocate(1);
      for (size_t i = next++; i < reasons.size(); i = next++) {
        try {
          read_file(i, frame, 0);
        } catch (const DataError& corrupt) {
          reasons[i] = corrupt.what();
        }
      }
    } catch (...) {
      next = reasons.size();
      const std::lock_guard lock(mutex);
      if (error == nullptr) error = std::current_exception();
    }
  });
  if (error != nullptr) std::rethrow_exception(error);
  std::vector<std::string> whole;
  constexpr size_t most = 3;
  for (size_t i = 0; i < reasons.size(); ++i) {
    if (reasons[i].empty()) {
      whole.push_back(std::move(list_.frames[i]));
      continue;
    }
    ++remarks_.skipped;
    if (remarks_.reasons.size() < most) remarks_.reasons.push_back(std::move(reasons[i]));
  }
  if (whole.empty()) {
    throw DataError("none of " + std::to_string(remarks_.skipped) +
                    " frames can be read; the first: " + remarks_.reasons.front());
  }
  list_ = {std::move(whole), {}};  // the entries' numbers in the list are no longer known
}

std::string Frames::description() const {
  const FrameSizes& sizes = options_.sizes;
  return std::to_string(size()) + (remarks_.synthetic ? " synthetic" : "") + " frames, " +
         std::to_string(sizes.neighbors) + " neighbours, " + std::to_string(sizes.lanes) + " lanes (" +
         name_ + ")";
}

FrameBatch allocate_frames(const std::vector<NpzArray>& arrays, int64_t count, at::TensorOptions where) {
  FrameBatch batch;
  FrameBatch::fields(batch, [&](std::string_view key, at::Tensor& tensor) {
    const auto array =
        std::find_if(arrays.begin(), arrays.end(), [&](const NpzArray& known) { return known.key == key; });
    if (array == arrays.end()) return;
    std::vector<int64_t> shape = {count};
    shape.insert(shape.end(), array->shape.begin(), array->shape.end());
    tensor = at::empty(shape, where.dtype(array->type));
  });
  return batch;
}

FrameBatch Frames::allocate(int64_t count, bool pinned) const {
  return allocate_frames(arrays_, count, at::TensorOptions().pinned_memory(pinned));
}

void Frames::read(int64_t index, const Batch& batch, int64_t row) const {
  if (index < 0 || index >= size()) {
    throw std::out_of_range("Frames: frame " + std::to_string(index) + " of " + std::to_string(size()));
  }
  read_file(static_cast<size_t>(index), batch, row);
}

void Frames::read_file(size_t index, const Batch& batch, int64_t row) const {
  const std::string& path = list_.frames[index];
  check_is_there(index);
  const NpzReader file{fs::path(path)};
  if (options_.layout == FrameLayout::version_2) check_version(file, path);
  auto array = arrays_.begin();
  FrameBatch::fields(batch, [&](std::string_view key, const at::Tensor& tensor) {
    if (array == arrays_.end() || array->key != key) return;
    char* const data = row_of(*array, tensor, row);
    file.read(*array, data);
    check_values(path, *array, data);
    ++array;
  });
}

}  // namespace dtk::diffusion_planner
