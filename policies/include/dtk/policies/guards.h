// One guard for each piece of process-wide or thread-wide LibTorch state that training changes. Each puts
// back what it found, also when an exception passes. None may outlive another that was made after it.
//
// The two pieces that need more than a value have guards of their own: CountingAllocatorGuard
// (memory_ledger.h) and SavedTensorEngineGuard (saved_tensors.h).
#pragma once
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <dtk/policies/internal/scoped.h>

#include <string>

namespace dtk::policies {

/// CPU threads of LibTorch's operators (process-wide).
class ThreadCountGuard : NotCopied {
 public:
  [[nodiscard]] explicit ThreadCountGuard(int threads);
  ~ThreadCountGuard();

 private:
  const int previous_;
  const bool sets_;
};

/// Which attention kernels scaled_dot_product_attention may choose (process-wide).
struct AttentionBackends {
  bool flash = true;
  bool memory_efficient = true;
  bool cudnn = true;
  bool math = true;

  static AttentionBackends now();
  void apply() const;
  friend bool operator==(const AttentionBackends&, const AttentionBackends&) = default;
};

class AttentionBackendGuard : NotCopied {
 public:
  [[nodiscard]] explicit AttentionBackendGuard(const AttentionBackends& allowed);
  ~AttentionBackendGuard();

 private:
  AttentionBackends previous_;
};

/// Autocast of one device type on this thread. The cache of cast weights is cleared when the outermost
/// guard ends: in C++ nobody else does, and stale casts would survive the next optimizer step.
class AutocastGuard : NotCopied {
 public:
  [[nodiscard]] AutocastGuard(c10::DeviceType device, bool enabled, c10::ScalarType dtype = c10::kBFloat16);
  ~AutocastGuard();

 private:
  c10::DeviceType device_;
  bool previous_enabled_;
  c10::ScalarType previous_dtype_;
};

/// State of a random generator as bytes, which may be stored and compared.
std::string generator_state(const at::Generator& generator);
void set_generator_state(const at::Generator& generator, const std::string& state);

/// A generator of one's own for `device`, seeded. On CUDA made through LibTorch's device hooks.
at::Generator make_generator(c10::Device device, uint64_t seed);

/// Begins the generator's numbers anew.
void seed_generator(const at::Generator& generator, uint64_t seed);

/// While alive, the device's default generator continues from `state`; at the end `state` holds where it
/// got to, and the generator what it held before. Two users of one default generator stay independent.
/// Without `state` it is its user's to seed.
class DefaultGeneratorScope : NotCopied {
 public:
  [[nodiscard]] DefaultGeneratorScope(c10::Device device, std::string& state);
  [[nodiscard]] explicit DefaultGeneratorScope(c10::Device device);
  ~DefaultGeneratorScope();

  const at::Generator& generator() const { return generator_; }

 private:
  at::Generator generator_;
  std::string* state_ = nullptr;
  std::string previous_;
};

}  // namespace dtk::policies
