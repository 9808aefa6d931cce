#include "toolkit/io/torch_file.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <bit>
#include <map>
#include <set>
#include <stdexcept>
#include <utility>

#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/core/text.h"
#include "toolkit/io/advice.h"
#include "toolkit/io/json.h"
#include "toolkit/io/pickle.h"
#include "toolkit/io/torch_layout.h"
#include "toolkit/io/zip_reader.h"

namespace dtk {

static_assert(std::endian::native == std::endian::little, "storages are read as they lie");

/// What all readers of a file share.
struct TorchArchive {
  TorchArchive(FileSystem& files, const std::filesystem::path& path)
      : zip(files, path), file_bytes(files.size(path)) {}
  std::string storage_entry(const std::string& key) const { return folder + "data/" + key; }

  ZipReader zip;
  const uint64_t file_bytes;
  std::string folder;  // in the archive, with its slash
  Pickle pickle;
  std::set<std::string> verified;  // storages that are read in parts and whose CRC-32 was right
};

namespace {

using Kind = PickleValue::Kind;
using Path = std::filesystem::path;

constexpr char pickle_name[] = "data.pkl";
constexpr uint64_t max_pickle_bytes = uint64_t{64} << 20;

// The pickled number that files began with before PyTorch 1.6, and with _use_new_zipfile_serialization=False.
constexpr std::string_view old_format = "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19.";

[[noreturn]] void fail_in(const Path& path, const std::string& what) {
  throw FileError(path.string() + ": " + what);
}

bool is_old_format(FileSystem& files, const Path& path) {
  std::string begin(old_format.size(), '\0');
  if (files.size(path) < begin.size()) return false;
  files.read_into(path, 0, begin.data(), begin.size());
  return begin == old_format;
}

/// "archive/" of "archive/data.pkl", which must be there once.
std::string folder_in(const ZipReader& zip) {
  std::vector<std::string> found;
  for (const std::string& name : zip.names()) {
    const size_t slash = name.find('/');
    if (slash != name.npos && name.substr(slash + 1) == pickle_name)
      found.push_back(name.substr(0, slash + 1));
  }
  if (found.empty()) {
    fail_in(zip.path(),
            "this zip archive has no data.pkl, so torch.save did not write it; allowed: what "
            "torch.save(model.state_dict(), FILE) writes");
  }
  if (found.size() > 1) {
    fail_in(zip.path(), fmt::format("this zip archive has data.pkl in several folders: {}; allowed: one{}",
                                    listed(found, ", "), write_torch_file_again));
  }
  return found.front();
}

std::string record_text(const ZipReader& zip, const std::string& name) {
  std::string text(zip.find(name)->bytes, '\0');
  zip.read_all(name, text.data());
  return text;
}

void check_byte_order(const TorchArchive& archive) {
  const std::string name = archive.folder + "byteorder";
  const ZipEntry* const entry = archive.zip.find(name);
  if (entry == nullptr) return;
  constexpr size_t longest = 16;
  const std::string order = entry->bytes <= longest ? record_text(archive.zip, name) : "";
  if (order != "little") {
    fail_in(archive.zip.path(), "its byte order is " + in_quotes(order) +
                                    "; read is \"little\"; write it again with torch.save on a little-endian "
                                    "machine");
  }
}

bool is_dict(const Pickle& pickle, const PickleValue& value) {
  if (value.kind == Kind::dict) return true;
  if (value.kind != Kind::call) return false;
  const PickleValue& callee = pickle.at(value.callee);
  const PickleValue& arguments = pickle.at(value.arguments);
  return callee.kind == Kind::global && callee.text == "collections.OrderedDict" &&
         arguments.kind == Kind::tuple && arguments.items.empty();
}

/// Calls visit(key, value) for the items of a dict whose key is a text.
template <class Visit>
void visit_items(const Pickle& pickle, const PickleValue& dict, Visit&& visit) {
  for (size_t i = 0; i + 1 < dict.items.size(); i += 2) {
    const PickleValue& key = pickle.at(dict.items[i]);
    if (key.kind == Kind::text) visit(key.text, dict.items[i + 1]);
  }
}

/// Whether values are dicts with tensors in them. Each dict is looked through once: a file may name one a
/// million times.
class TensorDicts {
 public:
  explicit TensorDicts(const Pickle& pickle) : pickle_(pickle) {}

  bool includes(PickleRef ref) {
    const auto [known, is_new] = known_.emplace(ref, false);
    const PickleValue& value = pickle_.at(ref);
    if (is_new && is_dict(pickle_, value)) {
      bool& found = known->second;
      visit_items(pickle_, value,
                  [&](const std::string&, PickleRef item) { found = found || is_tensor(pickle_, item); });
    }
    return known->second;
  }

 private:
  const Pickle& pickle_;
  std::map<PickleRef, bool> known_;
};

at::Tensor read_tensor(TorchArchive& archive, const TensorLayout& layout, const std::string& where) {
  const auto options = at::TensorOptions().dtype(layout.type);
  if (layout.extent == 0) return at::empty(layout.sizes, options);
  at::Tensor flat = at::empty({layout.extent}, options);
  const std::string entry = archive.storage_entry(layout.storage);
  const uint64_t begin = static_cast<uint64_t>(layout.offset) * c10::elementSize(layout.type);
  if (begin == 0 && flat.nbytes() == archive.zip.find(entry)->bytes) {
    archive.zip.read_all(entry, flat.mutable_data_ptr());
  } else {
    if (archive.verified.count(entry) == 0) archive.zip.verify(entry);
    archive.verified.insert(entry);
    archive.zip.read_packed(*archive.zip.find(entry), begin, flat.mutable_data_ptr(), flat.nbytes());
  }
  const auto* first = static_cast<const unsigned char*>(flat.const_data_ptr());
  if (layout.type == at::kBool &&
      std::any_of(first, first + flat.nbytes(), [](auto byte) { return byte > 1; })) {
    throw FileError(where + " of bool holds a byte other than 0 and 1" + write_torch_file_again);
  }
  return flat.as_strided(layout.sizes, layout.strides).contiguous();
}

}  // namespace

TorchFile::TorchFile(FileSystem& files, const Path& path) {
  if (is_old_format(files, path)) {
    fail_in(path,
            "it is in the format that torch.save wrote before PyTorch 1.6, which is not read; write it "
            "again in Python: torch.save(torch.load(\"" +
                path.string() + "\", map_location=\"cpu\"), \"new.pt\")");
  }
  archive_ = std::make_shared<TorchArchive>(files, path);
  archive_->folder = folder_in(archive_->zip);
  if (archive_->zip.find(archive_->folder + "constants.pkl") != nullptr) {
    fail_in(path,
            "it is a TorchScript archive, which is not read; save the model's state_dict() with torch.save");
  }
  check_byte_order(*archive_);
  const std::string name = archive_->folder + pickle_name;
  if (archive_->zip.find(name)->bytes > max_pickle_bytes) {
    fail_in(path,
            fmt::format("data.pkl takes {} bytes; at most {} are read; save the model's state_dict() alone",
                        archive_->zip.find(name)->bytes, max_pickle_bytes));
  }
  archive_->pickle = read_pickle(record_text(archive_->zip, name), path.string() + ": " + pickle_name);
  const Pickle& pickle = archive_->pickle;
  const PickleValue& root = pickle.at(pickle.root);
  if (!is_dict(pickle, root)) return;
  TensorDicts dicts(pickle);
  std::set<std::string> seen = {""};
  if (dicts.includes(pickle.root)) keys_.push_back("");
  visit_items(pickle, root, [&](const std::string& key, PickleRef item) {
    if (dicts.includes(item) && seen.insert(key).second) keys_.push_back(key);
  });
}

std::vector<StoredTensor> TorchFile::tensors(const std::string& key) const {
  if (std::count(keys_.begin(), keys_.end(), key) == 0)
    throw std::invalid_argument("no tensors under " + key);
  const Pickle& pickle = archive_->pickle;
  PickleRef dict = pickle.root;
  if (!key.empty()) {
    visit_items(pickle, pickle.at(pickle.root), [&](const std::string& name, PickleRef item) {
      if (name == key) dict = item;
    });
  }
  const std::string file = archive_->zip.path().string();
  const StorageLimits limits{[this](const std::string& storage) -> std::optional<uint64_t> {
                               const ZipEntry* entry = archive_->zip.find(archive_->storage_entry(storage));
                               return entry == nullptr ? std::nullopt : std::optional(entry->bytes);
                             },
                             archive_->file_bytes};
  std::vector<StoredTensor> found;
  std::set<std::string> names;
  visit_items(pickle, pickle.at(dict), [&](const std::string& name, PickleRef item) {
    if (!is_tensor(pickle, item)) return;
    const std::string where = file + ": tensor " + in_quotes(name);
    if (!names.insert(name).second) throw FileError(where + " is there twice" + write_torch_file_again);
    const TensorLayout layout = tensor_layout(pickle, item, limits, where);
    found.push_back({name, layout.type, layout.sizes,
                     [archive = archive_, layout, where] { return read_tensor(*archive, layout, where); }});
  });
  strip_wrappers(found);
  return found;
}

std::string TorchFile::content() const {
  const Pickle& pickle = archive_->pickle;
  const PickleValue& root = pickle.at(pickle.root);
  if (is_tensor(pickle, pickle.root)) return "a tensor without a name";
  if (!is_dict(pickle, root)) {
    const bool named = root.kind == Kind::call && pickle.at(root.callee).kind == Kind::global;
    return named ? "an object of " + in_quotes(pickle.at(root.callee).text) : "an object that is no dict";
  }
  constexpr size_t most = 10;
  std::vector<std::string> keys;
  size_t count = 0;
  visit_items(pickle, root, [&](const std::string& key, PickleRef) {
    if (++count <= most) keys.push_back(in_quotes(key));
  });
  if (keys.empty()) return "an empty dict";
  return "a dict of " + listed(keys, count > most ? ", " : " and ") + (count > most ? ", ..." : "");
}

bool is_torch_file(FileSystem& files, const Path& path) {
  return begins_as_zip(files, path) || is_old_format(files, path);
}

}  // namespace dtk
