#include <c10/util/Exception.h>
#include <dtk/policies/internal/job_observer.h>
#include <dtk/policies/memory_ledger.h>

#include <atomic>
#include <utility>

namespace dtk::policies {
namespace {

std::atomic<JobObserver*> current_observer{nullptr};

}  // namespace

JobObserverGuard::JobObserverGuard(JobObserver& watch) {
  JobObserver* none = nullptr;
  TORCH_CHECK(current_observer.compare_exchange_strong(none, &watch), "a job is watched already");
}

JobObserverGuard::~JobObserverGuard() {
  current_observer = nullptr;
}

JobObserver* job_observer() {
  return current_observer;
}

Run run_observed(Run inner) {
  return [inner = std::move(inner)](std::string_view path, const ModuleFn& fn, Tensors&& inputs) {
    JobObserver* const watch = job_observer();
    if (watch == nullptr) return inner(path, fn, std::move(inputs));
    watch->enter(path, inputs);
    try {
      Tensors outputs = inner(path, fn, std::move(inputs));
      watch->leave(&outputs);
      return outputs;
    } catch (...) {
      watch->leave(nullptr);
      throw;
    }
  };
}

void name_parameter(const at::Tensor& parameter, std::string_view name) {
  JobObserver* const watch = job_observer();
  const MemoryBlock* const block = watch != nullptr ? counted_block(parameter) : nullptr;
  if (block != nullptr) watch->parameter(*block, name);
}

}  // namespace dtk::policies
