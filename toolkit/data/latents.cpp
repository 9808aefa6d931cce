#include "toolkit/data/latents.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "toolkit/core/format.h"
#include "toolkit/data/pixel_source.h"
#include "toolkit/io/advice.h"
#include "toolkit/io/dtypes.h"
#include "toolkit/io/file_system.h"
#include "toolkit/io/npy.h"
#include "toolkit/io/safetensors.h"

namespace dtk {
namespace {

namespace fs = std::filesystem;

/// Numbers in a file.
struct Stored {
  c10::ScalarType type;
  std::vector<int64_t> shape;
  uint64_t begin;  // of the first, in the file
};

std::string shape_in_brackets(const std::vector<int64_t>& shape) {
  return "(" + c10::Join(", ", shape) + ")";
}

std::string first_bytes(ReadableFile& file, uint64_t most) {
  std::string bytes(std::min(file.size(), most), '\0');
  file.read_into(0, bytes.data(), bytes.size());
  return bytes;
}

Stored stored_npy(ReadableFile& file, const fs::path& path) {
  const std::string name = path.string();
  const size_t header_bytes = npy_header_bytes(first_bytes(file, npy_first_bytes), name);
  NpyHeader header = parse_npy_header(first_bytes(file, header_bytes), name);
  check_npy_values(header, file.size() - header.bytes, name);
  return {header.type, std::move(header.shape), header.bytes};
}

/// The tensors of a safetensors file.
struct Safetensors {
  SafetensorsHeader header;

  Safetensors(ReadableFile& file, const fs::path& path) try
      : header(read_safetensors_header(
            [&file](uint64_t offset, void* to, size_t bytes) { file.read_into(offset, to, bytes); },
            file.size(), path.string())) {
  } catch (const FileError& error) {
    throw DataError(error.what());  // it starts with the path
  }

  std::optional<Stored> find(const std::string& name) const {
    for (const TensorEntry& entry : header.tensors) {
      if (entry.name == name) return Stored{entry.type, entry.shape, header.data_start + entry.begin};
    }
    return std::nullopt;
  }

  std::string names() const {
    std::vector<std::string> all;
    for (const TensorEntry& entry : header.tensors) all.push_back(entry.name);
    return all.empty() ? "nothing" : c10::Join(", ", all);
  }
};

void check_latents(const Stored& latents, const fs::path& path) {
  const bool known = latents.type == c10::ScalarType::Float || latents.type == c10::ScalarType::Half ||
                     latents.type == c10::ScalarType::BFloat16;
  if (!known) {
    refuse_data(path, "latents are " + dtype_name(latents.type) +
                          "; allowed: float32, float16 or bfloat16; save them as one of these");
  }
  const std::string shape = shape_in_brackets(latents.shape);
  const bool four = latents.shape.size() == 4;
  if (!four || std::count(latents.shape.begin() + 1, latents.shape.end(), 0) > 0) {
    refuse_data(path, "latents have the shape " + shape +
                          "; allowed: (samples, channels, height, width), none of them 0; save them so");
  }
  if (latents.shape[0] == 0) {
    refuse_data(path, "holds no latents: their shape is " + shape +
                          "; allowed: at least one sample; make the file again, or name another");
  }
}

std::vector<int64_t> read_labels(ReadableFile& file, const Stored& stored, int64_t samples,
                                 const fs::path& path) {
  if (stored.type != c10::ScalarType::Long) {
    refuse_data(path, "labels are " + dtype_name(stored.type) + "; allowed: int64; save them as int64");
  }
  if (stored.shape != std::vector<int64_t>{samples}) {
    refuse_data(
        path, fmt::format("labels have the shape {}; allowed: ({}), one for each sample of the latents; give "
                          "the labels of these latents",
                          shape_in_brackets(stored.shape), samples));
  }
  std::vector<int64_t> labels(static_cast<size_t>(samples));
  file.read_into(stored.begin, labels.data(), labels.size() * sizeof(int64_t));
  constexpr int64_t most = 999'999'999;  // as model.classes allows
  const auto wrong =
      std::find_if(labels.begin(), labels.end(), [](int64_t label) { return label < 0 || label > most; });
  if (wrong != labels.end()) {
    refuse_data(path, fmt::format("label {} is {}; allowed: classes from 0 to {}; number the classes from 0",
                                  wrong - labels.begin(), *wrong, most));
  }
  return labels;
}

template <class Number>
void convert(const char* stored, int64_t count, float shift, float scale, float* values) {
  for (int64_t i = 0; i < count; ++i) {
    Number number;
    std::memcpy(&number, stored + static_cast<size_t>(i) * sizeof(Number), sizeof(Number));
    values[i] = (static_cast<float>(number) - shift) * scale;
  }
}

class LatentSource final : public ImageSource {
 public:
  LatentSource(std::unique_ptr<ReadableFile> file, fs::path path, Stored latents, std::vector<int64_t> labels,
               std::vector<DataFile> files, const LatentFiles& given)
      : ImageSource({latents.shape[0], latents.shape[1], latents.shape[2], latents.shape[3],
                     *std::max_element(labels.begin(), labels.end()) + 1}),
        file_(std::move(file)),
        path_(std::move(path)),
        latents_(std::move(latents)),
        labels_(std::move(labels)),
        files_(std::move(files)),
        shift_(static_cast<float>(given.shift)),
        scale_(static_cast<float>(given.scale)),
        sample_values_(channels() * height() * width()) {}

  std::string description() const override {
    return fmt::format("{} latents {}, {} classes ({}, {})", size(),
                       shape_text(channels(), height(), width()), classes(), dtype_name(latents_.type),
                       path_.filename().string());
  }

  DataIdentity identity() const override { return {files_, numbered_classes(labels_)}; }

  int64_t read_image(int64_t index, float* values) const override {
    const int64_t label = labels_.at(static_cast<size_t>(index));
    std::string stored(static_cast<size_t>(sample_values_) * c10::elementSize(latents_.type), '\0');
    file_->read_into(latents_.begin + static_cast<uint64_t>(index) * stored.size(), stored.data(),
                     stored.size());
    if (latents_.type == c10::ScalarType::Float) {
      convert<float>(stored.data(), sample_values_, shift_, scale_, values);
    } else if (latents_.type == c10::ScalarType::Half) {
      convert<c10::Half>(stored.data(), sample_values_, shift_, scale_, values);
    } else {
      convert<c10::BFloat16>(stored.data(), sample_values_, shift_, scale_, values);
    }
    const bool finite =
        std::all_of(values, values + sample_values_, [](float v) { return std::isfinite(v); });
    if (!finite) {
      refuse_data(path_, fmt::format("sample {} holds a value that is not finite (NaN or infinite); make its "
                                     "latents again, or take the sample out",
                                     index));
    }
    return label;
  }

 private:
  const std::unique_ptr<ReadableFile> file_;
  const fs::path path_;
  const Stored latents_;
  const std::vector<int64_t> labels_;
  const std::vector<DataFile> files_;
  const float shift_, scale_;
  const int64_t sample_values_;
};

std::vector<int64_t> labels_of_npy(const fs::path& path, int64_t samples) {
  const std::unique_ptr<ReadableFile> file = open_data(path);
  return read_labels(*file, stored_npy(*file, path), samples, path);
}

}  // namespace

std::unique_ptr<ImageSource> open_latents(const LatentFiles& files) {
  const fs::path& path = files.latents;
  const std::string extension = path.extension().string();
  if (extension != ".npy" && extension != ".safetensors") {
    refuse_data(
        path,
        "unknown kind of file; allowed: a name that ends in .npy or .safetensors; save the latents as one "
        "of these");
  }
  std::unique_ptr<ReadableFile> file = open_data(path);
  std::optional<Stored> latents, labels;
  if (extension == ".npy") {
    latents = stored_npy(*file, path);
    if (files.labels.empty())
      refuse_data(path,
                  "a .npy file holds no labels; give data.labels, a .npy file of int64 (--init takes "
                  "labels.npy beside it)");
  } else {
    const Safetensors content(*file, path);
    latents = content.find("latents");
    labels = content.find("labels");
    if (!latents)
      refuse_data(path, "has no tensor \"latents\"; it holds " + content.names() +
                            "; store the latents under that name");
    if (labels && !files.labels.empty()) {
      refuse_data(path, "holds labels, and data.labels names others; remove one of them");
    }
    if (!labels && files.labels.empty()) {
      refuse_data(path, "has no tensor \"labels\"; add it, or give data.labels, a .npy file of int64");
    }
  }
  check_latents(*latents, path);
  const int64_t samples = latents->shape[0];
  std::vector<int64_t> all = labels ? read_labels(*file, *labels, samples, path)
                                    : read_labels_file([&] { return labels_of_npy(files.labels, samples); });
  std::vector<DataFile> known = {data_file(path)};
  if (!labels) known.push_back(data_file(files.labels));
  return std::make_unique<LatentSource>(std::move(file), path, std::move(*latents), std::move(all),
                                        std::move(known), files);
}

}  // namespace dtk
