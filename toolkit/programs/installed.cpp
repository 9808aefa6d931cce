#include "toolkit/programs/installed.h"

#include <dtk/models/ops.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/core/suggestions.h"
#include "toolkit/core/text.h"
#include "toolkit/launch/doctor.h"
#include "toolkit/launch/shipped.h"

namespace dtk {
namespace {

namespace fs = std::filesystem;

fs::path this_program() {
  std::error_code ignored;
  return fs::read_symlink("/proc/self/exe", ignored);
}

fs::path beside_program(const char* name) {
  return this_program().parent_path() / name;
}

fs::path cuda_kernels() {
  return beside_program("libdtk_cuda_kernels.so");
}

/// By the file that the system has loaded, not by where one is looked for.
launch::TorchSearch loaded_torch() {
  std::ifstream maps("/proc/self/maps");
  launch::TorchSearch torch;
  for (std::string line; torch.root.empty() && std::getline(maps, line);) {
    if (line.ends_with("/libtorch_cpu.so"))
      torch.root = fs::path(line.substr(line.find('/'))).parent_path().parent_path();
  }
  torch.version = launch::torch_version_in(torch.root);
  return torch;
}

}  // namespace

std::string config_file(const std::string& given) {
  std::error_code ignored;
  const bool is_name = given.find('/') == std::string::npos && !given.ends_with(".toml");
  if (!is_name || (fs::exists(given, ignored) && !fs::is_directory(given, ignored))) return given;
  const fs::path folder = launch::configurations_of(this_program());
  const std::vector<std::string> names = launch::configuration_names(folder);
  if (std::find(names.begin(), names.end(), given) != names.end())
    return (folder / (given + ".toml")).string();
  const std::vector<std::string> near = near_names(given, names);
  throw ConfigError(
      fmt::format("--config {}: there is no such file, nor a shipped configuration of that name; {}", given,
                  near.empty() ? "shipped: " + (names.empty() ? "none" : listed(names, " and "))
                               : "did you mean " + listed(near, " or ") + "?"));
}

std::string open_cuda_kernels() {
  return ops::open_cuda_kernels(cuda_kernels());
}

std::string nccl_library() {
  return beside_program("libdtk_nccl.so");
}

std::string doctor() {
  std::error_code ignored;
  const std::string library = cuda_kernels(), nccl = nccl_library();
  return fmt::format(
      "{}CUDA kernels    {}\nNCCL            {}\n",
      launch::doctor_text(DTK_VERSION, loaded_torch(), DTK_TORCH_MINOR, launch::this_machine(),
                          launch::configurations_of(this_program())),
      fs::exists(library, ignored) ? library + ", not run on a GPU: policies.fusion.cuda = true takes them"
                                   : "none beside the program: policies.fusion.cuda has no effect on a GPU",
      fs::exists(nccl, ignored) ? nccl + ", not run on a GPU: for several ranks on GPUs"
                                : "none beside the program: several ranks train on the CPU only");
}

}  // namespace dtk
