// What this machine has, and what can not be done for want of the rest. Built without LibTorch.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "toolkit/launch/torch_search.h"

namespace dtk::launch {

struct CudaDevice {
  std::string name;
  int64_t bytes = 0;         // of memory
  int major = 0, minor = 0;  // compute capability
};

struct Machine {
  int driver = 0;  // of CUDA, 13000 for 13.0; 0: none that answers
  std::vector<CudaDevice> devices;
  unsigned threads = 0;                   // that this process may run at once
  std::vector<std::string> instructions;  // of those that matter here, as /proc/cpuinfo names them
  int64_t bytes = 0, available = 0;       // of memory; 0: unknown
};

/// Asks the CUDA driver, where there is one, and reads /proc.
Machine this_machine();

/// Lines of "name  value", and for each missing thing what can not be done without it. `configurations`:
/// the folder of shipped ones. Ends with a line that says whether training can start.
std::string doctor_text(const std::string& version, const TorchSearch& torch, const std::string& minor,
                        const Machine& machine, const std::filesystem::path& configurations);

}  // namespace dtk::launch
