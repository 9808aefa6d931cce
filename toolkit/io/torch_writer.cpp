#include <dtk/policies/simulation.h>

#include <set>
#include <stdexcept>

#include "toolkit/core/format.h"
#include "toolkit/io/dtypes.h"
#include "toolkit/io/endian.h"
#include "toolkit/io/json.h"
#include "toolkit/io/torch_file.h"
#include "toolkit/io/zip_writer.h"

namespace dtk {
namespace {

std::string_view storage_class(const NamedTensor& entry) {
  const std::string_view storage = name_among(&FileDtype::storage, entry.tensor.scalar_type());
  if (!storage.empty()) return storage;
  throw std::invalid_argument(fmt::format("tensor {} has dtype {}; written are {}", in_quotes(entry.name),
                                          c10::toString(entry.tensor.scalar_type()),
                                          listed(&FileDtype::torch)));
}

/// A pickle of protocol 2, instruction by instruction.
class PickleText {
 public:
  PickleText() : text_("\x80\x02") {}

  void op(char instruction) { text_ += instruction; }
  void global(std::string_view module, std::string_view name) {
    text_ += fmt::format("c{}\n{}\n", module, name);
  }
  void text(std::string_view value) {
    text_ += 'X';
    append_little_endian(text_, value.size(), 4);
    text_ += value;
  }
  void integer(int64_t value) {
    text_ += "\x8a\x08";  // of eight bytes
    append_little_endian(text_, static_cast<uint64_t>(value), 8);
  }
  void integers(at::IntArrayRef values) {
    op('(');
    for (const int64_t value : values) integer(value);
    op('t');
  }
  void empty_ordered_dict() {
    global("collections", "OrderedDict");
    text_ += ")R";
  }
  const std::string& done() {
    op('.');
    return text_;
  }

 private:
  std::string text_;
};

/// _rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks)
void describe(PickleText& pickle, const NamedTensor& entry, const std::string& storage) {
  const std::string_view type = storage_class(entry);
  const size_t dot = type.find('.');
  std::vector<int64_t> strides(static_cast<size_t>(entry.tensor.dim()), 1);
  for (size_t i = strides.size(); i > 1; --i) {
    strides[i - 2] = strides[i - 1] * std::max<int64_t>(entry.tensor.size(static_cast<int64_t>(i) - 1), 1);
  }
  pickle.text(entry.name);
  pickle.global("torch._utils", "_rebuild_tensor_v2");
  pickle.op('(');
  pickle.op('(');
  pickle.text("storage");
  pickle.global(type.substr(0, dot), type.substr(dot + 1));
  pickle.text(storage);
  pickle.text("cpu");
  pickle.integer(entry.tensor.numel());
  pickle.op('t');
  pickle.op('Q');
  pickle.integer(0);
  pickle.integers(entry.tensor.sizes());
  pickle.integers(strides);
  pickle.op('\x89');  // False
  pickle.empty_ordered_dict();
  pickle.op('t');
  pickle.op('R');
}

void check_names(const std::vector<NamedTensor>& tensors) {
  std::set<std::string> names;
  for (const NamedTensor& entry : tensors) {
    if (!names.insert(entry.name).second) {
      throw std::invalid_argument("two tensors have the name " + in_quotes(entry.name));
    }
  }
}

}  // namespace

void write_torch_file(WritableFile& out, const std::vector<NamedTensor>& tensors) {
  check_names(tensors);
  PickleText pickle;
  pickle.empty_ordered_dict();
  pickle.op('(');
  for (size_t i = 0; i < tensors.size(); ++i) describe(pickle, tensors[i], std::to_string(i));
  pickle.op('u');

  ZipWriter zip(out);
  const auto add = [&](const std::string& name, std::string_view text) {
    zip.add("archive/" + name, text.data(), text.size());
  };
  add("data.pkl", pickle.done());
  add("byteorder", "little");
  for (size_t i = 0; i < tensors.size(); ++i) {
    const policies::HostCopyScope copy;
    const at::Tensor values = tensors[i].tensor.detach().cpu().resolve_neg().contiguous();
    zip.add("archive/data/" + std::to_string(i), values.const_data_ptr(), values.nbytes());
  }
  add("version", "3\n");
  zip.finish();
}

}  // namespace dtk
