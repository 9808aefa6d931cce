// Tensors and their names: in memory, and in a file without their data.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace dtk {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

/// A tensor on its way to a file.
struct WrittenTensor {
  using Take = std::function<void(const at::Tensor& values)>;
  WrittenTensor(std::string called, const at::Tensor& tensor);
  WrittenTensor(const NamedTensor& one) : WrittenTensor(one.name, one.tensor) {}
  WrittenTensor(std::string called, c10::ScalarType of, std::vector<int64_t> sizes,
                std::function<void(const Take&)> giving, std::function<void(int64_t)> sending)
      : name(std::move(called)),
        type(of),
        shape(std::move(sizes)),
        give(std::move(giving)),
        send(std::move(sending)) {}

  std::string name;
  c10::ScalarType type;  // Undefined: there is none
  std::vector<int64_t> shape;
  /// Calls with all values, some at a time, one after the other.
  std::function<void(const Take&)> give;
  /// Of values that processes have parts of: this one's go to process `to`, which calls give() meanwhile.
  /// Empty: each has all.
  std::function<void(int64_t to)> send = {};
};

/// A tensor in a file: what it is called and how large it is.
struct StoredTensor {
  std::string name;
  c10::ScalarType type;
  std::vector<int64_t> shape;
  /// Reads the data: on the CPU, contiguous, in memory of its own. Throws FileError. Needs the FileSystem
  /// that the file was opened with; not for two threads at once.
  std::function<at::Tensor()> read;
  /// The same into a contiguous CPU tensor of this type and shape, with no memory beside it; empty where the
  /// file holds the values otherwise.
  std::function<void(const at::Tensor&)> read_into = {};
  /// The same for as many elements as the tensor has, from element `first` on; empty likewise.
  std::function<void(int64_t first, const at::Tensor&)> read_range = {};
  /// Of one that its file holds in few bits, which read() unpacks: the tensors there, by what their names
  /// have behind its own.
  std::shared_ptr<const std::map<std::string, StoredTensor>> parts = nullptr;
};

/// Fills `into`, which has the shape, on any device and of any type. Throws as `from.read`.
void copy_stored(const StoredTensor& from, const at::Tensor& into);

/// Whether no value of a contiguous CPU tensor is NaN, infinite or too large for float32; true for other
/// types than floating point ones. Takes no memory.
bool is_finite(const at::Tensor& values);

/// `from`, whose values are looked at when they are read: `refuse` is called where is_finite() is false.
StoredTensor finite_only(StoredTensor from, const std::function<void()>& refuse);

/// Elements [begin, begin + elements) of `from` as it lies, as a tensor of its name with one dimension.
StoredTensor part_of(StoredTensor from, int64_t begin, int64_t elements);

/// Takes off each prefix "module." or "_orig_mod." that all names share: wrappers of models in Python add it,
/// the model itself has not.
void strip_wrappers(std::vector<StoredTensor>& tensors);

/// Reads each tensor of `from` into the tensor of `into` that has its name, across devices, one after the
/// other: beside `into` no more than one is in memory, and none where a file holds what `into` does. Throws
/// FileError that calls the whole `what` and lists all names that are missing, unknown or of another shape or
/// type, before anything is read; and what reading throws.
void copy_by_name(const std::vector<StoredTensor>& from, const std::vector<NamedTensor>& into,
                  const std::string& what);

}  // namespace dtk
