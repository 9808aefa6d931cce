#include "toolkit/io/safetensors.h"

#include <ATen/ops/empty.h>
#include <dtk/policies/simulation.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <optional>
#include <set>
#include <stdexcept>
#include <tuple>

#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/io/advice.h"
#include "toolkit/io/dtypes.h"
#include "toolkit/io/endian.h"
#include "toolkit/io/json.h"

namespace dtk {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors data are little-endian");

using Json = nlohmann::json;

constexpr uint64_t safetensors_length_bytes = 8;                // the header length before the header
constexpr uint64_t safetensors_max_header_bytes = 100'000'000;  // the format's own limit
constexpr std::string_view safetensors_metadata_key = "__metadata__";

constexpr int header_depth = 3;  // header, tensor, shape

std::string_view written_dtype(const WrittenTensor& entry) {
  const std::string_view name = name_among(&FileDtype::safetensors, entry.type);
  if (!name.empty()) return name;
  throw std::invalid_argument(fmt::format("tensor {} has dtype {}; safetensors files hold {}",
                                          in_quotes(entry.name), c10::toString(entry.type),
                                          listed(&FileDtype::safetensors)));
}

/// Pointers to the tensors in the order they are written in.
std::vector<const WrittenTensor*> file_order(const std::vector<WrittenTensor>& tensors) {
  std::vector<const WrittenTensor*> order;
  std::map<std::string_view, int> count;
  for (const WrittenTensor& entry : tensors) {
    if (entry.name == safetensors_metadata_key) {
      throw std::invalid_argument("the name " + in_quotes(entry.name) + " is reserved in safetensors files");
    }
    if (++count[entry.name] > 1) {
      throw std::invalid_argument("two tensors have the name " + in_quotes(entry.name));
    }
    if (entry.type == c10::ScalarType::Undefined) {
      throw std::invalid_argument("tensor " + in_quotes(entry.name) + " is undefined");
    }
    order.push_back(&entry);
  }
  std::sort(order.begin(), order.end(), [](const WrittenTensor* a, const WrittenTensor* b) {
    const auto a_width = c10::elementSize(a->type);
    const auto b_width = c10::elementSize(b->type);
    return a_width != b_width ? a_width > b_width : a->name < b->name;
  });
  return order;
}

/// JSON string literal; a stored name must come back as it was, so nothing is replaced.
std::string literal(const std::string& text) {
  try {
    return json_line(Json(text), NotUtf8::refused);
  } catch (const Json::type_error&) {
    throw std::invalid_argument(in_quotes(text) + " is not UTF-8, safetensors files hold nothing else");
  }
}

uint64_t bytes_of(const WrittenTensor& entry) {
  return bytes_of_values(entry.type, entry.shape).value();
}

std::string header_of(const std::vector<const WrittenTensor*>& order,
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
      values += fmt::format("{}{}:{}", values.empty() ? "" : ",", literal(key), literal(value));
    }
    add(std::string(safetensors_metadata_key), "{" + values + "}");
  }
  uint64_t begin = 0;
  for (const WrittenTensor* entry : order) {
    const uint64_t end = begin + bytes_of(*entry);
    const Json shape = entry->shape;
    add(entry->name, fmt::format(R"({{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})",
                                 written_dtype(*entry), json_line(shape), begin, end));
    begin = end;
  }
  header += "}";
  header.resize((header.size() + alignment - 1) / alignment * alignment, ' ');
  return header;
}

void check_bools(const at::Tensor& tensor, const std::string& name, const std::string& file) {
  const auto* first = static_cast<const unsigned char*>(tensor.const_data_ptr());
  if (std::all_of(first, first + tensor.nbytes(), [](unsigned char value) { return value <= 1; })) return;
  throw FileError(fmt::format("{}: tensor {} of BOOL holds a byte other than 0 and 1{}", file,
                              in_quotes(name), write_safetensors_again));
}

void read_into(const at::Tensor& tensor, const ReadRange& read, uint64_t data_start, const TensorEntry& entry,
               const std::string& file) {
  if (tensor.nbytes() > 0) read(data_start + entry.begin, tensor.mutable_data_ptr(), tensor.nbytes());
  if (entry.type == at::kBool) check_bools(tensor, entry.name, file);
}

std::string list_text(const Json& values) {
  return json_line(values);
}

std::string range_text(uint64_t begin, uint64_t end) {
  return fmt::format("[{},{}]", begin, end);
}

[[noreturn]] void refuse(const std::string& what) {
  throw FileError(what + write_safetensors_again);
}

/// Checks one tensor of the header on its own; `where` starts every message.
class EntryReader {
 public:
  EntryReader(const std::string& file, const std::string& name, const Json& fields, uint64_t data_bytes)
      : where_(file + ": tensor " + in_quotes(name)), name_(name), fields_(fields), data_bytes_(data_bytes) {}

  TensorEntry read() const {
    check_fields();
    TensorEntry entry{name_, read_type(), read_shape(), 0, 0};
    std::tie(entry.begin, entry.end) = read_offsets();
    check_size(entry);
    return entry;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { refuse(where_ + what); }

  void check_fields() const {
    static const std::set<std::string> known = {"data_offsets", "dtype", "shape"};
    if (!fields_.is_object()) fail(" is not an object with dtype, shape and data_offsets");
    for (const std::string& field : known) {
      if (!fields_.contains(field)) fail(" has no " + field);
    }
    for (const auto& [field, value] : fields_.items()) {
      if (!known.count(field)) {
        fail(" has the unknown field " + in_quotes(field) + "; known are dtype, shape and data_offsets");
      }
    }
  }

  c10::ScalarType read_type() const {
    const Json& dtype = fields_.at("dtype");
    if (!dtype.is_string()) fail(": dtype is not a string");
    const auto& seen = dtype.get_ref<const std::string&>();
    if (const auto type = type_named(seen, &FileDtype::safetensors)) return *type;
    throw FileError(fmt::format("{} has the unknown dtype {}; known are {}; convert it to one of these",
                                where_, in_quotes(seen), listed(&FileDtype::safetensors)));
  }

  std::vector<int64_t> read_shape() const {
    const Json& shape = fields_.at("shape");
    if (!shape.is_array()) fail(": shape is not an array");
    if (shape.size() > max_tensor_dimensions) {
      fail(fmt::format(" has {} dimensions; at most {} are allowed", shape.size(), max_tensor_dimensions));
    }
    for (const Json& size : shape) {
      const bool fits = size.is_number_unsigned() &&
                        size.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
      if (!fits) {
        fail(": shape " + list_text(shape) + " holds something other than a whole number from 0 to 2^63-1");
      }
    }
    return shape.get<std::vector<int64_t>>();
  }

  std::pair<uint64_t, uint64_t> read_offsets() const {
    const Json& offsets = fields_.at("data_offsets");
    const bool is_pair = offsets.is_array() && offsets.size() == 2 && offsets[0].is_number_unsigned() &&
                         offsets[1].is_number_unsigned();
    if (!is_pair) fail(": data_offsets is not a pair of whole numbers from 0");
    const auto begin = offsets[0].get<uint64_t>();
    const auto end = offsets[1].get<uint64_t>();
    if (end < begin) fail(": data_offsets " + range_text(begin, end) + " end before they begin");
    if (end > data_bytes_) {
      fail(fmt::format(
          ": data_offsets {} reach beyond the {} bytes of data in the file, which is truncated or damaged",
          range_text(begin, end), data_bytes_));
    }
    return {begin, end};
  }

  void check_size(const TensorEntry& entry) const {
    const std::string shape = list_text(fields_.at("shape"));
    const std::optional<uint64_t> needed = bytes_of_values(entry.type, entry.shape);
    if (!needed) fail(": shape " + shape + " is too large to address");
    if (*needed == entry.end - entry.begin) return;
    fail(fmt::format(": data_offsets {} hold {} bytes, but shape {} of {} takes {}",
                     range_text(entry.begin, entry.end), entry.end - entry.begin, shape,
                     fields_.at("dtype").get<std::string>(), *needed));
  }

  const std::string where_;
  const std::string& name_;
  const Json& fields_;
  const uint64_t data_bytes_;
};

std::map<std::string, std::string> read_metadata(const Json& metadata, const std::string& file) {
  const std::string where = file + ": " + std::string(safetensors_metadata_key);
  if (!metadata.is_object()) refuse(where + " is not an object");
  std::map<std::string, std::string> values;
  for (const auto& [key, value] : metadata.items()) {
    if (!value.is_string()) refuse(fmt::format("{}: the value of {} is not a string", where, in_quotes(key)));
    values.emplace(key, value.get<std::string>());
  }
  return values;
}

/// `tensors` are sorted by begin. Bytes of no tensor and bytes of two would let a file hide data or alias it.
void check_coverage(const std::vector<TensorEntry>& tensors, uint64_t data_bytes, const std::string& file) {
  uint64_t covered = 0;
  const TensorEntry* previous = nullptr;
  for (const TensorEntry& entry : tensors) {
    if (entry.begin < covered) {
      refuse(fmt::format("{}: tensors {} and {} overlap: data_offsets {} and {}", file,
                         in_quotes(previous->name), in_quotes(entry.name),
                         range_text(previous->begin, previous->end), range_text(entry.begin, entry.end)));
    }
    if (entry.begin > covered) {
      refuse(fmt::format("{}: the data bytes {} before tensor {} belong to no tensor", file,
                         range_text(covered, entry.begin), in_quotes(entry.name)));
    }
    covered = entry.end;
    previous = &entry;
  }
  if (covered == data_bytes) return;
  refuse(
      fmt::format("{}: the last data bytes {} belong to no tensor", file, range_text(covered, data_bytes)));
}

uint64_t header_bytes_of(const char* length, uint64_t file_bytes, const std::string& file) {
  const uint64_t header_bytes = little_endian<safetensors_length_bytes>(length);
  if (header_bytes > safetensors_max_header_bytes) {
    refuse(fmt::format(
        "{}: not a safetensors file, or damaged: its header would be {} bytes long; at most {} are allowed",
        file, header_bytes, safetensors_max_header_bytes));
  }
  const uint64_t available = file_bytes - safetensors_length_bytes;
  if (header_bytes > available) {
    refuse(
        fmt::format("{}: the header length is {} bytes, but only {} follow: the file is truncated or damaged",
                    file, header_bytes, available));
  }
  return header_bytes;
}

Json header_json(std::string_view json, const std::string& subject) try {
  return parse_strict_json(json, subject, header_depth);
} catch (const FileError& error) {
  refuse(error.what());
}

SafetensorsHeader parse_header(std::string_view json, uint64_t data_bytes, const std::string& file) {
  const std::string subject = file + ": the header";
  const Json header = header_json(json, subject);
  if (!header.is_object()) refuse(subject + " is not a JSON object");

  SafetensorsHeader result;
  for (const auto& [name, value] : header.items()) {
    if (name == safetensors_metadata_key) {
      result.metadata = read_metadata(value, file);
    } else {
      result.tensors.push_back(EntryReader(file, name, value, data_bytes).read());
    }
  }
  // An empty tensor lies before the one that begins where it ends.
  std::sort(result.tensors.begin(), result.tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  check_coverage(result.tensors, data_bytes, file);
  return result;
}

}  // namespace

void write_safetensors(WritableFile& out, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  write_given_tensors(out, {tensors.begin(), tensors.end()}, metadata);
}

void write_given_tensors(WritableFile& out, const std::vector<WrittenTensor>& tensors,
                         const std::map<std::string, std::string>& metadata) {
  const std::vector<const WrittenTensor*> order = file_order(tensors);
  const std::string header = header_of(order, metadata);
  std::string length;
  append_little_endian(length, header.size(), safetensors_length_bytes);
  out.write(length.data(), length.size());
  out.write(header.data(), header.size());
  for (const WrittenTensor* entry : order) {
    uint64_t written = 0;
    entry->give([&](const at::Tensor& some) {
      const policies::HostCopyScope copy;
      const at::Tensor values = some.detach().cpu().resolve_neg().contiguous();
      if (values.nbytes() > 0) out.write(values.const_data_ptr(), values.nbytes());
      written += values.nbytes();
    });
    if (written != bytes_of(*entry))
      throw std::logic_error("tensor " + in_quotes(entry->name) + " was not given as a whole");
  }
}

void send_given_tensors(int64_t to, const std::vector<WrittenTensor>& tensors) {
  for (const WrittenTensor* entry : file_order(tensors))
    if (entry->send) entry->send(to);
}

std::vector<std::vector<WrittenTensor>> in_parts(const std::vector<WrittenTensor>& tensors,
                                                 uint64_t max_bytes) {
  std::vector<std::vector<WrittenTensor>> parts(1);
  uint64_t bytes = 0;  // of the last part
  for (const WrittenTensor* entry : file_order(tensors)) {
    const uint64_t more = bytes_of(*entry);
    if (!parts.back().empty() && bytes + more > max_bytes) {
      parts.emplace_back();
      bytes = 0;
    }
    parts.back().push_back(*entry);
    bytes += more;
  }
  return parts;
}

std::vector<StoredTensor> open_safetensors(FileSystem& files, const std::filesystem::path& path) {
  const ReadRange read = [&files, path](uint64_t offset, void* data, size_t bytes) {
    files.read_into(path, offset, data, bytes);
  };
  const SafetensorsHeader header = read_safetensors_header(read, files.size(path), path.string());
  std::vector<StoredTensor> tensors;
  for (const TensorEntry& entry : header.tensors) {
    const auto fill_range = [read, start = header.data_start, entry, path](int64_t first,
                                                                           const at::Tensor& into) {
      TensorEntry range = entry;
      range.begin += static_cast<uint64_t>(first) * into.element_size();
      read_into(into, read, start, range, path.string());
    };
    const auto fill = [fill_range](const at::Tensor& into) { fill_range(0, into); };
    const auto read_anew = [fill, entry] {
      at::Tensor tensor = at::empty(entry.shape, at::TensorOptions().dtype(entry.type));
      fill(tensor);
      return tensor;
    };
    tensors.push_back({entry.name, entry.type, entry.shape, read_anew, fill, fill_range});
  }
  return tensors;
}

SafetensorsHeader read_safetensors_header(const ReadRange& read, uint64_t file_bytes,
                                          const std::string& file) {
  if (file_bytes < safetensors_length_bytes) {
    refuse(fmt::format(
        "{}: {} bytes are too few for a safetensors file, which begins with 8 bytes of header length", file,
        file_bytes));
  }
  char length[safetensors_length_bytes];
  read(0, length, sizeof length);
  std::string json(header_bytes_of(length, file_bytes, file), '\0');
  read(safetensors_length_bytes, json.data(), json.size());
  const uint64_t data_start = safetensors_length_bytes + json.size();
  SafetensorsHeader header = parse_header(json, file_bytes - data_start, file);
  header.data_start = data_start;
  return header;
}

}  // namespace dtk
