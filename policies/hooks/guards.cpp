#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/from_blob.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/simulation.h>

#include <mutex>

namespace dtk::policies {

// LibTorch starts XNNPACK's pool with each call, whose threads then spin: a tenth of a plan's time. A count
// that stays is set all the same for a job that computes, as MKL follows it only once it was set.
ThreadCountGuard::ThreadCountGuard(int threads)
    : previous_(at::get_num_threads()), sets_(threads != previous_ || !simulating()) {
  if (sets_) at::set_num_threads(threads);
}
ThreadCountGuard::~ThreadCountGuard() {
  if (sets_) at::set_num_threads(previous_);
}

void AttentionBackends::apply() const {
  auto& context = at::globalContext();
  context.setSDPUseFlash(flash);
  context.setSDPUseMemEfficient(memory_efficient);
  context.setSDPUseCuDNN(cudnn);
  context.setSDPUseMath(math);
}

AttentionBackends AttentionBackends::now() {
  const auto& context = at::globalContext();
  return {context.userEnabledFlashSDP(), context.userEnabledMemEfficientSDP(), context.userEnabledCuDNNSDP(),
          context.userEnabledMathSDP()};
}

AttentionBackendGuard::AttentionBackendGuard(const AttentionBackends& allowed)
    : previous_(AttentionBackends::now()) {
  allowed.apply();
}
AttentionBackendGuard::~AttentionBackendGuard() {
  previous_.apply();
}

AutocastGuard::AutocastGuard(c10::DeviceType device, bool enabled, c10::ScalarType dtype)
    : device_(device),
      previous_enabled_(at::autocast::is_autocast_enabled(device)),
      previous_dtype_(at::autocast::get_autocast_dtype(device)) {
  at::autocast::set_autocast_enabled(device, enabled);
  at::autocast::set_autocast_dtype(device, dtype);
  at::autocast::increment_nesting();
}

AutocastGuard::~AutocastGuard() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_dtype(device_, previous_dtype_);
  at::autocast::set_autocast_enabled(device_, previous_enabled_);
}

std::string generator_state(const at::Generator& generator) {
  const BudgetExemption exempt;  // a guard's destructor calls this
  const OwnerScope owner(Category::temporaries, "random state");
  at::Generator own = generator;
  std::lock_guard lock(own.mutex());
  const at::Tensor state = own.get_state();
  return {static_cast<const char*>(state.const_data_ptr()), static_cast<size_t>(state.numel())};
}

void set_generator_state(const at::Generator& generator, const std::string& state) {
  at::Generator own = generator;
  std::string copy = state;
  const at::Tensor bytes = at::from_blob(copy.data(), {static_cast<int64_t>(copy.size())}, at::kByte);
  std::lock_guard lock(own.mutex());
  own.set_state(bytes);
}

at::Generator make_generator(c10::Device device, uint64_t seed) {
  if (device.is_cpu()) return at::detail::createCPUGenerator(seed);
  at::Generator generator =
      at::globalContext().getAcceleratorHooksInterface(device.type()).getNewGenerator(device.index());
  generator.set_current_seed(seed);
  return generator;
}

void seed_generator(const at::Generator& generator, uint64_t seed) {
  at::Generator same = generator;
  const std::lock_guard lock(same.mutex());
  same.set_current_seed(seed);
}

DefaultGeneratorScope::DefaultGeneratorScope(c10::Device device)
    : generator_(at::globalContext().defaultGenerator(device)), previous_(generator_state(generator_)) {}

DefaultGeneratorScope::DefaultGeneratorScope(c10::Device device, std::string& state)
    : DefaultGeneratorScope(device) {
  state_ = &state;
  set_generator_state(generator_, state);
}

DefaultGeneratorScope::~DefaultGeneratorScope() {
  if (state_ != nullptr) *state_ = generator_state(generator_);
  set_generator_state(generator_, previous_);
}

}  // namespace dtk::policies
