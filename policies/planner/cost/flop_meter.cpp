#include "cost/flop_meter.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <dtk/policies/module_path.h>
#include <torch/csrc/autograd/function.h>

#include <atomic>
#include <limits>
#include <utility>

namespace dtk::planner {
namespace {

std::atomic<FlopMeter*> alive{nullptr};
thread_local bool within_counted = false;

}  // namespace

FlopMeter::FlopMeter() {
  FlopMeter* none = nullptr;
  TORCH_CHECK(alive.compare_exchange_strong(none, this), "FLOPs are being counted already");
}

FlopMeter::~FlopMeter() {
  alive = nullptr;
}

void FlopMeter::step_done() {
  const std::lock_guard lock(mutex_);
  steps_.push_back(std::exchange(current_, {}));
}

CountedFlops FlopMeter::current() const {
  const std::lock_guard lock(mutex_);
  return current_;
}

void FlopMeter::repeat_since(const CountedFlops& before, int64_t times) {
  const std::lock_guard lock(mutex_);
  const auto repeat = [&](int64_t& now, int64_t then) {
    int64_t more = 0;
    const bool fits =
        !__builtin_mul_overflow(now - then, times, &more) && !__builtin_add_overflow(now, more, &more);
    now = fits ? more : std::numeric_limits<int64_t>::max();  // more than anybody computes
  };
  for (int64_t Flops::*const pass : {&Flops::forward, &Flops::backward, &Flops::recomputed,
                                     &Flops::attention_recomputed, &Flops::without_grad})
    repeat(current_.flops.*pass, before.flops.*pass);
  for (auto& [path, flops] : current_.recomputed) {
    const auto then = before.recomputed.find(path);
    repeat(flops, then == before.recomputed.end() ? 0 : then->second);
  }
}

std::vector<CountedFlops> FlopMeter::steps() const {
  const std::lock_guard lock(mutex_);
  return steps_;
}

void FlopMeter::count(const OperatorFlops& flops) {
  if (FlopMeter* const meter = alive) meter->add(flops);
}

void FlopMeter::add(const OperatorFlops& flops) {
  const bool in_backward = torch::autograd::get_current_node() != nullptr;
  const bool graph = at::GradMode::is_enabled();
  const bool recomputed = in_backward && graph;
  std::string path = recomputed ? policies::module_path() : "";
  if (recomputed && path.empty()) path = policies::backward_place().path;
  const std::lock_guard lock(mutex_);
  Flops& now = current_.flops;
  now.attention_recomputed += flops.recomputed;
  const auto add = [&](int64_t& sum) {
    if (__builtin_add_overflow(sum, flops.asked, &sum)) sum = std::numeric_limits<int64_t>::max();
  };
  if (recomputed && flops.asked > 0) add(current_.recomputed[path]);
  add(in_backward ? (graph ? now.recomputed : now.backward) : (graph ? now.forward : now.without_grad));
}

CountedOperatorScope::CountedOperatorScope(FlopRule rule, c10::ArrayRef<c10::IValue> arguments)
    : outer_(within_counted), within_(within_counted, true) {
  if (!outer_) FlopMeter::count(rule(arguments));
}

}  // namespace dtk::planner
