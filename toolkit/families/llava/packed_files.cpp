#include "toolkit/families/llava/packed_files.h"

#include <ATen/Functions.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/io/json.h"

namespace dtk::llava {
namespace {

using models::PackedWeight;
using models::Packing;
using Parts = std::map<std::string, StoredTensor>;  // by the end of the name

constexpr std::string_view kWeight = ".weight", kState = ".quant_state.bitsandbytes__", kScales = ".SCB",
                           kFormat = ".weight_format";
constexpr const char* kOffset = ".nested_offset";                // in the JSON of a file
constexpr int64_t kBlockOfCodes = 64, kBlockOfMagnitudes = 256;  // that a file has to name

at::Tensor read_as(const StoredTensor& tensor, at::ScalarType type) {
  return tensor.read().to(type).reshape({-1});
}

PackedWeight read_parts(const Parts& parts, int64_t out, int64_t in) {
  const auto from = [&](const char* name) { return parts.at(name).read(); };
  if (parts.count(".SCB") > 0) {
    return {Packing::int8, out, in, from(""), read_as(parts.at(".SCB"), at::kFloat), {}, {}};
  }
  PackedWeight weight{Packing::nf4, out, in, from("").reshape({-1, 1}), from(".absmax"), {}, {}};
  if (parts.count(".nested_absmax") == 0) return weight;
  weight.nested_absmax = from(".nested_absmax");
  weight.nested_offset = from(kOffset);
  return weight;
}

/// One weight and the tensors beside it.
class Group {
 public:
  Group(const std::string& begin, const StoredTensor& codes) : begin_(begin), codes_(codes) {}

  StoredTensor nf4(const Parts& beside) const {
    const StoredTensor* state = nullptr;
    for (const auto& [end, tensor] : beside) {
      if (!end.starts_with(kState)) continue;
      if (end != std::string(kState) + "nf4") fail("is packed as " + in_quotes(end.substr(kState.size())));
      state = &tensor;
    }
    if (state == nullptr) fail("has \".absmax\" beside it and no state of nf4");
    const nlohmann::json json = state_in(*state);
    const auto [out, in] = shape_in(json);
    const bool nested = json.contains("nested_offset");
    const PackedWeight like = models::empty_packed(Packing::nf4, out, in, nested, at::kMeta);
    check_sizes("codes", codes_, at::kByte, like.codes.numel());
    check_values(beside, ".quant_map", models::nf4_values());
    Parts parts{{"", codes_}};
    check_sizes(".absmax", at_end(beside, ".absmax"), like.absmax.scalar_type(), like.absmax.numel());
    parts.emplace(".absmax", at_end(beside, ".absmax"));
    if (nested) {
      if (!json.at("nested_offset").is_number()) fail("has an offset that is no number");
      expect(json, "nested_blocksize", kBlockOfMagnitudes);
      check_values(beside, ".nested_quant_map", models::nested_values());
      check_sizes(".nested_absmax", at_end(beside, ".nested_absmax"), at::kFloat, like.nested_absmax.numel());
      parts.emplace(".nested_absmax", at_end(beside, ".nested_absmax"));
      const auto offset = static_cast<float>(json.at("nested_offset").get<double>());
      parts.emplace(kOffset,
                    StoredTensor{kOffset, at::kFloat, {}, [offset] { return at::scalar_tensor(offset); }});
    }
    return joined(std::move(parts), out, in);
  }

  StoredTensor int8(const StoredTensor& scales, const StoredTensor* format) const {
    if (codes_.shape.size() != 2) fail("is no matrix");
    check_sizes("SCB", scales, std::nullopt, codes_.shape[0]);
    if (format != nullptr && read_as(*format, at::kLong).sum().item<int64_t>() != 0)
      fail("has its rows in another order (weight_format)");
    return joined({{"", codes_}, {".SCB", scales}}, codes_.shape[0], codes_.shape[1]);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw DataError(
        fmt::format("{}: tensor {} {}; allowed: nf4 in blocks of 64 and int8, as bitsandbytes packs them; "
                    "get the file again, or name weights that are not packed",
                    begin_, in_quotes(codes_.name), what));
  }

  const StoredTensor& at_end(const Parts& beside, const char* end) const {
    const auto found = beside.find(end);
    if (found == beside.end()) fail("has no " + in_quotes(end) + " beside it");
    return found->second;
  }

  nlohmann::json state_in(const StoredTensor& state) const {
    constexpr int64_t max_bytes = 4096;
    constexpr int max_depth = 3;
    if (state.type != at::kByte || c10::multiply_integers(state.shape) > max_bytes)
      fail("has a state that is no text");
    const at::Tensor bytes = state.read().contiguous();
    const std::string text(reinterpret_cast<const char*>(bytes.const_data_ptr<uint8_t>()), bytes.nbytes());
    nlohmann::json json;
    try {
      json = parse_strict_json(text, "its state", max_depth);
    } catch (const FileError& error) {
      fail(std::string("has a state that cannot be read: ") + error.what());
    }
    if (!json.is_object()) fail("has a state that is no object");
    expect(json, "blocksize", kBlockOfCodes);
    return json;
  }

  void expect(const nlohmann::json& json, const char* key, int64_t wanted) const {
    const auto number = json.contains(key) ? whole_number(json.at(key)) : std::nullopt;
    if (number != wanted) fail(fmt::format("has another {} than {}", key, wanted));
  }

  std::pair<int64_t, int64_t> shape_in(const nlohmann::json& json) const {
    constexpr int64_t max_side = 1 << 24;
    std::vector<int64_t> shape;
    if (json.contains("shape") && json.at("shape").is_array()) {
      for (const nlohmann::json& one : json.at("shape")) shape.push_back(whole_number(one).value_or(-1));
    }
    const bool is_matrix =
        shape.size() == 2 && shape[0] > 0 && shape[1] > 0 && shape[0] <= max_side && shape[1] <= max_side;
    if (!is_matrix) fail("has a state without the shape of a matrix");
    return {shape[0], shape[1]};
  }

  void check_sizes(const char* what, const StoredTensor& tensor, std::optional<at::ScalarType> type,
                   int64_t count) const {
    const bool fits = c10::multiply_integers(tensor.shape) == count &&
                      (type ? tensor.type == *type : at::isFloatingType(tensor.type));
    if (!fits) fail(fmt::format("has {} of another type, or not {} of them", what, count));
  }

  void check_values(const Parts& beside, const char* end, const std::vector<float>& values) const {
    const StoredTensor& tensor = at_end(beside, end);
    check_sizes(end, tensor, at::kFloat, std::ssize(values));
    const at::Tensor there = tensor.read().contiguous();
    if (!std::equal(values.begin(), values.end(), there.const_data_ptr<float>()))
      fail("has other values in " + in_quotes(end) + " than those of nf4");
  }

  StoredTensor joined(Parts parts, int64_t out, int64_t in) const {
    StoredTensor whole{codes_.name, at::kFloat, {out, in}, nullptr};
    whole.parts = std::make_shared<const Parts>(std::move(parts));
    whole.read = [parts = whole.parts, out, in] {
      return models::unpacked(read_parts(*parts, out, in), at::kFloat);
    };
    return whole;
  }

  const std::string& begin_;
  const StoredTensor& codes_;
};

// What bitsandbytes puts behind the name of a weight.
bool is_beside(std::string_view end) {
  for (const std::string_view one : {".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map"}) {
    if (end == one) return true;
  }
  return end.starts_with(kState);
}

}  // namespace

Weights with_packed_joined(Weights weights) {
  std::map<std::string, const StoredTensor*> by_name;
  for (const StoredTensor& tensor : weights.tensors) by_name[tensor.name] = &tensor;
  const std::string begin = weights.place.empty() ? weights.name : weights.place;
  std::map<std::string, StoredTensor> whole;
  std::set<std::string> taken;
  std::map<std::string, Parts> beside;  // by the weight's name
  for (const auto& [name, tensor] : by_name) {
    const size_t end = name.rfind(kWeight);
    const std::string codes = name.substr(0, end == name.npos ? 0 : end + kWeight.size());
    if (codes.empty() || codes == name || by_name.count(codes) == 0) continue;
    if (!is_beside(std::string_view(name).substr(codes.size()))) continue;
    beside[codes].emplace(name.substr(codes.size()), *tensor);
    taken.insert(name);
  }
  for (const auto& [codes, parts] : beside) whole.emplace(codes, Group(begin, *by_name.at(codes)).nf4(parts));
  for (const auto& [name, tensor] : by_name) {
    if (!name.ends_with(kWeight) || tensor->type != at::kChar) continue;
    const std::string module = name.substr(0, name.size() - kWeight.size());
    const auto scales = by_name.find(module + std::string(kScales)),
               format = by_name.find(module + std::string(kFormat));
    if (scales == by_name.end()) continue;
    taken.insert(scales->first);
    if (format != by_name.end()) taken.insert(format->first);
    whole.emplace(
        name,
        Group(begin, *tensor).int8(*scales->second, format == by_name.end() ? nullptr : format->second));
  }
  if (whole.empty()) return weights;
  std::vector<StoredTensor> joined;
  for (const StoredTensor& tensor : weights.tensors) {
    if (taken.count(tensor.name) > 0) continue;
    const auto found = whole.find(tensor.name);
    joined.push_back(found == whole.end() ? tensor : found->second);
  }
  weights.tensors = std::move(joined);
  return weights;
}

std::optional<models::PackedWeight> packed_in_file(const StoredTensor& stored, models::Packing packing,
                                                   bool double_quant) {
  if (stored.parts == nullptr) return std::nullopt;
  const bool is_int8 = stored.parts->count(".SCB") > 0, nested = stored.parts->count(".nested_absmax") > 0;
  const bool fits = packing == models::Packing::int8 ? is_int8 : !is_int8 && nested == double_quant;
  if (!fits) return std::nullopt;
  return read_parts(*stored.parts, stored.shape[0], stored.shape[1]);
}

std::vector<NamedTensor> as_in_file(const std::string& name, const PackedWeight& weight) {
  const std::string module = name.substr(0, name.size() - kWeight.size());
  if (weight.packing == Packing::int8) {
    return {{name, weight.codes},
            {module + std::string(kScales), weight.absmax},
            {module + std::string(kFormat), at::zeros({}, at::kByte)}};
  }
  const auto values = [](const std::vector<float>& map) { return at::tensor(at::ArrayRef<float>(map)); };
  // As Python's json.dumps() writes it.
  std::string state =
      fmt::format(R"({{"quant_type": "nf4", "blocksize": {}, "dtype": "float32", "shape": [{}, {}])",
                  kBlockOfCodes, weight.out, weight.in);
  std::vector<NamedTensor> tensors{{name, weight.codes},
                                   {name + ".absmax", weight.absmax},
                                   {name + ".quant_map", values(models::nf4_values())}};
  if (weight.nested_absmax.defined()) {
    tensors.push_back({name + ".nested_absmax", weight.nested_absmax});
    tensors.push_back({name + ".nested_quant_map", values(models::nested_values())});
    state += fmt::format(R"(, "nested_blocksize": {}, "nested_dtype": "float32", "nested_offset": {})",
                         kBlockOfMagnitudes, weight.nested_offset.item<double>());
  }
  state += "}";
  const at::Tensor text = at::empty({std::ssize(state)}, at::kByte);
  std::copy(state.begin(), state.end(), text.mutable_data_ptr<uint8_t>());
  tensors.push_back({name + std::string(kState) + "nf4", text});
  return tensors;
}

}  // namespace dtk::llava
