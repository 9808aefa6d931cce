#include "toolkit/io/stored_tensor.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/StringUtil.h>

#include <map>

#include "toolkit/core/errors.h"

namespace dtk {
namespace {

std::string list_line(const std::string& title, const std::vector<std::string>& names) {
  return names.empty() ? "" : "\n  " + title + ": " + c10::Join(", ", names);
}

}  // namespace

void copy_stored(const StoredTensor& from, const at::Tensor& into) {
  const at::NoGradGuard no_grad;
  const at::Tensor target = into.detach();
  const bool as_stored = target.is_cpu() && target.is_contiguous() && target.scalar_type() == from.type;
  if (as_stored && from.read_into) {
    from.read_into(target);
  } else {
    target.copy_(from.read());
  }
}

void copy_by_name(const std::vector<StoredTensor>& from, const std::vector<NamedTensor>& into,
                  const std::string& what) {
  std::map<std::string, const StoredTensor*> sources;
  for (const StoredTensor& entry : from) sources[entry.name] = &entry;
  std::map<std::string, at::Tensor> targets;
  std::vector<std::string> missing, misshapen, unknown;
  for (const NamedTensor& entry : into) {
    targets[entry.name] = entry.tensor;
    const auto source = sources.find(entry.name);
    if (source == sources.end()) {
      missing.push_back(entry.name);
    } else if (source->second->shape != entry.tensor.sizes()) {
      misshapen.push_back(c10::str(entry.name, " (", at::IntArrayRef(source->second->shape), ", not ",
                                   entry.tensor.sizes(), ")"));
    }
  }
  for (const StoredTensor& entry : from) {
    if (targets.count(entry.name) == 0) unknown.push_back(entry.name);
  }
  if (!missing.empty() || !misshapen.empty() || !unknown.empty()) {
    throw FileError(what + " does not fit this model" + list_line("missing", missing) +
                    list_line("of another shape", misshapen) + list_line("unknown", unknown));
  }
  for (const auto& [name, target] : targets) copy_stored(*sources[name], target);
}

void strip_wrappers(std::vector<StoredTensor>& tensors) {
  const auto all_begin_with = [&](const std::string& prefix) {
    return std::all_of(tensors.begin(), tensors.end(),
                       [&](const StoredTensor& tensor) { return tensor.name.starts_with(prefix); });
  };
  for (bool found = !tensors.empty(); found;) {
    found = false;
    for (const std::string prefix : {"module.", "_orig_mod."}) {
      if (!all_begin_with(prefix)) continue;
      for (StoredTensor& tensor : tensors) tensor.name.erase(0, prefix.size());
      found = true;
    }
  }
}

}  // namespace dtk
