// What was recorded of two masses on springs. A file, little-endian: "SPRINGS1", the number N of samples and
// the number T of steps (uint32), then of each sample its start (4 floats: positions, velocities), the forces
// (T floats) and the positions after each step (2·T floats).
#pragma once
#include <filesystem>
#include <memory>
#include <vector>

#include "toolkit/data/data_source.h"

namespace springs {

/// Start (N, 2, 2): positions (m) and velocities (m/s) of both; forces (N, T) in N; positions (N, T, 2).
dtk::Batch allocate_samples(int64_t count, int64_t steps, at::TensorOptions options);

/// Throws DataError for what is no recording of `steps` steps: whatever the file claims is checked first.
std::shared_ptr<const dtk::DataSource> open_recording(const std::filesystem::path& file, int64_t steps);

/// Zeros.
std::shared_ptr<const dtk::DataSource> planned_recording(int64_t samples, int64_t steps);

}  // namespace springs
