#include <ATen/DeviceAccelerator.h>
#include <ATen/DynamicLibrary.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/StringUtil.h>
#include <dtk/policies/advice.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/internal/path_globs.h>
#include <dtk/policies/precision.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <optional>

namespace dtk::policies {
namespace {

// Autocast keeps the casts of weights until the scope ends, for backward, which holds them anyway. A pass
// without gradients uses each once: kept, they would add up to half of the weights' bytes.
class Bf16Scope final : public PolicyScope {
 public:
  explicit Bf16Scope(c10::DeviceType device)
      : cache_(at::autocast::is_autocast_cache_enabled()), autocast_(device, true, c10::kBFloat16) {
    if (!at::GradMode::is_enabled()) at::autocast::set_autocast_cache_enabled(false);
  }
  ~Bf16Scope() override { at::autocast::set_autocast_cache_enabled(cache_); }

 private:
  const bool cache_;
  AutocastGuard autocast_;
};

Tensors in_fp32(Tensors&& tensors) {
  for (at::Tensor& tensor : tensors) {
    if (tensor.defined() && tensor.scalar_type() == at::kBFloat16) tensor = tensor.to(at::kFloat);
  }
  return std::move(tensors);
}

std::set<std::string, std::less<>> fp32_paths(const PrecisionOptions& options,
                                              const std::vector<std::string>& paths) {
  const std::vector<std::string> found = matching_paths(options.fp32, paths, "policies.precision.fp32");
  return {found.begin(), found.end()};
}

// Guards that do not know throw, as the one of CUDA in LibTorch 2.11 to 2.15 does.
std::optional<bool> guard_says(c10::Device device) {
  try {
    return c10::impl::VirtualGuardImpl(device.type())
        .getDeviceCapability(device)
        .capability_data.supported_scalar_types.has_BFloat16;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

// Asked of the driver by name, as nothing here links CUDA.
std::optional<bool> cuda_driver_says(int ordinal) {
  constexpr int kSuccess = 0, kComputeCapabilityMajor = 75, kFirstWithBf16 = 8;
  try {
    at::DynamicLibrary driver("libcuda.so.1", nullptr, /*leak_handle=*/true);
    const auto init = reinterpret_cast<int (*)(unsigned)>(driver.sym("cuInit"));
    const auto get = reinterpret_cast<int (*)(int*, int)>(driver.sym("cuDeviceGet"));
    const auto attribute = reinterpret_cast<int (*)(int*, int, int)>(driver.sym("cuDeviceGetAttribute"));
    int device = 0, major = 0;
    if (init(0) != kSuccess || get(&device, ordinal) != kSuccess ||
        attribute(&major, kComputeCapabilityMajor, device) != kSuccess) {
      return std::nullopt;
    }
    return major >= kFirstWithBf16;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

bool is_present(c10::DeviceType type) {
  try {
    return at::accelerator::getAccelerator() == type;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace

bool supports_bf16(c10::Device device) {
  if (device.is_cpu()) return true;
  if (!is_present(device.type())) return false;
  std::optional<bool> said = guard_says(device);
  if (!said && device.is_cuda()) said = cuda_driver_says(std::max<int>(0, device.index()));
  return said.value_or(false);
}

Precision::Precision(const PrecisionOptions& options, c10::Device device,
                     const std::vector<std::string>& paths)
    : device_(device), fp32_paths_(fp32_paths(options, paths)) {
  const bool asked = asked_ = options.enabled == Enabled::on;
  const bool supported = supports_bf16(device);
  if (asked && !supported) {
    throw PolicyError("policies.precision.enabled",
                      c10::str(" = true, but ", device,
                               " does not compute in bf16; remove it, or train on another device"));
  }
  if (options.enabled == Enabled::off) {
    reason_ = "fp32: policies.precision.enabled = false";
  } else if (asked) {
    active_ = true;
    reason_ = "bf16 autocast, asked for";
  } else if (!supported) {
    reason_ = c10::str("fp32: ", device, " does not compute in bf16");
  } else if (device.is_cpu()) {
    active_ = options.cpu == CpuPrecision::bf16;
    reason_ = active_ ? "bf16 autocast" : "fp32";
    if (options.cpu == CpuPrecision::probe) {
      reason_ += ": whether bf16 is faster on this CPU was not measured";
    } else if (options.cpu_measured.empty()) {
      reason_ += ": policies.precision.cpu = \"" + text_of(options.cpu) + "\"";
    } else {
      reason_ += ", measured: " + options.cpu_measured;
    }
  } else {
    active_ = true;
    reason_ = c10::str("bf16 autocast, which ", device, " supports");
  }
  if (active_ && !paths.empty() && fp32_paths_.size() == paths.size()) {
    if (asked) {
      throw PolicyError(
          "policies.precision.enabled",
          " = true, but policies.precision.fp32 names every module of the model, so it has no effect; name "
          "fewer there, or " +
              advise("policies.precision.enabled", "\"default\""));
    }
    active_ = false;
    reason_ = "fp32: policies.precision.fp32 names every module";
  } else if (active_ && !fp32_paths_.empty()) {
    reason_ += "; fp32 in";
    for (const std::string& path : fp32_paths_) reason_ += " " + path;
  }
}

bool Precision::keeps_fp32(std::string_view path) const {
  return std::any_of(fp32_paths_.begin(), fp32_paths_.end(),
                     [&](const std::string& named) { return path == named || lies_within(path, named); });
}

std::unique_ptr<PolicyScope> Precision::forward_scope() {
  if (!active_) return nullptr;
  scoped_ = true;
  return std::make_unique<Bf16Scope>(device_.type());
}

void Precision::before_step() {
  stepped_ = true;
  if (!asked_ || scoped_) return;
  throw PolicyError(
      "policies.precision.enabled",
      " = true, but no forward pass ran within forward_scope(), so it has no effect; hold the scope during "
      "the forward pass, or " +
          advise("policies.precision.enabled", "\"default\""));
}

void Precision::after_step() {
  if (active_) at::autocast::clear_cache();
}

void Precision::put_in(Seam& seam) {
  if (!active_ || fp32_paths_.empty()) return;
  seam.run = [inner = std::move(seam.run), paths = fp32_paths_, device = device_.type()](
                 std::string_view path, const ModuleFn& fn, Tensors&& inputs) {
    if (paths.find(path) == paths.end()) return inner(path, fn, std::move(inputs));
    // Within `inner`, so that a recomputed segment casts again.
    const ModuleFn exact = [device, fn](Tensors&& in) {
      const AutocastGuard fp32(device, false);
      return fn(in_fp32(std::move(in)));
    };
    return inner(path, exact, std::move(inputs));
  };
}

PolicyReport Precision::report() const {
  if (active_ && stepped_ && !scoped_) {
    return {name(), false, "without effect: no forward pass ran within forward_scope()"};
  }
  return {name(), active_, reason_};
}

}  // namespace dtk::policies
