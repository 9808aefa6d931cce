#include "toolkit/io/npz.h"

#include <c10/core/ScalarType.h>
#include <c10/util/accumulate.h>

#include <string>

#include "fuzz/input_files.h"
#include "fuzz/target.h"
#include "support/files/npz_bytes.h"

namespace dtk::fuzz {
namespace {

constexpr int64_t kMaxValues = 1 << 16;

void read_array(const std::string& bytes) {
  const NpzReader file(std::make_unique<BytesFile>(bytes), "input.npz");
  for (const std::string& key : file.keys()) {
    const std::vector<int64_t> shape = file.shape(key);
    int64_t values = 1;
    for (const int64_t size : shape) values = size > kMaxValues ? kMaxValues + 1 : values * size;
    if (values > kMaxValues || shape.size() > 3) continue;
    std::string data(static_cast<size_t>(values) * sizeof(float), '\0');
    file.read({.key = key, .type = c10::ScalarType::Float, .shape = shape, .or_double = true}, data.data());
  }
}

/// The input is the .npy file of one array, or the whole archive.
void read_npz(std::string_view input) {
  const std::string array(input);
  if (input.starts_with("PK")) return read_array(array);
  read_array(test::zip_bytes({test::stored_array("a", array)}));
  read_array(test::zip_bytes({test::deflated_array("a", array)}));
}

}  // namespace

const Target npz = {read_npz, linear<32, 2048>};

}  // namespace dtk::fuzz
