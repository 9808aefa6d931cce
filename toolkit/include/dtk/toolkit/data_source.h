// Where training samples come from. The trainer sees this interface only.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace dtk {

/// What a run says of its data besides their description.
struct DataRemarks {
  bool synthetic = false;            // made up by a program: no result of such a run is one of real data
  int64_t skipped = 0;               // files left out because they are corrupt
  std::vector<std::string> reasons;  // of the first few of them, each with its path
};

/// Samples of one shape with a class each. Implementations are immutable after construction; read() may be
/// called from several threads at once.
class DataSource {
 public:
  virtual ~DataSource() = default;

  virtual int64_t size() const = 0;      ///< number of samples
  virtual int64_t channels() const = 0;  ///< C
  virtual int64_t height() const = 0;    ///< H
  virtual int64_t width() const = 0;     ///< W
  virtual int64_t classes() const = 0;   ///< labels are 0 .. classes() - 1
  /// One line for reports that begins with the number of samples, e.g. "60000 images 1x28x28, 10 classes
  /// (IDX, train-images-idx3-ubyte.gz)".
  virtual std::string description() const = 0;
  virtual DataRemarks remarks() const { return {}; }

  /// Writes sample `index` to `values` (C·H·W floats, in [-1, 1] for images) and returns its class.
  virtual int64_t read(int64_t index, float* values) const = 0;
};

}  // namespace dtk
