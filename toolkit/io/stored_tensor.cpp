#include "toolkit/io/stored_tensor.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Exception.h>
#include <c10/util/Half.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/io/dtypes.h"

namespace dtk {
namespace {

std::string list_line(const std::string& title, const std::vector<std::string>& names) {
  return names.empty() ? "" : fmt::format("\n  {}: {}", title, c10::Join(", ", names));
}

}  // namespace

WrittenTensor::WrittenTensor(std::string called, const at::Tensor& tensor)
    : name(std::move(called)),
      type(tensor.scalar_type()),
      give([tensor](const Take& take) { take(tensor); }) {
  if (tensor.defined()) shape = tensor.sizes().vec();
}

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
  std::vector<std::string> missing, misshapen, mistyped, unknown;
  for (const NamedTensor& entry : into) {
    targets[entry.name] = entry.tensor;
    const auto source = sources.find(entry.name);
    if (source == sources.end()) {
      missing.push_back(entry.name);
    } else if (source->second->shape != entry.tensor.sizes()) {
      misshapen.push_back(c10::str(entry.name, " (", at::IntArrayRef(source->second->shape), ", not ",
                                   entry.tensor.sizes(), ")"));
    } else if (source->second->type != entry.tensor.scalar_type()) {
      mistyped.push_back(c10::str(entry.name, " (", dtype_name(source->second->type), ", not ",
                                  dtype_name(entry.tensor.scalar_type()), ")"));
    }
  }
  for (const StoredTensor& entry : from) {
    if (targets.count(entry.name) == 0) unknown.push_back(entry.name);
  }
  if (!missing.empty() || !misshapen.empty() || !mistyped.empty() || !unknown.empty()) {
    throw FileError(fmt::format("{} does not fit this model{}{}{}{}", what, list_line("missing", missing),
                                list_line("of another shape", misshapen),
                                list_line("of another type", mistyped), list_line("unknown", unknown)));
  }
  for (const auto& [name, target] : targets) copy_stored(*sources[name], target);
}

// Without an operator of LibTorch, whose results would be counted as the run's.
bool is_finite(const at::Tensor& values) {
  TORCH_INTERNAL_ASSERT(values.is_cpu() && values.is_contiguous());
  const auto all_of = [&](const auto* first) {
    return std::all_of(first, first + values.numel(),
                       [](auto value) { return std::isfinite(static_cast<float>(value)); });
  };
  switch (values.scalar_type()) {
    case at::kFloat:
      return all_of(values.const_data_ptr<float>());
    case at::kDouble:
      return all_of(values.const_data_ptr<double>());
    case at::kHalf:
      return all_of(values.const_data_ptr<at::Half>());
    case at::kBFloat16:
      return all_of(values.const_data_ptr<at::BFloat16>());
    default:
      return true;
  }
}

StoredTensor finite_only(StoredTensor from, const std::function<void()>& refuse) {
  from.read = [read = std::move(from.read), refuse] {
    at::Tensor values = read();
    if (!is_finite(values)) refuse();
    return values;
  };
  if (from.read_range) {
    from.read_range = [read = std::move(from.read_range), refuse](int64_t first, const at::Tensor& into) {
      read(first, into);
      if (!is_finite(into)) refuse();
    };
  }
  if (!from.read_into) return from;
  from.read_into = [read = std::move(from.read_into), refuse](const at::Tensor& into) {
    read(into);
    if (!is_finite(into)) refuse();
  };
  return from;
}

StoredTensor part_of(StoredTensor from, int64_t begin, int64_t elements) {
  StoredTensor part{.name = from.name, .type = from.type, .shape = {elements}, .read = {}};
  if (!from.read_range) {
    part.read = [read = std::move(from.read), begin, elements] {
      return read().view(-1).narrow(0, begin, elements).clone();
    };
    return part;
  }
  part.read_into = [read = std::move(from.read_range), begin](const at::Tensor& into) { read(begin, into); };
  part.read = [read = part.read_into, elements, type = from.type] {
    at::Tensor values = at::empty({elements}, at::TensorOptions().dtype(type));
    read(values);
    return values;
  };
  return part;
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
