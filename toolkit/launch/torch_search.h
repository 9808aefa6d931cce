// Finding the LibTorch that an installed program runs with. Built without LibTorch, for it is what is looked
// for.
#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace dtk::launch {

/// The value of an environment variable; "" where it is not set.
using Environment = std::function<std::string(const char* name)>;

/// Of the process, by getenv: no thread may change the environment meanwhile.
std::string process_environment(const char* name);

struct TorchSearch {
  std::filesystem::path root;       // holds lib/libtorch_cpu.so; empty: there is none that serves
  std::string version;              // of `root`, such as "2.11.0+cu130"
  std::vector<std::string> passed;  // a line for each place before `root`: which, and why it does not serve
};

/// The version that a LibTorch's folder says it has, as a wheel or an archive does; "" where there is none.
std::string torch_version_in(const std::filesystem::path& root);

/// The first LibTorch of version `minor` ("2.11") of: the folder DTK_TORCH, taken or none; the environment
/// that holds `program` where it came with a wheel, and the active one (VIRTUAL_ENV), each with the folders
/// that its .pth files and its base add; /opt/libtorch below `system` ("/" but in tests).
TorchSearch find_torch(const std::filesystem::path& program, const std::string& minor,
                       const Environment& environment, const std::filesystem::path& system = "/");

/// What to do where there is none, with the places looked at, a line each.
std::string torch_advice(const TorchSearch& search, const std::string& minor);

}  // namespace dtk::launch
