#include "toolkit/launch/torch_search.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <system_error>

namespace dtk::launch {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLibrary = "lib/libtorch_cpu.so";

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

/// Of what a folder holds, the names that begin so, in order; none where it can not be read.
std::vector<fs::path> entries(const fs::path& folder, const std::string& beginning,
                              const std::string& ending = "") {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with(beginning) && name.ends_with(ending)) found.push_back(entry->path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::string after(const std::string& line, const std::string& beginning) {
  return line.starts_with(beginning) ? line.substr(beginning.size()) : "";
}

/// The folders of Python packages below lib/ of an environment or a system.
std::vector<fs::path> package_folders(const fs::path& prefix) {
  std::vector<fs::path> found;
  for (const fs::path& python : entries(prefix / "lib", "python3")) {
    for (const char* name : {"site-packages", "dist-packages"}) {
      if (is_there(python / name)) found.push_back(python / name);
    }
  }
  return found;
}

/// The base of an environment that shows what its system has.
fs::path base_of(const fs::path& prefix) {
  std::ifstream file(prefix / "pyvenv.cfg");
  fs::path home;
  bool shown = false;
  for (std::string line; std::getline(file, line);) {
    if (const std::string value = after(line, "home = "); !value.empty()) home = value;
    if (after(line, "include-system-site-packages = ") == "true") shown = true;
  }
  return shown ? home.parent_path() : fs::path();
}

/// All folders that the Python of an environment looks for packages in.
std::vector<fs::path> package_path(const fs::path& prefix) {
  std::vector<fs::path> found;
  for (const fs::path& folder : package_folders(prefix)) {
    found.push_back(folder);
    for (const fs::path& list : entries(folder, "", ".pth")) {
      std::ifstream file(list);
      for (std::string line; std::getline(file, line);) {
        if (!line.empty() && line[0] != '#' && !line.starts_with("import")) found.push_back(folder / line);
      }
    }
  }
  if (const fs::path base = base_of(prefix); !base.empty()) {
    for (const fs::path& place : {base, base / "local"}) {
      for (const fs::path& folder : package_folders(place)) found.push_back(folder);
    }
  }
  return found;
}

class Search {
 public:
  explicit Search(const std::string& minor) : minor_(minor) {}

  bool done() const { return !result_.root.empty(); }
  TorchSearch result() && { return std::move(result_); }
  void pass(const std::string& line) {
    if (!done()) result_.passed.push_back(line);
  }

  void look(const std::string& place, const fs::path& root) {
    if (done()) return;
    if (!is_there(root / kLibrary)) return pass(place + ": there is no " + kLibrary + " in " + root.string());
    const std::string version = torch_version_in(root);
    if (version.starts_with(minor_ + ".")) {
      result_.root = root;
      result_.version = version;
    } else {
      pass(place + ": LibTorch " + (version.empty() ? "of an unknown version" : version) + " in " +
           root.string());
    }
  }

  void look_in_environment(const std::string& place, const fs::path& prefix) {
    if (done()) return;
    bool seen = false;
    for (const fs::path& folder : package_path(prefix)) {
      if (!is_there(folder / "torch" / kLibrary)) continue;
      seen = true;
      look(place, folder / "torch");
    }
    if (!seen) pass(place + ": torch is not installed in " + prefix.string());
  }

 private:
  const std::string minor_;
  TorchSearch result_;
};

}  // namespace

std::string process_environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string torch_version_in(const fs::path& root) {
  std::ifstream archive(root / "build-version");
  if (std::string line; std::getline(archive, line)) return line;
  std::ifstream wheel(root / "version.py");
  for (std::string line; std::getline(wheel, line);) {
    const std::string value = after(line, "__version__ = '");
    if (!value.empty()) return value.substr(0, value.find('\''));
  }
  return "";
}

TorchSearch find_torch(const fs::path& program, const std::string& minor, const Environment& environment,
                       const fs::path& system) {
  Search search(minor);
  if (const std::string given = environment("DTK_TORCH"); !given.empty()) {
    search.look("DTK_TORCH", given);
    return std::move(search).result();
  }
  search.pass("DTK_TORCH is not set");
  const fs::path own = program.parent_path().parent_path();
  const auto folders = package_folders(own);
  if (std::any_of(folders.begin(), folders.end(),
                  [](const fs::path& one) { return is_there(one / "dit_train"); })) {
    search.look_in_environment("the environment of this program", own);
  }
  if (const std::string active = environment("VIRTUAL_ENV"); active.empty()) {
    search.pass("no Python environment is active (VIRTUAL_ENV is not set)");
  } else if (active != own) {
    search.look_in_environment("the active environment", active);
  }
  search.look("/opt/libtorch", system / "opt/libtorch");
  return std::move(search).result();
}

std::string torch_advice(const TorchSearch& search, const std::string& minor) {
  std::string text = "there is no LibTorch " + minor + ", which these programs were built for. Looked at:\n";
  for (const std::string& line : search.passed) text += "  " + line + "\n";
  return text + "Install one in the active environment (pip install \"torch==" + minor +
         ".*\"), or set DTK_TORCH to the folder that holds its lib/\n";
}

}  // namespace dtk::launch
