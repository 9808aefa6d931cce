#include <dtk/planner/rehearse.h>
#include <dtk/planner/simulated_device.h>
#include <dtk/policies/counted_blocks.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/rehearsal.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <stdexcept>

#include "kernel_needs.h"

namespace dtk::planner {
namespace {

using policies::MemoryAccounts;
using policies::MemorySums;

// Owners that came later and hold nothing make no difference.
bool equal_books(const MemorySums& a, const MemorySums& b) {
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

struct Books {
  MemorySums device = policies::device_accounts().live();
  MemorySums cpu = policies::cpu_accounts().live();
  MemorySums host = policies::host_accounts().live();

  bool equal(const Books& other) const {
    return equal_books(device, other.device) && equal_books(cpu, other.cpu) && equal_books(host, other.host);
  }
};

class Folding final : public policies::Rehearsal {
 public:
  explicit Folding(std::map<std::string, int64_t>& folded) : folded_(folded) {}

  std::unique_ptr<policies::PassFold> fold(std::string_view what) override {
    return std::make_unique<Fold>(folded_, what);
  }

 private:
  class Fold final : public policies::PassFold {
   public:
    Fold(std::map<std::string, int64_t>& folded, std::string_view what) : folded_(folded), what_(what) {}

    int64_t after(int64_t done, int64_t count) override {
      Books books;
      const bool repeats = before_ && before_->equal(books);
      before_ = std::move(books);
      const int64_t next = done + 1, last = count - 1;
      if (!repeats || next >= last) return next;
      folded_[what_] += last - next;
      return last;
    }

   private:
    std::map<std::string, int64_t>& folded_;
    const std::string what_;
    std::optional<Books> before_;  // at the end of the pass before
  };

  std::map<std::string, int64_t>& folded_;
};

class NoFolding final : public policies::Rehearsal {
  std::unique_ptr<policies::PassFold> fold(std::string_view) override { return nullptr; }
};

}  // namespace

Rehearsed rehearse(c10::Device device, const std::function<void(const EndOfPlan&)>& job,
                   const RehearsalOptions& options) {
  if (!device.is_cpu() && device != c10::Device(c10::kCUDA, 0)) {
    throw std::invalid_argument("rehearse: device " + device.str() + "; allowed: cpu, cuda:0");
  }
  register_simulated_devices();
  Rehearsed result;
  const auto begin = std::chrono::steady_clock::now();
  Folding folding(result.folded);
  NoFolding no_folding;
  const policies::RehearsalGuard guard(options.fold ? static_cast<policies::Rehearsal&>(folding)
                                                    : static_cast<policies::Rehearsal&>(no_folding));
  const policies::CountingAllocatorGuard counting;
  const policies::PhaseMeterRegistration device_meter(policies::device_accounts());
  for (MemoryAccounts* accounts :
       {&policies::device_accounts(), &policies::cpu_accounts(), &policies::host_accounts()})
    accounts->reset_phases("build");
  KernelNeeds::instance().begin(options.terms);
  bool ended = false;
  const EndOfPlan end = [&] {
    if (ended) return;
    ended = true;
    const bool on_cpu = device.is_cpu();
    result.device = (on_cpu ? policies::cpu_accounts() : policies::device_accounts()).phases();
    result.host = (on_cpu ? policies::host_accounts() : policies::cpu_accounts()).phases();
    if (!on_cpu) result.terms = KernelNeeds::instance().terms();
  };
  {
    const ShapesOnlyScope shapes;
    job(end);
  }
  end();
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

}  // namespace dtk::planner
