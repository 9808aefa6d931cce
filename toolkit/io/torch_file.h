// Files of torch.save, read without Python and without running anything that is in them.
//
// Such a file is a zip archive that holds data.pkl, a pickle that describes tensors, and their storages as
// data/0, data/1, ... Only a few names in the pickle are understood: OrderedDict, the functions that rebuild
// tensors and parameters, and the kinds of storage. Whatever else a file holds, such as the arguments of a
// training script, is left alone. Data are read one tensor at a time.
#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "toolkit/io/file_system.h"
#include "toolkit/io/stored_tensor.h"

namespace dtk {

struct TorchArchive;

class TorchFile {
 public:
  /// Reads the description of the tensors, not their data. `files` must outlive this and the tensors'
  /// readers. Throws FileError for a file that is not one of torch.save, or is damaged.
  TorchFile(FileSystem& files, const std::filesystem::path& path);

  /// The sets of named tensors that the file holds, by the key of the dict in it: {"model", "ema"}. "" stands
  /// for the file itself where it is such a set.
  const std::vector<std::string>& keys() const { return keys_; }

  /// The tensors of one of keys(), in the order of the file. A prefix "module." or "_orig_mod." that all
  /// names share, which wrappers of models add, is taken off. Tensors may have any strides and share
  /// storages; every size is checked before memory is taken for it. Throws FileError for tensors that do not
  /// lie in their storage, are of an unknown dtype or have one name, std::invalid_argument for another key.
  std::vector<StoredTensor> tensors(const std::string& key) const;

  /// What the file holds, for messages: "an object of class __main__.Net", "the keys epoch and loss".
  std::string content() const;

 private:
  std::shared_ptr<TorchArchive> archive_;
  std::vector<std::string> keys_;
};

/// Whether the file begins as those of torch.save do, in today's format or the one before PyTorch 1.6.
bool is_torch_file(FileSystem& files, const std::filesystem::path& path);

/// Writes a state dict that torch.load(weights_only=True) reads: an OrderedDict in the order of `tensors`, on
/// the CPU, contiguous. Tensors of any device and layout; one at a time is held as a copy, and only if it is
/// not contiguous on the CPU. Does not sync or close. Throws std::invalid_argument for a name given twice and
/// for a dtype other than float64 to float16, bfloat16, the signed integers, uint8 and bool; FileError from
/// `out`.
void write_torch_file(WritableFile& out, const std::vector<NamedTensor>& tensors);

}  // namespace dtk
