// What a program finds beside itself, wherever it is installed.
#pragma once
#include <string>

namespace dtk {

/// The file that --config means: `given`, or, where no file has that name, the shipped configuration of the
/// name. Throws ConfigError for a name that is neither.
std::string config_file(const std::string& given);

/// Registers the fused operators' kernels for CUDA from the library beside the program, after open_device();
/// "" or why not, as ops::open_cuda_kernels() says.
std::string open_cuda_kernels();

/// libdtk_nccl.so beside the program, which may not be there.
std::string nccl_library();

/// What dit-train --doctor prints of this process: the LibTorch that it runs with, and the machine.
std::string doctor();

}  // namespace dtk
