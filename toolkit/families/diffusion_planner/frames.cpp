#include "toolkit/families/diffusion_planner/frames.h"

#include <ATen/ops/empty.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string_view>

#include "toolkit/config/toml_text.h"
#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/core/thread_team.h"
#include "toolkit/data/image_folder.h"

namespace dtk::diffusion_planner {
namespace {

namespace fs = std::filesystem;

constexpr const char* make_again = "; make the frame again, or take it out of the list";

uint64_t count_of(const NpzArray& array) {
  return static_cast<uint64_t>(c10::multiply_integers(array.shape));
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
  throw DataError(fmt::format("{}: array \"{}\" {}{}", path, array.key, what, make_again));
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
    fail(path, array, fmt::format("holds {} at {}; allowed: finite numbers", seen, index_text(array, *bad)));
  } else if (array.type == c10::ScalarType::Bool) {
    const auto* const values = static_cast<const unsigned char*>(data);
    const auto* const bad =
        std::find_if(values, values + count, [](unsigned char value) { return value > 1; });
    if (bad == values + count) return;
    fail(path, array,
         fmt::format("holds the byte {} at {}; allowed for a bool: 0 and 1", *bad,
                     index_text(array, static_cast<uint64_t>(bad - values))));
  } else if (array.key == "turn_indicators") {
    constexpr int32_t most = 4;
    const int32_t label = static_cast<const int32_t*>(data)[count - 1];
    if (label >= 0 && label <= most) return;
    fail(path, array,
         fmt::format("holds {} at {}; allowed: 0 to 4 (none, disable, left, right, keep)", label,
                     index_text(array, count - 1)));
  }
}

void check_version(const NpzReader& file, const std::string& path) {
  const NpzArray version = {.key = "version", .type = c10::ScalarType::UInt32, .shape = {1}};
  if (!file.has(version.key)) {
    fail(path, version,
         fmt::format("is missing; allowed: {} (frames of upstream's layout have none: choose the preset {})",
                     kFrameVersion, toml_text(models::DiffusionPlannerPreset::up)));
  }
  uint32_t seen = 0;
  file.read(version, &seen);
  if (seen == kFrameVersion) return;
  fail(path, version, fmt::format("is {}; allowed: {}", seen, kFrameVersion));
}

/// Where row `row` of an array's tensor begins.
char* row_of(const NpzArray& array, const at::Tensor& tensor, int64_t row) {
  const bool fits = tensor.defined() && tensor.scalar_type() == array.type && tensor.is_contiguous() &&
                    tensor.device().is_cpu() && tensor.dim() > 0 &&
                    tensor.sizes().slice(1).equals(array.shape);
  if (!fits)
    throw std::invalid_argument("Frames: the batch's " + array.key + " is not as allocate() makes it");
  if (row < 0 || row >= tensor.size(0)) {
    throw std::out_of_range(fmt::format("Frames: row {} of {}", row, tensor.size(0)));
  }
  const uint64_t bytes = count_of(array) * c10::elementSize(array.type);
  return static_cast<char*>(tensor.mutable_data_ptr()) + static_cast<uint64_t>(row) * bytes;
}

std::string file_or_folder_name(const fs::path& path) {
  return path.has_filename() ? path.filename().string() : path.parent_path().filename().string();
}

}  // namespace

Frames::Frames(const fs::path& folder_or_list, FrameOptions options)
    : options_(std::move(options)),
      arrays_(frame_arrays(options_.layout, options_.sizes)),
      list_(read_frame_list(folder_or_list)),
      name_(file_or_folder_name(folder_or_list)),
      folder_(list_.list.empty() ? "" : list_.list.parent_path().string() + "/") {
  remarks_.outside = list_.outside;
  remarks_.first_outside = list_.first_outside;
  std::error_code none;
  remarks_.synthetic = fs::exists(fs::path(list_.frames.front()).parent_path() / synthetic_marker, none);
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
  throw DataError(fmt::format("{}{}{}; take it out of the list, or put the frame there", list_.place(index),
                              list_.frames[index],
                              fs::exists(status) ? ": not a regular file" : ": no such file"));
}

void Frames::check_files() const {
  for (size_t i = 0; i < list_.frames.size(); ++i) check_is_there(i);
  const Batch frame = allocate(1);
  read(0, frame, 0);
}

void Frames::leave_out_corrupt() {
  std::vector<std::string> reasons(list_.frames.size());  // each is written by one thread
  std::atomic<size_t> next = 0;
  const int64_t threads = std::min<int64_t>({options_.threads, std::ssize(reasons), 1024});
  ThreadTeam(threads).run(threads, [&](int64_t) {
    const Batch frame = allocate(1);
    for (size_t i = next++; i < reasons.size(); i = next++) {
      try {
        read_file(i, frame, 0);
      } catch (const DataError& corrupt) {
        reasons[i] = corrupt.what();
      }
    }
  });
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
    throw DataError(fmt::format("none of {} frames can be read; the first: {}", remarks_.skipped,
                                remarks_.reasons.front()));
  }
  list_ = {.frames = std::move(whole), .list = {}};  // the entries' numbers in the list are no longer known
}

std::string_view Frames::name(int64_t index) const {
  const std::string_view whole = path(index);
  if (folder_.empty()) return whole.substr(whole.rfind('/') + 1);
  return whole.starts_with(folder_) ? whole.substr(folder_.size()) : whole;
}

std::string Frames::description() const {
  return fmt::format("{}{} frames, {} neighbours, {} lanes ({})", size(),
                     remarks_.synthetic ? " synthetic" : "", options_.sizes.neighbors, options_.sizes.lanes,
                     name_);
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
  if (index < 0 || index >= size())
    throw std::out_of_range(fmt::format("Frames: frame {} of {}", index, size()));
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
