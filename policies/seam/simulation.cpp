#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <dtk/policies/simulation.h>

#include <atomic>
#include <cstring>
#include <utility>

namespace dtk::policies {
namespace {

std::atomic<Rehearsal*> current{nullptr};
thread_local bool host_copies_allowed = false;

std::unique_ptr<PassFold> fold_of(std::string_view what) {
  Rehearsal* const rehearsal = current;
  return rehearsal != nullptr ? rehearsal->fold(what) : nullptr;
}

}  // namespace

RehearsalGuard::RehearsalGuard(Rehearsal& rehearsal) {
  TORCH_CHECK(current.exchange(&rehearsal) == nullptr, "a rehearsal is going on already");
}

RehearsalGuard::~RehearsalGuard() {
  current = nullptr;
}

bool rehearsing() {
  return current != nullptr;
}

void step_done() {
  if (Rehearsal* const rehearsal = current) rehearsal->step_done();
}

std::vector<double> values_sync(const at::Tensor& tensor) {
  const HostCopyScope copy;
  const at::Tensor values = tensor.detach().to(at::kCPU).contiguous().to(at::kDouble);
  if (rehearsing()) return std::vector<double>(static_cast<size_t>(values.numel()), 0.0);
  const double* first = values.const_data_ptr<double>();
  return {first, first + values.numel()};
}

void zero_if_rehearsing(const at::Tensor& tensor) {
  if (rehearsing()) std::memset(tensor.mutable_data_ptr(), 0, tensor.nbytes());
}

HostCopyScope::HostCopyScope() : outer_(std::exchange(host_copies_allowed, true)) {}

HostCopyScope::~HostCopyScope() {
  host_copies_allowed = outer_;
}

bool HostCopyScope::active() {
  return host_copies_allowed;
}

Passes::Passes(std::string_view what, int64_t count) : count_(count), fold_(fold_of(what)) {}
Passes::~Passes() = default;

std::optional<int64_t> Passes::next() {
  if (fold_ != nullptr && next_ > 0 && next_ < count_) next_ = fold_->after(next_ - 1, count_);
  if (next_ >= count_) return std::nullopt;
  return next_++;
}

}  // namespace dtk::policies
