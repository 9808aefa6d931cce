// Where training samples come from. The loader and the training see this interface only.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "toolkit/core/batch_part.h"
#include "toolkit/data/identity.h"

namespace dtk {

struct Batch;

/// Where samples lie in a batch whose tensors are not all (B, ...): the first is, others have as many rows as
/// what lies in their samples.
class BatchLayout {
 public:
  virtual ~BatchLayout() = default;
  /// The tensors of samples `first` to `first` + `count` - 1, in the same memory but for what counts rows.
  virtual Batch part(const Batch& batch, int64_t first, int64_t count) const = 0;
};

/// What a training step reads at once: B samples, one behind the other in each tensor (B, ...) on the CPU.
/// Which tensors there are, and in which order, is their source's to say; one that its samples have not is
/// undefined.
struct Batch {
  std::vector<at::Tensor> tensors;
  std::optional<BatchPart> part = {};              // nothing: it is whole
  std::vector<int64_t> weights = {};               // of each sample (DataSource::weight()); empty: 1 each
  std::shared_ptr<const BatchLayout> layout = {};  // null: each tensor is (B, ...)

  /// B, by the first tensor that is defined; 0 without one.
  int64_t samples() const {
    for (const at::Tensor& tensor : tensors) {
      if (tensor.defined()) return tensor.size(0);
    }
    return 0;
  }
  /// Of all of them; the loss of the batch is a mean over as many things.
  int64_t weight() const {
    return weights.empty() ? samples() : std::accumulate(weights.begin(), weights.end(), int64_t{0});
  }
};

/// Samples `first` to `first` + `count` - 1 of `batch`, in the same memory.
Batch part_of(const Batch& batch, int64_t first, int64_t count);

/// Told how far the opening of data is: `done` of `all` files were dealt with as `what` says, "decoding".
/// Called on the thread that opens them.
using OpeningProgress = std::function<void(const char* what, int64_t done, int64_t all)>;

/// What a run says of its data besides their description.
struct DataRemarks {
  bool synthetic = false;                 // made up by a program: no result of such a run is one of real data
  int64_t skipped = 0;                    // files left out because they are corrupt
  std::vector<std::string> reasons = {};  // of the first few of them, each with its path
  int64_t passed_over = 0;                // files of a folder that are no samples
  std::string first_passed_over = {};
  int64_t loose = 0;    // pictures that lie in no class folder
  int64_t outside = 0;  // entries of a list of files that lead out of the list's folder
  std::string first_outside = {};
};

/// Samples that are alike in shape and type. Implementations are immutable after construction; read() may be
/// called from several threads at once, for different rows.
class DataSource {
 public:
  virtual ~DataSource() = default;

  virtual int64_t size() const = 0;  ///< number of samples
  /// One line for reports that begins with the number of samples, e.g. "60000 images 1x28x28, 10 classes
  /// (IDX, train-images-idx3-ubyte.gz)".
  virtual std::string description() const = 0;
  virtual DataRemarks remarks() const { return {}; }
  /// What it is known by, without the contents; of a source that nobody will look for again, nothing.
  virtual DataIdentity identity() const { return {}; }
  /// By label, as messages show them; empty where classes are numbers or there are none.
  virtual std::vector<std::string> class_names() const { return {}; }
  /// Of sample `index`, unique, and the same wherever the data are; empty where samples have none.
  virtual std::string sample_name(int64_t /*index*/) const { return ""; }

  /// Its number in the source that it comes from, of a part of one.
  virtual int64_t origin(int64_t index) const { return index; }
  /// Whether samples count differently in the mean of a step's loss, by weight(): what there are several of
  /// in a sample, such as labelled tokens, is known without reading it. From 0 on.
  virtual bool is_weighted() const { return false; }
  virtual int64_t weight(int64_t /*index*/) const { return 1; }
  /// How long a sample is among its like, known without reading it, so that like ones can share a batch; below
  /// 0 for those of another kind. Nothing where all are alike.
  virtual std::optional<int64_t> length(int64_t /*index*/) const { return std::nullopt; }

  /// A batch of `count` samples, not filled; `pinned`: page-locked, which a device copies without stopping
  /// its stream.
  virtual Batch allocate(int64_t count, bool pinned) const = 0;
  /// Likewise for these samples, of a source whose batches are as large as what lies in them.
  virtual Batch allocate_for(const std::vector<int64_t>& samples, bool pinned) const {
    return allocate(static_cast<int64_t>(samples.size()), pinned);
  }
  /// Writes sample `index` to row `row` of `batch`, as allocate() made it. What is changed at random is a
  /// pure function of (seed, epoch, index), so that neither prefetching nor resuming changes it. Throws
  /// std::out_of_range for an index or a row outside, std::invalid_argument for another batch, DataError for
  /// a sample that cannot be read; its row may then hold anything.
  virtual void read(int64_t index, uint64_t epoch, const Batch& batch, int64_t row) const = 0;
};

/// What allocate_for() makes, with the samples' weights.
Batch batch_for(const DataSource& source, const std::vector<int64_t>& samples, bool pinned);

/// Samples `first`, `first` + 1, ... of the first epoch, not pinned, which the ledger counts as data of
/// `owner`. Throws as DataSource::read().
Batch read_batch(const DataSource& source, int64_t first, int64_t count, const char* owner);

}  // namespace dtk
