#include "activations/ambient_state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/autocast_mode.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <type_traits>

namespace dtk::policies {

KernelFlags KernelFlags::now() {
  const at::Context& context = at::globalContext();
  return {context.deterministicAlgorithms(),
          context.deterministicAlgorithmsWarnOnly(),
          context.deterministicFillUninitializedMemory(),
          context.deterministicCuDNN(),
          context.benchmarkCuDNN(),
          AttentionBackends::now()};
}

void KernelFlags::apply() const {
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(deterministic, warn_only);
  context.setDeterministicFillUninitializedMemory(fill_uninitialized);
  context.setDeterministicCuDNN(cudnn_deterministic);
  context.setBenchmarkCuDNN(cudnn_benchmark);
  attention.apply();
}

static int autocast_scopes() {
  const int scopes = at::autocast::increment_nesting() - 1;
  at::autocast::decrement_nesting();
  return scopes;
}

// Autocast frees its casts where the last of its scopes ends.
static void set_autocast_scopes(int from, int to) {
  for (; from < to; ++from) at::autocast::increment_nesting();
  for (; from > to; --from) at::autocast::decrement_nesting();
}

AmbientState::AmbientState(const Devices& devices)
    : cache(at::autocast::is_autocast_cache_enabled()),
      within_scope(autocast_scopes() > 0),
      flags(KernelFlags::now()),
      path(module_path()) {
  for (const c10::Device& device : devices) {
    const c10::DeviceType type = device.type();
    autocast.push_back(
        {type, at::autocast::is_autocast_enabled(type), at::autocast::get_autocast_dtype(type)});
  }
}

bool AmbientState::may_find_casts() const {
  return within_scope ||
         std::any_of(autocast.begin(), autocast.end(), [](const Autocast& one) { return one.enabled; });
}

void AmbientStateGuard::set(const c10::SmallVector<AmbientState::Autocast, 2>& autocast) {
  for (const auto& [device, enabled, dtype] : autocast) {
    if (at::autocast::is_autocast_enabled(device) != enabled)
      at::autocast::set_autocast_enabled(device, enabled);
    if (at::autocast::get_autocast_dtype(device) != dtype) at::autocast::set_autocast_dtype(device, dtype);
  }
}

AmbientStateGuard::AmbientStateGuard(const AmbientState& state)
    : cache_(at::autocast::is_autocast_cache_enabled()),
      scopes_(autocast_scopes()),
      wanted_scopes_(state.within_scope ? 1 : 0),
      flags_(KernelFlags::now()),
      wanted_(state.flags),
      path_(state.path),
      grad_(true) {
  for (const auto& [device, enabled, dtype] : state.autocast) {
    autocast_.push_back(
        {device, at::autocast::is_autocast_enabled(device), at::autocast::get_autocast_dtype(device)});
  }
  set(state.autocast);
  at::autocast::set_autocast_cache_enabled(state.cache);
  if (scopes_ > 0) at::autocast::clear_cache();  // backward's own
  set_autocast_scopes(scopes_, wanted_scopes_);  // scopes within free casts, or free none, as in forward
  if (!(flags_ == wanted_)) wanted_.apply();
}

AmbientStateGuard::~AmbientStateGuard() {
  if (!(flags_ == wanted_)) flags_.apply();
  set_autocast_scopes(wanted_scopes_, scopes_);
  at::autocast::clear_cache();
  at::autocast::set_autocast_cache_enabled(cache_);
  set(autocast_);
}

namespace {

at::CPUGeneratorImpl& cpu_generator() {
  return *at::check_generator<at::CPUGeneratorImpl>(at::detail::getDefaultCPUGenerator());
}

// As bytes first: the accessor copies the 2.5 kB. Their padding may differ where the fields do not.
bool same(const at::mt19937& a, const at::mt19937& b) {
  static_assert(std::is_trivially_copyable_v<at::mt19937>);
  if (std::memcmp(static_cast<const void*>(&a), static_cast<const void*>(&b), sizeof a) == 0) return true;
  const at::mt19937_data_pod x = a.data(), y = b.data();
  return x.seed_ == y.seed_ && x.left_ == y.left_ && x.next_ == y.next_ && x.state_ == y.state_;
}

}  // namespace

RandomStates::Cpu RandomStates::cpu_now() {
  at::CPUGeneratorImpl& generator = cpu_generator();
  const std::lock_guard lock(generator.mutex_);
  return {generator.engine(), generator.next_float_normal_sample(), generator.next_double_normal_sample()};
}

RandomStates::RandomStates(const Devices& devices) : cpu_(cpu_now()) {
  for (const c10::Device& device : devices) {
    if (!device.is_cpu())
      others_.emplace_back(device, generator_state(at::globalContext().defaultGenerator(device)));
  }
}

bool RandomStates::still_so() const {
  const Cpu now = cpu_now();
  return now.next_float == cpu_.next_float && now.next_double == cpu_.next_double &&
         same(now.engine, cpu_.engine) && std::all_of(others_.begin(), others_.end(), [](const auto& other) {
           return generator_state(at::globalContext().defaultGenerator(other.first)) == other.second;
         });
}

void RandomStates::restore() const {
  {
    at::CPUGeneratorImpl& generator = cpu_generator();
    const std::lock_guard lock(generator.mutex_);
    generator.set_engine(cpu_.engine);
    generator.set_next_float_normal_sample(cpu_.next_float);
    generator.set_next_double_normal_sample(cpu_.next_double);
  }
  for (const auto& [device, state] : others_) {
    set_generator_state(at::globalContext().defaultGenerator(device), state);
  }
}

}  // namespace dtk::policies
