// Event files as TensorBoard reads them: curves and images of a run, appended as they happen.
//
// A file is a sequence of records (TFRecord): length of the data (8 bytes, little-endian), masked CRC-32C of
// those 8 bytes (4 bytes), data, masked CRC-32C of the data (4 bytes). The data is one protobuf message
// tensorflow.Event (tensorflow/core/util/event.proto, framework/summary.proto); of these the few fields that
// scalars and images need are written here. The first record names the version, "brain.Event:2".
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "toolkit/io/file_system.h"

namespace dtk {

/// CRC-32C (Castagnoli) of `bytes`, as RFC 3720 gives it.
uint32_t crc32c(std::string_view bytes);

/// Used by one thread. Throws FileError.
class EventFile {
 public:
  using Scalars = std::vector<std::pair<std::string, double>>;  // tag, value; kept as float32

  /// Starts a new file in `folder`, which is created. TensorBoard reads a folder's files in the order of
  /// their names, which begin with a time in seconds since 1970: that of the new file is after those of all
  /// others there. What these hold of `first_step` and later is dropped by TensorBoard: it is about to happen
  /// again.
  EventFile(FileSystem& files, const std::filesystem::path& folder, double unix_seconds, int64_t first_step);

  void scalars(int64_t step, double unix_seconds, const Scalars& values);
  /// `png`: an encoded image of `channels` channels (1 grey, 3 RGB).
  void image(int64_t step, double unix_seconds, const std::string& tag, int64_t height, int64_t width,
             int64_t channels, std::string_view png);

  const std::filesystem::path& path() const { return path_; }

 private:
  void write(std::string_view event);

  const std::filesystem::path path_;
  std::unique_ptr<WritableFile> file_;
};

}  // namespace dtk
