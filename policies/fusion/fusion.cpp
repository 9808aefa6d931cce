#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/DispatchKey.h>
#include <c10/util/StringUtil.h>
#include <dtk/policies/advice.h>
#include <dtk/policies/fusion.h>

#include <map>
#include <set>
#include <string>

namespace dtk::policies {

struct FusionPolicy::Findings {
  bool stepped = false;
  std::map<std::string, bool, std::less<>>
      asked;  // an operator that a module has, and whether it has a kernel

  std::set<std::string> with_kernel(bool has) const {
    std::set<std::string> names;
    for (const auto& [name, found] : asked) {
      if (found == has) names.insert(name);
    }
    return names;
  }
};

namespace {

constexpr const char* kSwitch = "policies.fusion.enabled";
constexpr const char* kOnCuda = "policies.fusion.cuda";

// On a simulated device too, which has one for all operators.
bool has_kernel(std::string_view op, c10::Device device) {
  const auto found = c10::Dispatcher::singleton().findOp({std::string(op), ""});
  const auto key = device.is_cuda() ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU;
  return found && found->hasComputedKernelForDispatchKey(key);
}

std::string list(const std::set<std::string>& names) {
  return c10::Join(", ", std::vector<std::string>(names.begin(), names.end()));
}

}  // namespace

FusionPolicy::FusionPolicy(const FusionOptions& options, c10::Device device)
    : options_(options), device_(device), findings_(std::make_shared<Findings>()) {
  if (options.enabled == Enabled::on && device.is_cuda() && !options.cuda) {
    throw PolicyError(kSwitch,
                      " = true has no effect on CUDA, where the fused operators' kernels have not been "
                      "run and are taken only if asked for; " +
                          advise(kOnCuda, "true"));
  }
}

void FusionPolicy::put_in(Seam& seam) {
  if (device_.is_cuda() && !options_.cuda) return;
  seam.fuses = [asked = options_.enabled == Enabled::on, device = device_,
                findings = findings_](std::string_view op) {
    if (!at::GradMode::is_enabled()) return false;
    auto found = findings->asked.find(op);
    if (found == findings->asked.end()) found = findings->asked.emplace(op, has_kernel(op, device)).first;
    if (!found->second && asked) {
      throw PolicyError(kSwitch, c10::str(" = true, but ", op, " has no kernel on ", device, "; ",
                                          advise(kSwitch, "\"default\""),
                                          ", which runs LibTorch's operators there and says so"));
    }
    return found->second;
  };
}

void FusionPolicy::before_step() {
  findings_->stepped = true;
  if (options_.enabled != Enabled::on || !findings_->asked.empty()) return;
  throw PolicyError(kSwitch, " = true has no effect: no module of this model has a fused form; " +
                                 advise(kSwitch, "\"default\""));
}

PolicyReport FusionPolicy::report() const {
  if (device_.is_cuda() && !options_.cuda) {
    return {
        name(), false,
        "LibTorch's operators: the fused ones' kernels have not run on a GPU; policies.fusion.cuda = true "
        "takes them"};
  }
  const std::set<std::string> fused = findings_->with_kernel(true), missing = findings_->with_kernel(false);
  if (findings_->stepped && fused.empty() && missing.empty())
    return {name(), false, "no module of this model has a fused form"};
  // Asked for, and of no use here.
  const char* const unused = options_.cuda && !device_.is_cuda() ? "; policies.fusion.cuda is for CUDA" : "";
  PolicyReport report{name(), !fused.empty() || missing.empty(), "fused operators where modules have them"};
  if (!fused.empty()) report.reason = "fused operators: " + list(fused);
  if (fused.empty() && !missing.empty()) report.reason = "LibTorch's operators";
  if (!missing.empty()) report.reason += c10::str("; no kernel on ", device_, " for ", list(missing));
  report.reason += unused;
  return report;
}

}  // namespace dtk::policies
