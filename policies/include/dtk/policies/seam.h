// The five function types by which policies reach a model. models/ spells the same types: the two
// libraries meet in the types' structure and include nothing of each other.
#pragma once
#include <ATen/core/Tensor.h>
#include <dtk/policies/internal/taps.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace dtk::policies {

using Tensors = std::vector<at::Tensor>;

/// One named module's computation. Inputs are moved in, so that whoever runs it holds the last reference.
using ModuleFn = std::function<Tensors(Tensors&& inputs)>;

/// Runs a module: calls fn with the inputs, once or (to recompute) again later.
using Run = std::function<Tensors(std::string_view path, const ModuleFn& fn, Tensors&& inputs)>;

/// Marks a named intermediate result that a policy may keep, at once after the operator that makes it;
/// returns the value to go on with.
using Keep = std::function<at::Tensor(std::string_view name, at::Tensor value)>;

/// How the queries of one call attend. `models/` spells it likewise, and one becomes the other.
struct AttentionCall {
  std::optional<at::Tensor> mask = {};  // boolean (true: attend) or added; broadcast to (N, H, T, S)
  double dropout = 0;                   // probability
  bool causal = false;                  // query i attends to keys 0 ... i; not beside a mask
  std::optional<double> scale = {};     // of q·kᵀ; absent: 1/√d

  template <class Same>
  requires std::is_aggregate_v<Same> && requires(const Same& same) { same.causal, same.scale; }
  operator Same() const { return {mask, dropout, causal, scale}; }
};

/// Rows that a function acts on one by one: row i of its results comes from row i of its inputs alone.
/// `models/` spells it likewise.
struct RowsOf {
  int64_t dim = 0;   // of inputs and results. 0: samples, such as frames; 1: tokens of them
  int64_t each = 0;  // of one row, the fewest rows that a product of the function has; 0: nobody said

  template <class Same>
  requires std::is_aggregate_v<Same> && requires(const Same& same) { same.dim, same.each; }
  operator Same() const { return {dim, each}; }
};

/// Attention of q (N, H, T, d) to k and v (N, H, S, d); returns (N, H, T, d).
using Attention =
    std::function<at::Tensor(at::Tensor q, at::Tensor k, at::Tensor v, const AttentionCall& call)>;

/// Calls fn, once or for a few rows at a time, which are views of the inputs, from the first to the last:
/// each row once. What fn reads of all rows it captures.
using Rows =
    std::function<Tensors(std::string_view path, const ModuleFn& fn, Tensors&& inputs, const RowsOf& rows)>;

/// Whether a module is to call a fused operator, by its name in LibTorch's dispatcher
/// ("dtk::gated_add"), in place of the composed form that it has as well. The answer is the same when
/// the module is recomputed.
using Fuses = std::function<bool(std::string_view op)>;

/// The functions a model calls, on its own thread; what is recomputed, on a thread of backward. A policy
/// replaces those it needs by ones that call what was there.
struct Seam {
  Run run;                            // default: calls fn
  Keep keep;                          // default: returns the value
  Attention attention;                // default: at::scaled_dot_product_attention
  Rows rows;                          // default: calls fn once
  Fuses fuses;                        // default: no
  bool divides_tokens = false;        // rows() may do so for a few tokens at a time
  Taps taps = Taps::projected;        // how results that later modules read wait for them
  std::vector<std::string> policies;  // names of those put in, so that none is put in twice
  Seam();

  /// run() for a module of one tensor: module(input). The module is copied, as it may be recomputed in
  /// backward; holders of torch::nn share what they hold.
  at::Tensor module(std::string_view path, const std::function<at::Tensor(at::Tensor)>& module,
                    at::Tensor input) const;
};

}  // namespace dtk::policies
