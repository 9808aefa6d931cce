// What a computation depends on besides its tensors, taken down so that it can be had again.
#pragma once
#include <ATen/core/MT19937RNGEngine.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <c10/util/SmallVector.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/internal/recomputing.h>
#include <dtk/policies/internal/scoped.h>
#include <dtk/policies/module_path.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dtk::policies {

using Devices = c10::SmallVector<c10::Device, 2>;

/// LibTorch's choice of kernels: of the process, so no other thread may compute while they are changed.
struct KernelFlags {
  bool deterministic, warn_only, fill_uninitialized, cudnn_deterministic, cudnn_benchmark;
  AttentionBackends attention;

  static KernelFlags now();
  void apply() const;
  friend bool operator==(const KernelFlags&, const KernelFlags&) = default;
};

/// Autocast, kernel flags and module path of the calling thread, now.
struct AmbientState {
  explicit AmbientState(const Devices& devices);

  struct Autocast {
    c10::DeviceType device;
    bool enabled;
    at::ScalarType dtype;
  };
  /// Autocast is on, or within one of its scopes off: casts of weights may have been there already.
  bool may_find_casts() const;

  c10::SmallVector<Autocast, 2> autocast;
  bool cache;
  bool within_scope;  // of autocast: scopes within that one free no casts
  KernelFlags flags;
  std::string path;
};

/// Has them again, with grad mode and recomputing(). At the end everything is as before, and autocast's casts
/// of weights since are freed, which would otherwise outlive the next optimizer step and be stale then; also
/// within an autocast scope that lives on.
class AmbientStateGuard : NotCopied {
 public:
  [[nodiscard]] explicit AmbientStateGuard(const AmbientState& state);
  ~AmbientStateGuard();

 private:
  static void set(const c10::SmallVector<AmbientState::Autocast, 2>& autocast);

  const bool cache_;
  const int scopes_, wanted_scopes_;
  const KernelFlags flags_, wanted_;
  c10::SmallVector<AmbientState::Autocast, 2> autocast_;
  const ModulePathScope path_;
  const at::AutoGradMode grad_;
  const RecomputingScope recomputing_;
};

/// The default generators' states, of the CPU and of `devices`.
class RandomStates {
 public:
  explicit RandomStates(const Devices& devices);
  /// Nothing was drawn since.
  bool still_so() const;
  void restore() const;

 private:
  // As the generator holds it: a state as bytes takes microseconds.
  struct Cpu {
    at::mt19937 engine;
    std::optional<float> next_float;
    std::optional<double> next_double;
  };
  static Cpu cpu_now();

  Cpu cpu_;
  std::vector<std::pair<c10::Device, std::string>> others_;
};

/// Lets the generators go on from `states`, and from where they were before at the end.
class RandomStatesScope : NotCopied {
 public:
  [[nodiscard]] RandomStatesScope(const RandomStates& states, const Devices& devices) : before_(devices) {
    states.restore();
  }
  ~RandomStatesScope() { before_.restore(); }

 private:
  const RandomStates before_;
};

}  // namespace dtk::policies
