// What kernels of a real device would need besides the storages they return, noted by the simulated device
// while a job runs on it.
#pragma once
#include <c10/core/Stream.h>
#include <c10/util/ArrayRef.h>
#include <dtk/planner/device_terms.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace dtk::planner {

/// Bytes of cuBLAS's workspace for one thread and stream.
int64_t cublas_workspace(int compute_capability);
/// Likewise of cuBLASLt's.
inline constexpr int64_t kCublasLtWorkspace = 1024 * 1024;
/// Of a process with CUDA 13 and the kernels of LibTorch 2.11 that a training in bf16 loads, on an H200:
/// 877,658,112 measured, 804,257,792 in fp32. Differs by device and driver.
inline constexpr int64_t kEstimatedContext = 880'000'000;

/// Thread-safe.
class KernelNeeds {
 public:
  /// The process's one. Never destroyed.
  static KernelNeeds& instance();

  /// Forgets all calls, and the peaks of SimulatedMemory and PinnedMemory with them.
  void begin(const DeviceTermOptions& options);
  const DeviceTermOptions& options() const { return options_; }

  /// A product of matrices is given to `stream`; `fused`: with a bias, by cuBLASLt.
  void product(c10::StreamId stream, bool fused);
  /// A convolution, forward or backward, of these sizes.
  void convolution(c10::ArrayRef<int64_t> input, c10::ArrayRef<int64_t> weight);
  /// A batch normalisation in training by cuDNN, of this size.
  void batch_norm(c10::ArrayRef<int64_t> input);
  /// One call of attention's backward takes `bytes` for itself and frees them.
  void attention_scratch(int64_t bytes);
  /// Likewise a sum over rows.
  void reduction_scratch(int64_t bytes);

  /// A kernel may take memory for itself and free it, how much nobody here knows.
  void unknown_scratch(const std::string& operation);

  /// Of all calls since begin().
  std::vector<DeviceTerm> terms();

 private:
  DeviceTermOptions options_;                                           // written by begin() alone
  std::mutex mutex_;                                                    // guards everything below
  std::map<std::pair<std::thread::id, c10::StreamId>, bool> products_;  // true: some were fused
  std::set<std::vector<int64_t>> convolutions_;                         // sizes of input and weight
  std::set<std::vector<int64_t>> batch_norms_;                          // sizes of inputs
  int64_t attention_scratch_ = 0;
  int64_t reduction_scratch_ = 0;
  std::set<std::string> unknown_scratch_;  // operators
};

}  // namespace dtk::planner
