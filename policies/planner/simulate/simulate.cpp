#include <dtk/planner/plan_error.h>
#include <dtk/planner/simulate.h>
#include <dtk/planner/simulated_device.h>
#include <dtk/policies/internal/counted_blocks.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/module_path.h>
#include <dtk/policies/saved_tensors.h>
#include <dtk/policies/simulation.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <stdexcept>
#include <utility>

#include "cost/call_scratch.h"
#include "cost/flop_meter.h"
#include "cost/kernel_needs.h"
#include "device/device_memory.h"
#include "device/term_list.h"

namespace dtk::planner {
namespace {

using policies::MemoryAccounts;
using policies::MemorySums;

bool equal_sums(const MemorySums& a, const MemorySums& b) {
  if (a.bytes != b.bytes) return false;
  const size_t owners = std::max(a.by_owner.size(), b.by_owner.size());
  const auto of = [](const MemorySums& sums, size_t owner) {
    return owner < sums.by_owner.size() ? sums.by_owner[owner] : 0;
  };
  for (size_t owner = 0; owner < owners; ++owner) {
    if (of(a, owner) != of(b, owner)) return false;
  }
  return true;
}

class Folding final : public policies::Simulation {
 public:
  Folding(std::map<std::string, int64_t>& folded, FlopMeter& flops, bool fold)
      : folded_(folded), flops_(flops), fold_(fold) {}

  std::unique_ptr<policies::LoopFold> fold(std::string_view what) override {
    return fold_ ? std::make_unique<Fold>(folded_, flops_, what) : nullptr;
  }
  void step_done() override { flops_.step_done(); }

 private:
  class Fold final : public policies::LoopFold {
   public:
    Fold(std::map<std::string, int64_t>& folded, FlopMeter& flops, std::string_view what)
        : folded_(folded), flops_(flops), what_(what) {}

    int64_t after(int64_t done, int64_t count) override {
      LedgerSnapshot books;
      const bool repeats = before_ && before_->equal(books);
      before_ = std::move(books);
      const CountedFlops counted = std::exchange(counted_, flops_.current());
      const int64_t next = done + 1, last = count - 1;
      if (!repeats || next >= last) return next;
      folded_[what_] += last - next;
      flops_.repeat_since(counted, last - next);
      return last;
    }

   private:
    std::map<std::string, int64_t>& folded_;
    FlopMeter& flops_;
    const std::string what_;
    CountedFlops counted_;                  // at the end of the pass before
    std::optional<LedgerSnapshot> before_;  // likewise
  };

  std::map<std::string, int64_t>& folded_;
  FlopMeter& flops_;
  const bool fold_;
};

}  // namespace

LedgerSnapshot::LedgerSnapshot()
    : device_(policies::device_accounts().live()),
      cpu_(policies::cpu_accounts().live()),
      host_(policies::host_accounts().live()) {}

bool LedgerSnapshot::equal(const LedgerSnapshot& other) const {
  return equal_sums(device_, other.device_) && equal_sums(cpu_, other.cpu_) && equal_sums(host_, other.host_);
}

SimulationResult simulate(c10::Device device, const std::function<void(const EndOfPlan&)>& job,
                          const SimulationOptions& options) {
  if (!device.is_cpu() && device != c10::Device(c10::kCUDA, 0)) {
    throw std::invalid_argument("simulate: device " + device.str() + "; allowed: cpu, cuda:0");
  }
  TORCH_CHECK(!policies::simulating(), "simulate: a simulation is going on already; end it before another");
  register_simulated_devices();
  if (!device.is_cpu()) require_simulated_cuda();
  SimulationResult result;
  const auto begin = std::chrono::steady_clock::now();
  FlopMeter flops;
  Folding folding(result.folded, flops, options.fold);
  const policies::SimulationGuard guard(folding);
  const policies::NodePathsGuard paths;  // for errors
  // For jobs that bring none too: the threads of a device serve the engine that a process uses first only.
  const policies::SavedTensorEngineGuard engine;
  const policies::CountingAllocatorGuard counting;
  const policies::PhaseMeterRegistration device_meter(policies::device_accounts());
  for (MemoryAccounts* accounts :
       {&policies::device_accounts(), &policies::cpu_accounts(), &policies::host_accounts()})
    accounts->reset_phases("build");
  KernelNeeds::instance().begin(options.terms);
  SimulatedMemory::instance().reset_peaks();
  SimulatedMemory::instance().begin_segments();
  PinnedMemory::instance().reset_peaks();
  ScratchBook::instance().begin(options.scratch, options.note_calls);
  bool ended = false;
  const EndOfPlan end = [&] {
    if (ended) return;
    ended = true;
    const bool on_cpu = device.is_cpu();
    result.on_cpu = on_cpu;
    result.device = (on_cpu ? policies::cpu_accounts() : policies::device_accounts()).phases();
    const std::vector<CountedFlops> steps = flops.steps();
    for (const CountedFlops& step : steps) result.steps.push_back(step.flops);
    if (!steps.empty()) result.recomputed = steps.at(result.steady_number()).recomputed;
    result.host = (on_cpu ? policies::host_accounts() : policies::cpu_accounts()).phases();
    result.scratch = ScratchBook::instance().planned();
    result.scratch.source = options.scratch_source;
    if (on_cpu) return;
    result.terms = term_list(options.terms, KernelNeeds::instance().calls());
    result.reserved = SimulatedMemory::instance().reserved();
  };
  {
    const ShapesOnlyScope shapes;
    job(end);
  }
  end();
  if (!device.is_cpu() && policies::highest(result.device).peak.bytes == 0) {
    throw PlanError(
        "simulate: the job placed nothing on " + device.str() +
        ", so that there is nothing to plan; make its model and tensors on that device, or plan it "
        "with simulate(\"cpu\", ...)");
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

}  // namespace dtk::planner
