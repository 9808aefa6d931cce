#include "kernels/cpu_products.h"

#include <ATen/Context.h>
#include <ATen/ops/clone.h>

#include <algorithm>
#include <string>
#include <utility>

namespace dtk::planner {
namespace {

using at::Tensor;
using Copies = std::vector<Tensor>;

// ---- LinearAlgebra.cpp, addmm_impl_cpu_()

// Rows or columns without gaps and far enough apart for BLAS.
bool blas_takes(const Tensor& matrix, int64_t contiguous, int64_t length) {
  return matrix.stride(contiguous) == 1 && matrix.stride(1 - contiguous) >= std::max<int64_t>(1, length);
}

// The result is new and has rows without gaps, so that the product is computed transposed, unless it is one
// column.
void copy_for_blas(Tensor a, Tensor b, Copies& copies) {
  const int64_t rows = a.size(0), columns = b.size(1), inner = a.size(1);
  if (rows == 0 || columns == 0 || inner == 0) return;
  const bool transposed = columns != 1;
  if (transposed) std::swap(a, b);
  const int64_t m = transposed ? columns : rows, n = transposed ? rows : columns;
  const int64_t first = transposed ? 1 : 0;
  if (!blas_takes(a, first, m) && !blas_takes(a, 1 - first, inner))
    copies.push_back(a.clone(at::MemoryFormat::Contiguous));
  if (!blas_takes(b, first, inner) && !blas_takes(b, 1 - first, n))
    copies.push_back(b.clone(at::MemoryFormat::Contiguous));
}

// ---- mkldnn/Matmul.cpp

bool onednn_multiplies_bf16() {
  static const bool supported = [] {
    const auto op = c10::Dispatcher::singleton().findSchema({"mkldnn::_is_mkldnn_bf16_supported", ""});
    if (!op) return false;
    torch::jit::Stack stack;
    op->callBoxed(&stack);
    return stack.front().toBool();
  }();
  return supported && at::globalContext().userEnabledMkldnn();
}

bool onednn_takes(const Tensor& t) {
  return t.is_contiguous() ||
         (t.stride(0) == t.size(1) * t.size(2) && t.stride(1) == 1 && t.stride(2) == t.size(1));
}

void copy_for_batches(const Tensor& a, const Tensor& b, Copies& copies) {
  constexpr int64_t kMin = 16 * 16 * 16;  // multiplications, for which oneDNN is asked
  const bool onednn = a.scalar_type() == at::kBFloat16 && b.scalar_type() == at::kBFloat16 &&
                      a.numel() * b.size(2) > kMin && onednn_multiplies_bf16();
  if (!onednn) return;
  for (const Tensor& t : {a, b}) {
    if (!onednn_takes(t)) copies.push_back(t.contiguous());
  }
}

}  // namespace

std::vector<Tensor> copies_for_products(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const std::string& name = op.operator_name().name;
  Copies copies;
  const size_t count = op.schema().arguments().size();
  const auto argument = [&](size_t i) {
    return (stack.end() - static_cast<std::ptrdiff_t>(count - i))->toTensor();
  };
  if (name == "aten::mm") copy_for_blas(argument(0), argument(1), copies);
  if (name == "aten::addmm") copy_for_blas(argument(1), argument(2), copies);
  if (name == "aten::bmm") copy_for_batches(argument(0), argument(1), copies);
  return copies;
}

}  // namespace dtk::planner
