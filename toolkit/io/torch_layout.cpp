#include "toolkit/io/torch_layout.h"

#include <algorithm>

#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/io/advice.h"
#include "toolkit/io/dtypes.h"
#include "toolkit/io/json.h"

namespace dtk {
namespace {

using Kind = PickleValue::Kind;

bool is_call_of(const Pickle& pickle, const PickleValue& value, std::string_view function) {
  if (value.kind != Kind::call) return false;
  const PickleValue& callee = pickle.at(value.callee);
  return callee.kind == Kind::global && callee.text == function;
}

// (storage, offset, size, stride, requires_grad, hooks[, metadata])
bool is_rebuilt(const Pickle& pickle, const PickleValue& value) {
  return is_call_of(pickle, value, "torch._utils._rebuild_tensor_v2");
}

// (storage, offset, size, stride, requires_grad, hooks, dtype[, metadata]); the storage is of bytes
bool is_rebuilt_with_dtype(const Pickle& pickle, const PickleValue& value) {
  return is_call_of(pickle, value, "torch._utils._rebuild_tensor_v3");
}

bool is_plain_tensor(const Pickle& pickle, const PickleValue& value) {
  return is_rebuilt(pickle, value) || is_rebuilt_with_dtype(pickle, value);
}

/// The tensor in a parameter, (tensor, requires_grad, hooks[, state]), else the value itself.
const PickleValue& without_parameter(const Pickle& pickle, const PickleValue& value) {
  if (!is_call_of(pickle, value, "torch._utils._rebuild_parameter") &&
      !is_call_of(pickle, value, "torch._utils._rebuild_parameter_with_state")) {
    return value;
  }
  const PickleValue& arguments = pickle.at(value.arguments);
  return arguments.kind == Kind::tuple && !arguments.items.empty() ? pickle.at(arguments.items[0]) : value;
}

class LayoutReader {
 public:
  LayoutReader(const Pickle& pickle, const StorageLimits& limits, const std::string& where)
      : pickle_(pickle), limits_(limits), where_(where) {}

  TensorLayout read(const PickleValue& call) const {
    const bool has_dtype = is_rebuilt_with_dtype(pickle_, call);
    const PickleValue& arguments = pickle_.at(call.arguments);
    const size_t fewest = has_dtype ? 7 : 6;
    if (arguments.kind != Kind::tuple || arguments.items.size() < fewest)
      fail("its description is incomplete");
    TensorLayout layout;
    const PickleValue& storage = storage_of(argument(arguments, 0));
    layout.storage = storage_key(storage);
    layout.type = has_dtype ? dtype_of(argument(arguments, 6)) : storage_type(storage);
    layout.offset = whole_number(argument(arguments, 1), "offset");
    layout.sizes = whole_numbers(argument(arguments, 2), "size");
    layout.strides = whole_numbers(argument(arguments, 3), "stride");
    if (layout.sizes.size() != layout.strides.size()) fail("it has another number of strides than of sizes");
    layout.extent = extent_of(layout);
    check_bounds(layout);
    // Whatever it says, the stride of a single element is never used.
    for (size_t i = 0; i < layout.sizes.size(); ++i) {
      if (layout.sizes[i] <= 1) layout.strides[i] = 1;
    }
    return layout;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw FileError(fmt::format("{}: {}{}", where_, what, write_torch_file_again));
  }
  [[noreturn]] void unknown_type(const std::string& what) const {
    throw FileError(
        fmt::format("{}: {}; read are {}; convert it to one of these and write it again with torch.save",
                    where_, what, listed(&FileDtype::torch)));
  }

  const PickleValue& argument(const PickleValue& tuple, size_t index) const {
    return pickle_.at(tuple.items[index]);
  }

  /// ("storage", class, key, location, elements)
  const PickleValue& storage_of(const PickleValue& value) const {
    if (value.kind == Kind::persistent) {
      const PickleValue& id = argument(value, 0);
      if (id.kind == Kind::tuple && id.items.size() == 5 && argument(id, 0).text == "storage" &&
          argument(id, 2).kind == Kind::text) {
        return id;
      }
    }
    fail("its storage is not described as torch.save does");
  }

  std::string storage_key(const PickleValue& storage) const {
    const std::string& key = argument(storage, 2).text;
    if (!limits_.bytes(key)) fail("its storage " + in_quotes(key) + " is not in the file");
    return key;
  }

  c10::ScalarType storage_type(const PickleValue& storage) const {
    const std::string& seen = argument(storage, 1).text;
    if (const auto type = type_named(seen, &FileDtype::storage)) return *type;
    unknown_type("its storage is a " + in_quotes(seen));
  }

  c10::ScalarType dtype_of(const PickleValue& value) const {
    const auto type = type_named(value.text, &FileDtype::torch);
    if (type && value.kind == Kind::global) return *type;
    unknown_type("its dtype is " + in_quotes(value.text));
  }

  int64_t whole_number(const PickleValue& value, const std::string& what) const {
    if (value.kind == Kind::integer && value.integer >= 0) return value.integer;
    fail("its " + what + " is not a whole number from 0 to 2^63-1");
  }

  std::vector<int64_t> whole_numbers(const PickleValue& value, const std::string& what) const {
    if (value.kind != Kind::tuple) fail("its " + what + " is not a tuple");
    if (value.items.size() > max_tensor_dimensions) {
      fail(fmt::format("it has {} dimensions; at most {} are allowed", value.items.size(),
                       max_tensor_dimensions));
    }
    std::vector<int64_t> numbers;
    for (const PickleRef ref : value.items) numbers.push_back(whole_number(pickle_.at(ref), what));
    return numbers;
  }

  [[noreturn]] void too_large() const { fail("it is too large to address"); }

  int64_t times(int64_t a, int64_t b) const {
    int64_t product = 0;
    if (__builtin_mul_overflow(a, b, &product)) too_large();
    return product;
  }
  int64_t plus(int64_t a, int64_t b) const {
    int64_t sum = 0;
    if (__builtin_add_overflow(a, b, &sum)) too_large();
    return sum;
  }

  int64_t extent_of(const TensorLayout& layout) const {
    if (std::find(layout.sizes.begin(), layout.sizes.end(), 0) != layout.sizes.end()) return 0;
    int64_t extent = 1;
    for (size_t i = 0; i < layout.sizes.size(); ++i) {
      extent = plus(extent, times(layout.sizes[i] - 1, layout.strides[i]));
    }
    return extent;
  }

  void check_bounds(const TensorLayout& layout) const {
    const std::optional<uint64_t> bytes = bytes_of_values(layout.type, layout.sizes);
    if (!bytes) too_large();
    if (layout.extent == 0) return;
    const auto width = static_cast<int64_t>(c10::elementSize(layout.type));
    const int64_t last = times(plus(layout.offset, layout.extent), width);
    const uint64_t storage_bytes = *limits_.bytes(layout.storage);
    if (static_cast<uint64_t>(last) > storage_bytes) {
      fail(fmt::format("it reaches to byte {} of its storage, which has {}", last, storage_bytes));
    }
    if (*bytes > limits_.file_bytes)
      fail(fmt::format("it repeats elements to {} bytes, more than the whole file has", *bytes));
  }

  const Pickle& pickle_;
  const StorageLimits& limits_;
  const std::string& where_;
};

}  // namespace

bool is_tensor(const Pickle& pickle, PickleRef ref) {
  return is_plain_tensor(pickle, without_parameter(pickle, pickle.at(ref)));
}

TensorLayout tensor_layout(const Pickle& pickle, PickleRef ref, const StorageLimits& limits,
                           const std::string& where) {
  return LayoutReader(pickle, limits, where).read(without_parameter(pickle, pickle.at(ref)));
}

}  // namespace dtk
