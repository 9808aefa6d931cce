#include "toolkit/io/safetensors.h"

#include <ATen/ops/empty.h>
#include <dtk/policies/simulation.h>

#include <algorithm>
#include <bit>
#include <stdexcept>

#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/io/advice.h"
#include "toolkit/io/dtypes.h"
#include "toolkit/io/endian.h"
#include "toolkit/io/json.h"
#include "toolkit/io/safetensors_header.h"

namespace dtk {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors data are little-endian");

using Json = nlohmann::json;

std::string_view written_dtype(const NamedTensor& entry) {
  const std::string_view name = name_among(&FileDtype::safetensors, entry.tensor.scalar_type());
  if (!name.empty()) return name;
  throw std::invalid_argument(fmt::format("tensor {} has dtype {}; safetensors files hold {}",
                                          in_quotes(entry.name), c10::toString(entry.tensor.scalar_type()),
                                          listed(&FileDtype::safetensors)));
}

/// Pointers to the tensors in the order they are written in.
std::vector<const NamedTensor*> file_order(const std::vector<NamedTensor>& tensors) {
  std::vector<const NamedTensor*> order;
  std::map<std::string_view, int> count;
  for (const NamedTensor& entry : tensors) {
    if (entry.name == safetensors_metadata_key) {
      throw std::invalid_argument("the name " + in_quotes(entry.name) + " is reserved in safetensors files");
    }
    if (++count[entry.name] > 1) {
      throw std::invalid_argument("two tensors have the name " + in_quotes(entry.name));
    }
    if (!entry.tensor.defined()) {
      throw std::invalid_argument("tensor " + in_quotes(entry.name) + " is undefined");
    }
    order.push_back(&entry);
  }
  std::sort(order.begin(), order.end(), [](const NamedTensor* a, const NamedTensor* b) {
    const auto a_width = a->tensor.element_size();
    const auto b_width = b->tensor.element_size();
    return a_width != b_width ? a_width > b_width : a->name < b->name;
  });
  return order;
}

/// JSON string literal; a stored name must come back as it was, so nothing is replaced.
std::string literal(const std::string& text) {
  try {
    return Json(text).dump();
  } catch (const Json::type_error&) {
    throw std::invalid_argument(in_quotes(text) + " is not UTF-8, safetensors files hold nothing else");
  }
}

std::string header_of(const std::vector<const NamedTensor*>& order,
                      const std::map<std::string, std::string>& metadata) {
  constexpr size_t alignment = 8;
  std::string header = "{";
  const auto add = [&header](const std::string& key, const std::string& value) {
    if (header.size() > 1) header += ",";
    header += literal(key) + ":" + value;
  };
  if (!metadata.empty()) {
    std::string values;
    for (const auto& [key, value] : metadata) {
      values += (values.empty() ? "" : ",") + literal(key) + ":" + literal(value);
    }
    add(std::string(safetensors_metadata_key), "{" + values + "}");
  }
  uint64_t begin = 0;
  for (const NamedTensor* entry : order) {
    const uint64_t end = begin + entry->tensor.nbytes();
    const Json shape = entry->tensor.sizes().vec();
    add(entry->name, fmt::format(R"({{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})",
                                 written_dtype(*entry), shape.dump(), begin, end));
    begin = end;
  }
  header += "}";
  header.resize((header.size() + alignment - 1) / alignment * alignment, ' ');
  return header;
}

void check_bools(const at::Tensor& tensor, const std::string& name, const std::string& file) {
  const auto* first = static_cast<const unsigned char*>(tensor.const_data_ptr());
  if (std::all_of(first, first + tensor.nbytes(), [](unsigned char value) { return value <= 1; })) return;
  throw FileError(file + ": tensor " + in_quotes(name) + " of BOOL holds a byte other than 0 and 1" +
                  write_safetensors_again);
}

void read_into(const at::Tensor& tensor, const ReadRange& read, uint64_t data_start, const TensorEntry& entry,
               const std::string& file) {
  if (tensor.nbytes() > 0) read(data_start + entry.begin, tensor.mutable_data_ptr(), tensor.nbytes());
  if (entry.type == at::kBool) check_bools(tensor, entry.name, file);
}

at::Tensor read_tensor(const ReadRange& read, uint64_t data_start, const TensorEntry& entry,
                       const std::string& file) {
  at::Tensor tensor = at::empty(entry.shape, at::TensorOptions().dtype(entry.type));
  read_into(tensor, read, data_start, entry, file);
  return tensor;
}

ReadRange reader_of(FileSystem& files, const std::filesystem::path& path) {
  return [&files, path](uint64_t offset, void* data, size_t bytes) {
    files.read_into(path, offset, data, bytes);
  };
}

}  // namespace

void write_safetensors(WritableFile& out, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  const std::vector<const NamedTensor*> order = file_order(tensors);
  const std::string header = header_of(order, metadata);
  std::string length;
  append_little_endian(length, header.size(), safetensors_length_bytes);
  out.write(length.data(), length.size());
  out.write(header.data(), header.size());
  for (const NamedTensor* entry : order) {
    const policies::HostCopyScope copy;
    const at::Tensor values = entry->tensor.detach().cpu().resolve_neg().contiguous();
    if (values.nbytes() > 0) out.write(values.const_data_ptr(), values.nbytes());
  }
}

SafetensorsFile read_safetensors(FileSystem& files, const std::filesystem::path& path) {
  const ReadRange read = reader_of(files, path);
  SafetensorsHeader header = read_safetensors_header(read, files.size(path), path.string());
  SafetensorsFile file{{}, std::move(header.metadata)};
  for (TensorEntry& entry : header.tensors) {
    at::Tensor tensor = read_tensor(read, header.data_start, entry, path.string());
    file.tensors.push_back({std::move(entry.name), std::move(tensor)});
  }
  return file;
}

std::vector<StoredTensor> open_safetensors(FileSystem& files, const std::filesystem::path& path) {
  const ReadRange read = reader_of(files, path);
  const SafetensorsHeader header = read_safetensors_header(read, files.size(path), path.string());
  std::vector<StoredTensor> tensors;
  const uint64_t start = header.data_start;
  for (const TensorEntry& entry : header.tensors) {
    tensors.push_back({entry.name, entry.type, entry.shape,
                       [read, start, entry, path] { return read_tensor(read, start, entry, path.string()); },
                       [read, start, entry, path](const at::Tensor& into) {
                         read_into(into, read, start, entry, path.string());
                       }});
  }
  return tensors;
}

}  // namespace dtk
