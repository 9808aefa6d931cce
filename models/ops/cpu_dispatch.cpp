#include <ATen/Version.h>

#include <map>

#include "ops/cpu_kernels.h"
#include "ops/types.h"

namespace dtk::ops {
namespace DEFAULT {
extern const CpuKernels kernels;
}
#ifdef DTK_X86_KERNELS
namespace AVX2 {
extern const CpuKernels kernels;
}
namespace AVX512 {
extern const CpuKernels kernels;
}
#endif

namespace {

std::map<std::string, const CpuKernels*> runnable() {
  std::map<std::string, const CpuKernels*> all{{"DEFAULT", &DEFAULT::kernels}};
#ifdef DTK_X86_KERNELS
  const bool avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  if (avx2) all.emplace("AVX2", &AVX2::kernels);
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  if (avx512) all.emplace("AVX512", &AVX512::kernels);
#endif
  return all;
}

const std::map<std::string, const CpuKernels*>& by_capability() {
  static const std::map<std::string, const CpuKernels*> all = runnable();
  return all;
}

template <class Which>
bool takes(const Types& types) {
  return with_types<Which>(types, [](auto, auto, auto) {});
}

}  // namespace

const CpuKernels& cpu_kernels() {
  static const CpuKernels& chosen = [&]() -> const CpuKernels& {
    const auto found = by_capability().find(at::get_cpu_capability());
    return found != by_capability().end() ? *found->second : DEFAULT::kernels;
  }();
  return chosen;
}

std::vector<std::string> cpu_capabilities() {
  std::vector<std::string> names;
  for (const auto& [name, kernels] : by_capability()) names.push_back(name);
  return names;
}

const CpuKernels& cpu_kernels(const std::string& capability) {
  return *by_capability().at(capability);
}

bool takes_norm_modulate(const Types& types) {
  return takes<RowsOfSamples>(types);
}
bool takes_gated_add(const Types& types) {
  return takes<RowsOfSamples>(types);
}
bool takes_bias_gelu(const Types& types) {
  return takes<ResultAsTokens>(types);
}
bool takes_rms_norm(const Types& types) {
  return takes<AnyTypes>(types);
}
bool takes_silu_mul(const Types& types) {
  return takes<OneType>(types);
}
bool takes_rotate(const Types& types) {
  return takes<ResultAsTokens>(types);
}

}  // namespace dtk::ops
