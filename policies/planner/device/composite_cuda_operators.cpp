// Written by tests/planner/device/cuda_operators.py --write.
#include "device/device_runtime.h"

namespace dtk::planner {

const std::vector<const char*>& composite_cuda_operators() {
  // clang-format off
  static const auto* const names = new std::vector<const char*>{
      "aten::_chunk_cat", "aten::_chunk_cat.out", "aten::_foreach_abs", "aten::_foreach_abs_",
      "aten::_foreach_acos", "aten::_foreach_acos_", "aten::_foreach_add.List", "aten::_foreach_add.Scalar",
      "aten::_foreach_add.ScalarList", "aten::_foreach_add.Tensor", "aten::_foreach_add_.List",
      "aten::_foreach_add_.Scalar", "aten::_foreach_add_.ScalarList", "aten::_foreach_add_.Tensor",
      "aten::_foreach_addcdiv.Scalar", "aten::_foreach_addcdiv.ScalarList", "aten::_foreach_addcdiv.Tensor",
      "aten::_foreach_addcdiv_.Scalar", "aten::_foreach_addcdiv_.ScalarList",
      "aten::_foreach_addcdiv_.Tensor", "aten::_foreach_addcmul.Scalar", "aten::_foreach_addcmul.ScalarList",
      "aten::_foreach_addcmul.Tensor", "aten::_foreach_addcmul_.Scalar", "aten::_foreach_addcmul_.ScalarList",
      "aten::_foreach_addcmul_.Tensor", "aten::_foreach_asin", "aten::_foreach_asin_", "aten::_foreach_atan",
      "aten::_foreach_atan_", "aten::_foreach_ceil", "aten::_foreach_ceil_", "aten::_foreach_clamp_max.List",
      "aten::_foreach_clamp_max.Scalar", "aten::_foreach_clamp_max.ScalarList",
      "aten::_foreach_clamp_max_.List", "aten::_foreach_clamp_max_.Scalar",
      "aten::_foreach_clamp_max_.ScalarList", "aten::_foreach_clamp_min.List",
      "aten::_foreach_clamp_min.Scalar", "aten::_foreach_clamp_min.ScalarList",
      "aten::_foreach_clamp_min_.List", "aten::_foreach_clamp_min_.Scalar",
      "aten::_foreach_clamp_min_.ScalarList", "aten::_foreach_clone", "aten::_foreach_copy_",
      "aten::_foreach_cos", "aten::_foreach_cos_", "aten::_foreach_cosh", "aten::_foreach_cosh_",
      "aten::_foreach_div.List", "aten::_foreach_div.Scalar", "aten::_foreach_div.ScalarList",
      "aten::_foreach_div.Tensor", "aten::_foreach_div_.List", "aten::_foreach_div_.Scalar",
      "aten::_foreach_div_.ScalarList", "aten::_foreach_div_.Tensor", "aten::_foreach_erf",
      "aten::_foreach_erf_", "aten::_foreach_erfc", "aten::_foreach_erfc_", "aten::_foreach_exp",
      "aten::_foreach_exp_", "aten::_foreach_expm1", "aten::_foreach_expm1_", "aten::_foreach_floor",
      "aten::_foreach_floor_", "aten::_foreach_frac", "aten::_foreach_frac_", "aten::_foreach_lerp.List",
      "aten::_foreach_lerp.Scalar", "aten::_foreach_lerp.ScalarList", "aten::_foreach_lerp_.List",
      "aten::_foreach_lerp_.Scalar", "aten::_foreach_lerp_.ScalarList", "aten::_foreach_lgamma",
      "aten::_foreach_lgamma_", "aten::_foreach_log", "aten::_foreach_log10", "aten::_foreach_log10_",
      "aten::_foreach_log1p", "aten::_foreach_log1p_", "aten::_foreach_log2", "aten::_foreach_log2_",
      "aten::_foreach_log_", "aten::_foreach_max", "aten::_foreach_maximum.List",
      "aten::_foreach_maximum.Scalar", "aten::_foreach_maximum.ScalarList", "aten::_foreach_maximum_.List",
      "aten::_foreach_maximum_.Scalar", "aten::_foreach_maximum_.ScalarList", "aten::_foreach_minimum.List",
      "aten::_foreach_minimum.Scalar", "aten::_foreach_minimum.ScalarList", "aten::_foreach_minimum_.List",
      "aten::_foreach_minimum_.Scalar", "aten::_foreach_minimum_.ScalarList", "aten::_foreach_mul.List",
      "aten::_foreach_mul.Scalar", "aten::_foreach_mul.ScalarList", "aten::_foreach_mul.Tensor",
      "aten::_foreach_mul_.List", "aten::_foreach_mul_.Scalar", "aten::_foreach_mul_.ScalarList",
      "aten::_foreach_mul_.Tensor", "aten::_foreach_neg", "aten::_foreach_neg_", "aten::_foreach_norm.Scalar",
      "aten::_foreach_pow.List", "aten::_foreach_pow.Scalar", "aten::_foreach_pow.ScalarAndTensor",
      "aten::_foreach_pow.ScalarList", "aten::_foreach_pow_.List", "aten::_foreach_pow_.Scalar",
      "aten::_foreach_pow_.ScalarList", "aten::_foreach_powsum.Scalar", "aten::_foreach_reciprocal",
      "aten::_foreach_reciprocal_", "aten::_foreach_round", "aten::_foreach_round_", "aten::_foreach_rsqrt",
      "aten::_foreach_rsqrt_", "aten::_foreach_sigmoid", "aten::_foreach_sigmoid_", "aten::_foreach_sign",
      "aten::_foreach_sign_", "aten::_foreach_sin", "aten::_foreach_sin_", "aten::_foreach_sinh",
      "aten::_foreach_sinh_", "aten::_foreach_sqrt", "aten::_foreach_sqrt_", "aten::_foreach_sub.List",
      "aten::_foreach_sub.Scalar", "aten::_foreach_sub.ScalarList", "aten::_foreach_sub_.List",
      "aten::_foreach_sub_.Scalar", "aten::_foreach_sub_.ScalarList", "aten::_foreach_tan",
      "aten::_foreach_tan_", "aten::_foreach_tanh", "aten::_foreach_tanh_", "aten::_foreach_trunc",
      "aten::_foreach_trunc_", "aten::_foreach_zero_", "aten::_fused_rms_norm", "aten::_grouped_mm",
      "aten::addr", "aten::addr.out", "aten::all.dims_out", "aten::any.dims_out",
      "aten::convolution_backward", "aten::linalg__powsum", "aten::mish_backward", "aten::native_group_norm",
      "aten::native_layer_norm", "aten::silu_backward", "aten::split_with_sizes_copy.out",
      "fsdp::chunk_cat_mixed_dtype"};
  // clang-format on
  return *names;
}

}  // namespace dtk::planner
