// The seam: five functions through which a program reaches inside a model. policies/ spells the same
// types; neither library includes the other.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace dtk::models {

using Tensors = std::vector<at::Tensor>;
using ModuleFn = std::function<Tensors(Tensors&& inputs)>;
using Run = std::function<Tensors(std::string_view path, const ModuleFn& fn, Tensors&& inputs)>;
using Keep = std::function<at::Tensor(std::string_view name, at::Tensor value)>;
/// How the queries of one call attend. `policies/` spells it likewise, and one becomes the other.
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
/// `policies/` spells it likewise.
struct RowsOf {
  int64_t dim = 0;   // of inputs and results. 0: samples, such as frames; 1: tokens of them
  int64_t each = 0;  // of one row, the fewest rows that a product of the function has; 0: nobody said

  template <class Same>
  requires std::is_aggregate_v<Same> && requires(const Same& same) { same.dim, same.each; }
  operator Same() const { return {dim, each}; }
};

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

/// How results that later modules read wait for them, in a pass without gradient: made ready for the reader
/// (projected, where that makes them smaller), as they are, or with those beside them that nobody reads.
enum class Taps { projected, tapped, all };

/// Every tensor a module reads is an input, moved in: the seam then owns the last reference and an input
/// dies when the policy lets it, not at the caller's semicolon.
struct Seam {
  Run run;                      // default: calls fn
  Keep keep;                    // default: returns the value
  Attention attention;          // default: at::scaled_dot_product_attention
  Rows rows;                    // default: calls fn once
  Fuses fuses;                  // default: no
  bool divides_tokens = false;  // rows() may do so for a few tokens at a time
  Taps taps = Taps::projected;
  std::vector<std::string> policies;  // names of what was put in
  Seam();
};

/// A list of tensors made by moving. Braces would copy: an initializer list keeps its elements alive to the
/// end of the full expression.
template <class... T>
Tensors pack(T&&... tensors) {
  Tensors list;
  list.reserve(sizeof...(tensors));
  (list.emplace_back(std::forward<T>(tensors)), ...);
  return list;
}

}  // namespace dtk::models
