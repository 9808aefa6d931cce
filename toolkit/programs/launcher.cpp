// In the place of each installed program: finds LibTorch and becomes the program of its own name, with
// LibTorch's folder first where the system looks for libraries. What that program starts, such as the plan's
// child, finds it likewise.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "toolkit/launch/doctor.h"
#include "toolkit/launch/shipped.h"
#include "toolkit/launch/torch_search.h"

namespace {

namespace fs = std::filesystem;
using namespace dtk::launch;

constexpr int kConfiguration = 2;  // dtk::ExitCode::configuration

int fail(const std::string& name, const std::string& message) {
  std::fprintf(stderr, "%s: %s", name.c_str(), message.c_str());
  return kConfiguration;
}

/// Beside an installation's launcher, or among the packages of the environment that a wheel was installed in.
fs::path installed_program(const fs::path& launcher, const std::string& name) {
  const fs::path prefix = launcher.parent_path().parent_path();
  std::error_code error;
  const fs::path beside = prefix / "libexec/dit-train" / name;
  if (fs::exists(beside, error)) return beside;
  for (fs::directory_iterator python(prefix / "lib", error), end; !error && python != end;
       python.increment(error)) {
    for (const char* packages : {"site-packages", "dist-packages"}) {
      const fs::path program = python->path() / packages / "dit_train/bin" / name;
      std::error_code ignored;
      if (fs::exists(program, ignored)) return program;
    }
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) try {
  const fs::path launcher = fs::read_symlink("/proc/self/exe");
  // A wheel has the launcher once, and scripts that say for which program they call it.
  constexpr const char* kAs = "DTK_LAUNCH_AS";
  const std::string as = process_environment(kAs), name = as.empty() ? launcher.filename().string() : as;
  unsetenv(kAs);
  if (name == "dit-launch") {
    return fail(name,
                "stands in the place of installed programs and starts the one of its own name; in a build "
                "folder the programs beside it are started themselves\n");
  }
  const fs::path program = installed_program(launcher, name);
  const TorchSearch torch = find_torch(launcher, DTK_TORCH_MINOR, process_environment);
  if (!program.empty() && argc == 2 && std::strcmp(argv[1], "--doctor") == 0 && name == "dit-train") {
    const std::string text =
        doctor_text(DTK_VERSION, torch, DTK_TORCH_MINOR, this_machine(), configurations_of(program));
    std::fputs(text.c_str(), stdout);
    return torch.root.empty() ? kConfiguration : 0;
  }
  if (program.empty()) {
    return fail(name, "the installation is incomplete: there is neither libexec/dit-train/" + name +
                          " nor dit_train/bin/" + name + " of a wheel for " + launcher.string() +
                          "; install it again\n");
  }
  if (torch.root.empty()) return fail(name, torch_advice(torch, DTK_TORCH_MINOR));
  const std::string others = process_environment("LD_LIBRARY_PATH");
  const std::string libraries = (torch.root / "lib").string() + (others.empty() ? "" : ":" + others);
  setenv("LD_LIBRARY_PATH", libraries.c_str(), 1);
  execv(program.c_str(), argv);
  return fail(name, program.string() + " cannot be started: " + std::strerror(errno) + "\n");
} catch (const std::exception& error) {
  return fail("dit-launch", std::string(error.what()) + "\n");
}
