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

/// Bytes of each, 0 where none is taken.
struct Workspaces {
  int64_t cublas = 0;
  int64_t cublas_lt = 0;
};

/// What was noted since KernelNeeds::begin().
struct KernelCalls {
  std::map<std::pair<std::thread::id, c10::StreamId>, bool> products;  // true: some were fused
  std::set<std::vector<int64_t>> convolutions;                         // sizes of input and weight
  std::set<std::vector<int64_t>> batch_norms;                          // sizes of inputs
  int64_t attention_scratch = 0;                                       // bytes, of the largest call
  int64_t reduction_scratch = 0;                                       // likewise
  std::set<std::string> unknown_scratch;                               // operators
};

/// Thread-safe.
class KernelNeeds {
 public:
  /// The process's one. Never destroyed.
  static KernelNeeds& instance();

  /// Forgets all calls.
  void begin(const DeviceTermOptions& options);
  const DeviceTermOptions& options() const { return options_; }

  /// A product of matrices is given to `stream`; `fused`: with a bias, by cuBLASLt. Returns the
  /// workspaces that it is the first of this thread and stream to want; they are never freed.
  Workspaces product(c10::StreamId stream, bool fused);
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

  KernelCalls calls();

 private:
  DeviceTermOptions options_;  // written by begin() alone
  std::mutex mutex_;           // guards the calls
  KernelCalls calls_;
};

}  // namespace dtk::planner
