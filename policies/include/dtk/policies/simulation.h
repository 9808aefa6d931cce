// What a job's code does otherwise while it is simulated: run where nothing is computed, so that every
// storage is made and freed as in the job and no value is right (dtk::planner).
//
// Three things only: values that the host reads, loops whose passes are all alike, and what happens beside
// the job in its own time. Outside of a simulation all of this is plain.
#pragma once
#include <ATen/core/Tensor.h>
#include <dtk/policies/internal/scoped.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace dtk::policies {

/// One loop of a simulated job.
class LoopFold {
 public:
  virtual ~LoopFold() = default;
  /// After pass `done` of `count`: the pass to go on with, `done + 1` or a later one.
  virtual int64_t after(int64_t done, int64_t count) = 0;
};

class Simulation {
 public:
  virtual ~Simulation() = default;
  virtual std::unique_ptr<LoopFold> fold(std::string_view what) = 0;
  /// After each optimizer step, on the thread that makes it.
  virtual void step_done() {}
};

/// Makes `simulation` the process's while alive; one at a time, from the thread that runs the job.
class SimulationGuard : NotCopied {
 public:
  [[nodiscard]] explicit SimulationGuard(Simulation& simulation);
  ~SimulationGuard();
};

/// Whether values are not to be trusted and threads beside the job are to be waited for. Any thread.
bool simulating();

/// Tells a simulation that an optimizer step is done. PolicySet::after_step() does.
void step_done();

/// The values of a floating-point tensor, in its order, after waiting for its device: how a job reads what it
/// reports or decides on between steps. In a simulation the copy is made and the values are zeros.
std::vector<double> values_sync(const at::Tensor& tensor);

/// In a simulation fills a dense CPU tensor with zeros, for code that reads its memory; else does nothing.
void zero_if_simulating(const at::Tensor& tensor);

/// While alive, this thread may copy values of a device to the host: to save, show or average them, never to
/// decide on. A simulation refuses every other such copy, as it could not know what would follow.
class HostCopyScope {
 public:
  [[nodiscard]] HostCopyScope();
  static bool active();

 private:
  const ScopedValue<bool> allowed_;
};

/// A loop of `count` passes that take and free the same memory, such as the steps of a sampler:
///   for (FoldableLoop passes("sampler steps", n); const auto pass = passes.next();) ...
/// A simulation leaves out those after two that ended with equal books, but not the last.
class FoldableLoop : NotCopied {
 public:
  FoldableLoop(std::string_view what, int64_t count);
  ~FoldableLoop();
  /// 0, 1, ... count - 1, then nothing.
  std::optional<int64_t> next();

 private:
  const int64_t count_;
  int64_t next_ = 0;
  const std::unique_ptr<LoopFold> fold_;
};

}  // namespace dtk::policies
