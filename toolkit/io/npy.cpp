#include "toolkit/io/npy.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <stdexcept>

#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/io/advice.h"
#include "toolkit/io/dtypes.h"
#include "toolkit/io/endian.h"
#include "toolkit/io/json.h"

namespace dtk {
namespace {

static_assert(std::endian::native == std::endian::little, "the values of known dtypes are little-endian");

constexpr std::string_view magic("\x93NUMPY", 6);
constexpr size_t version_1_prefix = 10, version_2_prefix = 12;  // magic, version, header length
constexpr size_t max_header_bytes = 10'000;                     // NumPy's own limit
static_assert(npy_first_bytes == version_2_prefix &&
              npy_longest_header == version_2_prefix + max_header_bytes);
constexpr size_t max_npy_dimensions = 64;  // NumPy's own limit

struct Dictionary {
  std::string descr;
  bool fortran_order = false;
  std::vector<int64_t> shape;
};

/// Reads the one form of dictionary that is a header: three known keys, each once, in any order.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& file) : rest_(text), file_(file) {}

  Dictionary parse() {
    Dictionary header;
    expect('{');
    while (!take('}')) {
      read_entry(header);
      if (take(',')) continue;
      expect('}');
      break;
    }
    skip_space();
    if (!rest_.empty()) fail_at("something follows the dictionary");
    if (seen_.size() < 3) fail_at("it has not all of 'descr', 'fortran_order' and 'shape'");
    return header;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw DataError(file_ + ": " + what); }
  [[noreturn]] void fail_at(const std::string& what) const {
    fail("the .npy header is no description of an array: " + what + save_npy_again);
  }

  void skip_space() {
    const size_t begin = rest_.find_first_not_of(" \t\n");
    rest_.remove_prefix(std::min(begin, rest_.size()));
  }

  bool take(char wanted) {
    skip_space();
    if (rest_.empty() || rest_.front() != wanted) return false;
    rest_.remove_prefix(1);
    return true;
  }

  void expect(char wanted) {
    if (!take(wanted)) fail_at(fmt::format("'{}' is missing before {}", wanted, in_quotes(rest_)));
  }

  std::string read_string() {
    skip_space();
    const char quote = rest_.empty() ? '\0' : rest_.front();
    if (quote != '\'' && quote != '"') fail_at("a text in quotes is missing before " + in_quotes(rest_));
    const size_t end = rest_.find(quote, 1);
    if (end == std::string_view::npos) fail_at("a text has no end: " + in_quotes(rest_));
    std::string text(rest_.substr(1, end - 1));
    rest_.remove_prefix(end + 1);
    return text;
  }

  bool read_bool() {
    skip_space();
    for (const bool value : {false, true}) {
      const std::string_view word = value ? "True" : "False";
      if (!rest_.starts_with(word)) continue;
      rest_.remove_prefix(word.size());
      return value;
    }
    fail_at("'fortran_order' is neither True nor False");
  }

  int64_t read_size() {
    skip_space();
    int64_t size = 0;
    size_t digits = 0;
    for (; digits < rest_.size() && rest_[digits] >= '0' && rest_[digits] <= '9'; ++digits) {
      if (__builtin_mul_overflow(size, 10, &size) || __builtin_add_overflow(size, rest_[digits] - '0', &size))
        fail_at("'shape' holds a number beyond 2^63-1");
    }
    if (digits == 0) fail_at("'shape' holds something other than whole numbers from 0: " + in_quotes(rest_));
    rest_.remove_prefix(digits);
    return size;
  }

  std::vector<int64_t> read_shape() {
    std::vector<int64_t> shape;
    expect('(');
    while (!take(')')) {
      shape.push_back(read_size());
      if (shape.size() > max_npy_dimensions) fail_at("'shape' has more than 64 dimensions");
      if (take(',')) continue;
      expect(')');
      if (shape.size() == 1) fail_at("'shape' is a number in brackets, not a tuple");
      break;
    }
    return shape;
  }

  void read_entry(Dictionary& header) {
    const std::string key = read_string();
    if (std::find(seen_.begin(), seen_.end(), key) != seen_.end())
      fail_at(in_quotes(key) + " is there twice");
    seen_.push_back(key);
    expect(':');
    if (key == "descr") {
      skip_space();
      if (rest_.starts_with('[')) fail("holds records with fields; save one plain array");
      header.descr = read_string();
    } else if (key == "fortran_order") {
      header.fortran_order = read_bool();
    } else if (key == "shape") {
      header.shape = read_shape();
    } else {
      fail_at("the key " + in_quotes(key) + " is not known");
    }
  }

  std::string_view rest_;
  const std::string& file_;
  std::vector<std::string> seen_;
};

c10::ScalarType type_of(const std::string& descr, const std::string& file) {
  if (const auto type = type_named(descr, &FileDtype::npy)) return *type;
  std::string hint = "; known are " + listed(&FileDtype::npy) + "; save it as one of these";
  if (descr.starts_with('>')) hint = ", which is big-endian; save the array with its little-endian dtype";
  if (descr.find('O') != std::string::npos) {
    hint = ": Python objects, which are not read, as reading them could run code; save plain numbers";
  }
  if (descr == "|V2") hint += ". If these are bfloat16, save them as .safetensors";
  throw DataError(fmt::format("{}: has the dtype {}{}", file, in_quotes(descr), hint));
}

DataError too_short(std::string_view bytes, const std::string& file) {
  return DataError(
      fmt::format("{}: ends after {} bytes, inside the .npy header; get the file again", file, bytes.size()));
}

/// Where the dictionary lies: from byte `begin` on.
struct DictionaryPlace {
  size_t begin, bytes;
};

DictionaryPlace dictionary_place(std::string_view bytes, const std::string& file) {
  const auto byte = [&](size_t at) { return static_cast<size_t>(static_cast<unsigned char>(bytes[at])); };
  if (!bytes.starts_with(magic))
    throw DataError(file +
                    ": is not a .npy file, which begins with \\x93NUMPY; save the array with numpy.save");
  if (bytes.size() < version_1_prefix) throw too_short(bytes, file);
  const size_t major = byte(6), minor = byte(7);
  if (major < 1 || major > 3 || minor != 0) {
    throw DataError(fmt::format("{}: is a .npy file of version {}.{}; known are 1.0, 2.0 and 3.0{}", file,
                                major, minor, save_npy_again));
  }
  const size_t prefix = major == 1 ? version_1_prefix : version_2_prefix;
  if (bytes.size() < prefix) throw too_short(bytes, file);
  const char* const at = bytes.data() + 8;
  const size_t length = major == 1 ? little_endian<2>(at) : little_endian<4>(at);
  if (length > max_header_bytes) {
    throw DataError(fmt::format("{}: the .npy header has {} bytes; at most {} are allowed{}", file, length,
                                max_header_bytes, save_npy_again));
  }
  return {prefix, length};
}

std::string_view descr_of(c10::ScalarType type) {
  const std::string_view descr = name_among(&FileDtype::npy, type);
  if (!descr.empty()) return descr;
  throw std::invalid_argument(fmt::format("write_npy: no .npy dtype for {}; known are {}",
                                          c10::toString(type), listed(&FileDtype::npy)));
}

}  // namespace

std::string numpy_shape(const std::vector<int64_t>& shape) {
  return "(" + c10::Join(", ", shape) + (shape.size() == 1 ? ",)" : ")");
}

size_t npy_header_bytes(std::string_view first, const std::string& file) {
  const DictionaryPlace place = dictionary_place(first, file);
  return place.begin + place.bytes;
}

NpyHeader parse_npy_header(std::string_view bytes, const std::string& file) {
  const DictionaryPlace place = dictionary_place(bytes, file);
  if (bytes.size() - place.begin < place.bytes) throw too_short(bytes, file);
  const Dictionary dictionary = HeaderParser(bytes.substr(place.begin, place.bytes), file).parse();
  NpyHeader header;
  header.type = type_of(dictionary.descr, file);
  header.shape = dictionary.shape;
  header.descr = dictionary.descr;
  if (dictionary.fortran_order) {
    throw DataError(file + ": is in Fortran order; save it in C order, with numpy.ascontiguousarray()");
  }
  header.bytes = place.begin + place.bytes;
  const std::optional<uint64_t> value_bytes = bytes_of_values(header.type, header.shape);
  if (!value_bytes) {
    throw DataError(fmt::format("{}: the shape {} is too large to address{}", file, numpy_shape(header.shape),
                                save_npy_again));
  }
  header.value_bytes = *value_bytes;
  return header;
}

void check_npy_values(const NpyHeader& header, uint64_t seen, const std::string& file) {
  if (seen == header.value_bytes) return;
  throw DataError(
      fmt::format("{}: holds {} bytes of values, but shape {} of {} takes {}{}", file, seen,
                  numpy_shape(header.shape), header.descr, header.value_bytes,
                  seen < header.value_bytes ? "; it is truncated, get the file again" : save_npy_again));
}

NpyArray parse_npy(std::string_view bytes, const std::string& file) {
  NpyHeader header = parse_npy_header(bytes, file);
  const std::string_view values = bytes.substr(header.bytes);
  check_npy_values(header, values.size(), file);
  return {header.type, std::move(header.shape), values};
}

void write_npy_header(WritableFile& out, c10::ScalarType type, const std::vector<int64_t>& shape) {
  constexpr size_t alignment = 64;
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}", descr_of(type),
                                   numpy_shape(shape));
  // NumPy leaves room for the first size to grow to 21 digits.
  constexpr size_t digits_to_grow = 21;
  if (!shape.empty()) header.append(digits_to_grow - std::to_string(shape[0]).size(), ' ');
  const size_t used = version_1_prefix + header.size() + 1;
  header.append(alignment - used % alignment, ' ');  // a whole one where nothing is missing, as NumPy does
  header += '\n';
  std::string prefix = std::string(magic) + std::string("\1\0", 2);
  append_little_endian(prefix, header.size(), 2);
  out.write(prefix.data(), prefix.size());
  out.write(header.data(), header.size());
}

void write_npy(WritableFile& out, const at::Tensor& tensor) {
  write_npy_header(out, tensor.scalar_type(), tensor.sizes().vec());
  const at::Tensor values = tensor.detach().cpu().resolve_neg().contiguous();
  if (values.nbytes() > 0) out.write(values.const_data_ptr(), values.nbytes());
}

}  // namespace dtk
