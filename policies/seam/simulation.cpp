#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <dtk/policies/simulation.h>

#include <atomic>
#include <cstring>

namespace dtk::policies {
namespace {

std::atomic<Simulation*> current_simulation{nullptr};
thread_local bool host_copies_allowed = false;

std::unique_ptr<LoopFold> fold_of(std::string_view what) {
  Simulation* const simulation = current_simulation;
  return simulation != nullptr ? simulation->fold(what) : nullptr;
}

}  // namespace

SimulationGuard::SimulationGuard(Simulation& simulation) {
  Simulation* none = nullptr;  // another's stays in its place
  TORCH_CHECK(current_simulation.compare_exchange_strong(none, &simulation),
              "a simulation is going on already");
}

SimulationGuard::~SimulationGuard() {
  current_simulation = nullptr;
}

bool simulating() {
  return current_simulation != nullptr;
}

void step_done() {
  if (Simulation* const simulation = current_simulation) simulation->step_done();
}

std::vector<double> values_sync(const at::Tensor& tensor) {
  const HostCopyScope copy;
  const at::Tensor values = tensor.detach().to(at::kCPU).contiguous().to(at::kDouble);
  if (simulating()) return std::vector<double>(static_cast<size_t>(values.numel()), 0.0);
  const double* first = values.const_data_ptr<double>();
  return {first, first + values.numel()};
}

void zero_if_simulating(const at::Tensor& tensor) {
  if (simulating()) std::memset(tensor.mutable_data_ptr(), 0, tensor.nbytes());
}

HostCopyScope::HostCopyScope() : allowed_(host_copies_allowed, true) {}

bool HostCopyScope::active() {
  return host_copies_allowed;
}

FoldableLoop::FoldableLoop(std::string_view what, int64_t count) : count_(count), fold_(fold_of(what)) {}
FoldableLoop::~FoldableLoop() = default;

std::optional<int64_t> FoldableLoop::next() {
  if (fold_ != nullptr && next_ > 0 && next_ < count_) next_ = fold_->after(next_ - 1, count_);
  if (next_ >= count_) return std::nullopt;
  return next_++;
}

}  // namespace dtk::policies
