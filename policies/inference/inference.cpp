#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/StringUtil.h>
#include <dtk/policies/inference.h>
#include <dtk/policies/report.h>
#include <dtk/policies/simulation.h>

#include <algorithm>
#include <map>
#include <utility>

namespace dtk::policies {

// What ran a few rows at a time.
struct InferencePolicy::Findings {
  std::map<std::string, int64_t> at_once;  // rows, by what they are
};

namespace {

class Mode final : public PolicyScope {
  const c10::InferenceMode mode_;
};

Tensors narrowed(const Tensors& inputs, int64_t dim, int64_t first, int64_t count) {
  Tensors some;
  some.reserve(inputs.size());
  for (const at::Tensor& input : inputs) some.push_back(input.narrow(dim, first, count));
  return some;
}

at::Tensor for_all(const at::Tensor& some, int64_t dim, int64_t count) {
  std::vector<int64_t> sizes = some.sizes().vec();
  sizes[static_cast<size_t>(dim)] = count;
  return at::empty(sizes, some.options());
}

bool is_alike(const at::Tensor& some, const at::Tensor& input, int64_t dim) {
  std::vector<int64_t> sizes = input.sizes().vec();
  sizes[static_cast<size_t>(dim)] = some.size(dim);
  return some.scalar_type() == input.scalar_type() && some.device() == input.device() &&
         some.sizes() == sizes;
}

Tensors by_chunks(const ModuleFn& fn, Tensors&& inputs, int64_t dim, int64_t chunk) {
  const int64_t count = inputs.front().size(dim);
  const at::Tensor& first_input = inputs.front();
  const bool nobody_elses = first_input.use_count() == 1 && first_input.storage().use_count() == 1 &&
                            first_input.is_non_overlapping_and_dense();
  Tensors results;
  for (FoldableLoop passes("chunks of rows", (count + chunk - 1) / chunk); const auto pass = passes.next();) {
    const int64_t first = *pass * chunk, rows = std::min(chunk, count - first);
    Tensors some = fn(narrowed(inputs, dim, first, rows));
    if (results.empty()) {
      if (nobody_elses && some.size() == 1 && is_alike(some.front(), inputs.front(), dim)) {
        results.push_back(inputs.front());
      } else {
        for (const at::Tensor& one : some) results.push_back(for_all(one, dim, count));
      }
    }
    for (size_t i = 0; i < some.size(); ++i) {
      results[i].narrow(dim, first, rows).copy_(some[i]);
      some[i].reset();
    }
  }
  return results;
}

// Queries see the same keys, so that they are rows.
Attention by_queries(Attention inner, int64_t chunk) {
  return
      [inner = std::move(inner), chunk](at::Tensor q, at::Tensor k, at::Tensor v, const AttentionCall& call) {
        const bool alike = !call.causal && (!call.mask || call.mask->size(-2) == 1);
        if (at::GradMode::is_enabled() || !alike || q.size(-2) <= chunk) {
          return inner(std::move(q), std::move(k), std::move(v), call);
        }
        const int64_t dim = q.dim() - 2;
        const ModuleFn some = [&](Tensors&& in) { return Tensors{inner(std::move(in[0]), k, v, call)}; };
        Tensors queries;
        queries.push_back(std::move(q));
        return std::move(by_chunks(some, std::move(queries), dim, chunk).front());
      };
}

// What rows are, for a report, and the size that is set for such.
struct RowKind {
  const char* name;
  RowsAtOnce at_once;
};

RowKind kind_of(const InferenceOptions& options, std::string_view path, const RowsOf& rows) {
  if (rows.dim > 0) return {"tokens", options.token_chunk};
  const bool is_head = std::any_of(options.heads.begin(), options.heads.end(),
                                   [&](const std::string& end) { return path.ends_with(end); });
  return is_head ? RowKind{"samples of heads", options.head_chunk} : RowKind{"samples", options.frame_chunk};
}

}  // namespace

int64_t rows_at_a_time(const InferenceOptions& options, std::string_view path, const RowsOf& rows) {
  if (const RowsAtOnce set = kind_of(options, path, rows).at_once) return *set;
  const int64_t fewest = rows.dim > 0 ? 2 * kChosenRows : kChosenRows;
  return rows.each == 0 ? 0 : (fewest + rows.each - 1) / rows.each;
}

void check_heads(const InferenceOptions& options, const std::vector<std::string>& paths) {
  if (options.heads == InferenceOptions().heads) return;
  for (const std::string& end : options.heads) {
    if (std::none_of(paths.begin(), paths.end(), [&](const auto& path) { return path.ends_with(end); }))
      throw PolicyError("policies.inference.heads", ": the name of no module ends with \"" + end +
                                                        "\"; remove it, or "
                                                        "give the end of one");
  }
}

InferencePolicy::InferencePolicy(const InferenceOptions& options)
    : options_(options), findings_(std::make_shared<Findings>()) {}
InferencePolicy::~InferencePolicy() = default;

std::unique_ptr<PolicyScope> InferencePolicy::forward_scope() {
  if (options_.enabled == Enabled::off || options_.gradients) return nullptr;
  return std::make_unique<Mode>();
}

void InferencePolicy::put_in(Seam& seam) {
  if (options_.enabled == Enabled::off) {
    seam.taps = Taps::all;
    return;
  }
  seam.taps = options_.taps;
  seam.divides_tokens = options_.token_chunk != 0;
  seam.rows = [options = options_, findings = findings_](std::string_view path, const ModuleFn& fn,
                                                         Tensors&& inputs, const RowsOf& rows) {
    const int64_t chunk = rows_at_a_time(options, path, rows);
    if (at::GradMode::is_enabled() || chunk == 0 || inputs.front().size(rows.dim) <= chunk)
      return fn(std::move(inputs));
    int64_t& at_once = findings->at_once[kind_of(options, path, rows).name];
    at_once = std::max(at_once, chunk);
    return by_chunks(fn, std::move(inputs), rows.dim, chunk);
  };
  if (options_.query_chunk.value_or(0) > 0)
    seam.attention = by_queries(std::move(seam.attention), *options_.query_chunk);
}

PolicyReport InferencePolicy::report() const {
  if (options_.enabled == Enabled::off)
    return {name(), false, "everything is kept, and runs at once: policies.inference.enabled = false"};
  PolicyReport report{name(), true, options_.gradients ? "gradients are expected" : "inference mode"};
  for (const auto& [what, count] : findings_->at_once)
    report.reason += c10::str(", up to ", count, " ", what, " at a time");
  return report;
}

}  // namespace dtk::policies
