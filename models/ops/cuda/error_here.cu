// Whether the library has code for the GPU at hand. Not run on the CPU: it asks the driver.
#include <cuda_runtime.h>

namespace dtk::models::cuda {
namespace {

__global__ void __launch_bounds__(1) nothing() {}

}  // namespace
}  // namespace dtk::models::cuda

// Null if it has; else what CUDA says.
extern "C" __attribute__((visibility("default"))) const char* dtk_cuda_kernels_error_here() {
  cudaFuncAttributes attributes;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, dtk::models::cuda::nothing);
  // What stays would be taken for the next operator's, which asks the same runtime.
  static_cast<void>(cudaGetLastError());
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}
