#include <ATen/core/grad_mode.h>
#include <c10/util/StringUtil.h>
#include <dtk/toolkit/errors.h>
#include <dtk/toolkit/named_tensor.h>

#include <map>

namespace dtk {
namespace {

void list(std::string& message, const std::string& title, const std::vector<std::string>& names) {
  if (names.empty()) return;
  message += "\n  " + title + ": ";
  for (size_t i = 0; i < names.size(); ++i) message += (i > 0 ? ", " : "") + names[i];
}

}  // namespace

void copy_by_name(const std::vector<NamedTensor>& from, const std::vector<NamedTensor>& into,
                  const std::string& what) {
  std::map<std::string, at::Tensor> sources;
  for (const NamedTensor& entry : from) sources[entry.name] = entry.tensor;
  std::vector<std::string> missing, misshapen, unknown;
  for (const NamedTensor& entry : into) {
    const auto source = sources.find(entry.name);
    if (source == sources.end()) {
      missing.push_back(entry.name);
    } else if (source->second.sizes() != entry.tensor.sizes()) {
      misshapen.push_back(
          c10::str(entry.name, " (", source->second.sizes(), ", not ", entry.tensor.sizes(), ")"));
    }
  }
  std::map<std::string, at::Tensor> targets;
  for (const NamedTensor& entry : into) targets[entry.name] = entry.tensor;
  for (const NamedTensor& entry : from) {
    if (targets.count(entry.name) == 0) unknown.push_back(entry.name);
  }
  if (!missing.empty() || !misshapen.empty() || !unknown.empty()) {
    std::string message = what + " does not fit this model";
    list(message, "missing", missing);
    list(message, "of another shape", misshapen);
    list(message, "unknown", unknown);
    throw FileError(message);
  }
  at::NoGradGuard no_grad;
  for (auto& [name, target] : targets) target.detach().copy_(sources[name]);
}

}  // namespace dtk
