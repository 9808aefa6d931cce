// CPU kernels of the operators in dtk/models/ops.h, which are compiled once for each instruction set.
#pragma once
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <vector>

namespace dtk::ops {

/// Tokens of one sample that one partial sum takes, and rows of bias_gelu.
constexpr int64_t kRowsPerPartial = 64;
constexpr int64_t partials_of(int64_t rows) {
  return (rows + kRowsPerPartial - 1) / kRowsPerPartial;
}

struct Shape {
  int64_t samples, tokens, width;  // N, T, D
};

/// (N, D), whose rows are `stride` elements apart.
struct Rows {
  const void* data;
  int64_t stride;
};

/// (N, T, H, d), whose channels are dense, in `parts` parts of two halves that turn against each other.
struct Heads {
  int64_t samples, tokens, heads, width;
  int64_t of_sample, of_token, of_head;  // strides, elements
  int64_t parts;
};

/// Types of what is as large as the tokens, of what is a row for a sample, and of the result or branch.
struct Types {
  c10::ScalarType x, row, other;
};
/// Whether the kernels of this operator take them.
bool takes_norm_modulate(const Types& types);
bool takes_gated_add(const Types& types);
bool takes_bias_gelu(const Types& types);
bool takes_rms_norm(const Types& types);
bool takes_silu_mul(const Types& types);
bool takes_rotate(const Types& types);

/// Dense tensors; statistics and `partial` of the accumulating type: fp32, of fp64 tensors fp64.
struct CpuKernels {
  void (*norm_modulate)(const Shape&, const Types&, const void* x, Rows shift, Rows scale, double eps,
                        void* y, void* mean, void* rstd);
  void (*norm_modulate_backward)(const Shape&, const Types&, const void* dy, const void* x, const void* mean,
                                 const void* rstd, Rows scale, void* partial, void* dx, void* dshift,
                                 void* dscale);
  void (*gated_add)(const Shape&, const Types&, const void* x, Rows gate, const void* branch, void* y);
  void (*gated_add_backward)(const Shape&, const Types&, const void* dy, Rows gate, const void* branch,
                             void* partial, void* dgate, void* dbranch);
  // Rows of one sample; `row` is the bias.
  void (*bias_gelu)(const Shape&, const Types&, const void* x, const void* bias, void* y);
  void (*bias_gelu_backward)(const Shape&, const Types&, const void* dy, const void* x, const void* bias,
                             void* partial, void* dx, void* dbias);
  // Rows of one sample; `row` is the weight, whose gradient is not summed where partial is null.
  void (*rms_norm)(const Shape&, const Types&, const void* x, const void* weight, double eps, void* y,
                   void* rstd);
  void (*rms_norm_backward)(const Shape&, const Types&, const void* dy, const void* x, const void* rstd,
                            const void* weight, void* partial, void* dx, void* dweight);
  // Rows of one sample, all of one type.
  void (*silu_mul)(const Shape&, const Types&, const void* gate, const void* up, void* y);
  void (*silu_mul_backward)(const Shape&, const Types&, const void* dy, const void* gate, const void* up,
                            void* dgate, void* dup);
  // `row` are cosine and sine (T, d). Turns back where `back`, as gradients turn. y is dense.
  void (*rotate)(const Heads&, const Types&, const void* x, const void* cosine, const void* sine, bool back,
                 void* y);
};

/// Of what at::get_cpu_capability() names; of "DEFAULT" where they were not compiled for that.
const CpuKernels& cpu_kernels();
/// What this machine can run of what was compiled: "DEFAULT", "AVX2", "AVX512".
std::vector<std::string> cpu_capabilities();
/// Throws std::out_of_range for a name that is none of these.
const CpuKernels& cpu_kernels(const std::string& capability);

}  // namespace dtk::ops
