// Where an installed program looks for LibTorch, on folders made here.
#include "toolkit/launch/torch_search.h"

#include <map>

#include "support/catch.h"
#include "support/files/temporary_folder.h"

namespace {

namespace fs = std::filesystem;
using dtk::launch::TorchSearch;

struct System {
  TorchSearch find(const std::map<std::string, std::string>& variables,
                   const fs::path& program = "/nowhere/bin/dit-train") {
    const auto environment = [&](const char* name) {
      const auto found = variables.find(name);
      return found == variables.end() ? "" : found->second;
    };
    return dtk::launch::find_torch(program, "2.11", environment, root / "");
  }

  /// As an archive has it, or as a wheel.
  fs::path archive(const fs::path& path, const std::string& version) {
    root.write(path / "lib/libtorch_cpu.so", "");
    return root.write(path / "build-version", version + "\n").parent_path();
  }
  fs::path wheel(const fs::path& packages, const std::string& version) {
    root.write(packages / "torch/lib/libtorch_cpu.so", "");
    return root
        .write(packages / "torch/version.py",
               "from typing import Optional\n\n__version__ = '" + version + "'\ndebug = False\n")
        .parent_path();
  }

  dtk::test::TemporaryFolder root;
};

const fs::path packages = "lib/python3.11/site-packages";

}  // namespace

TEST_CASE("LibTorch of DTK_TORCH is taken or none") {
  System system;
  const fs::path mine = system.archive("mine", "2.11.0+cpu"),
                 opt = system.archive("opt/libtorch", "2.11.1+cpu");
  TorchSearch found = system.find({{"DTK_TORCH", mine.string()}});
  CHECK(found.root == mine);
  CHECK(found.version == "2.11.0+cpu");
  const std::string wrong = (system.root / "nowhere").string();
  found = system.find({{"DTK_TORCH", wrong}});
  CHECK(found.root.empty());
  CHECK(found.passed == std::vector<std::string>{"DTK_TORCH: there is no lib/libtorch_cpu.so in " + wrong});
  CHECK(system.find({}).root == opt);
}

TEST_CASE("LibTorch of the active environment comes before /opt/libtorch, if its version fits") {
  System system;
  const fs::path opt = system.archive("opt/libtorch", "2.11.1+cpu"), active = system.root / "venv";
  TorchSearch found = system.find({{"VIRTUAL_ENV", active.string()}});
  CHECK(found.root == opt);
  CHECK(found.passed.back() == "the active environment: torch is not installed in " + active.string());
  const fs::path torch = system.wheel("venv" / packages, "2.11.0+cu130");
  found = system.find({{"VIRTUAL_ENV", active.string()}});
  CHECK(found.root == torch);
  CHECK(found.version == "2.11.0+cu130");
  for (const char* other : {"2.12.0", "2.1.1", "2.110.0", "12.11.0"}) {
    system.wheel("venv" / packages, other);
    found = system.find({{"VIRTUAL_ENV", active.string()}});
    CHECK(found.root == opt);
    CHECK(found.passed.back() ==
          "the active environment: LibTorch " + std::string(other) + " in " + torch.string());
  }
}

TEST_CASE("an environment is searched as its Python does: .pth files, and its base where that is shown") {
  System system;
  const fs::path active = system.root / "venv";
  const std::map<std::string, std::string> variables = {{"VIRTUAL_ENV", active.string()}};
  system.root.write("venv" / packages / "empty.txt", "");
  const fs::path listed = system.wheel("elsewhere", "2.11.0");
  system.root.write("venv" / packages / "a.pth",
                    "# comment\nimport os\n" + (system.root / "elsewhere").string() + "\n");
  CHECK(system.find(variables).root == listed);
  fs::remove_all(listed);
  const fs::path base = system.wheel("base" / packages, "2.11.0");
  const std::string home = "home = " + (system.root / "base/bin").string() + "\n";
  system.root.write("venv/pyvenv.cfg", home + "include-system-site-packages = false\n");
  CHECK(system.find(variables).root.empty());
  system.root.write("venv/pyvenv.cfg", home + "include-system-site-packages = true\n");
  CHECK(system.find(variables).root == base);
}

TEST_CASE("a wheel's program looks into its own environment first, active or not") {
  System system;
  const fs::path program = system.root.write("own/bin/dit-train", "");
  const fs::path active = system.wheel("venv" / packages, "2.11.0"),
                 own = system.wheel("own" / packages, "2.11.2");
  const std::map<std::string, std::string> variables = {{"VIRTUAL_ENV", (system.root / "venv").string()}};
  CHECK(system.find(variables, program).root == active);
  system.root.write("own" / packages / "dit_train/bin/dit-train", "");
  CHECK(system.find(variables, program).root == own);
  CHECK(system.find({}, program).root == own);
}

TEST_CASE("what to do without a LibTorch names all places and the version") {
  System system;
  const std::string text = dtk::launch::torch_advice(system.find({}), "2.11");
  CHECK(
      text ==
      "there is no LibTorch 2.11, which these programs were built for. Looked at:\n"
      "  DTK_TORCH is not set\n"
      "  no Python environment is active (VIRTUAL_ENV is not set)\n"
      "  /opt/libtorch: there is no lib/libtorch_cpu.so in " +
          (system.root / "opt/libtorch").string() +
          "\nInstall one in the active environment (pip install \"torch==2.11.*\"), or set DTK_TORCH to the "
          "folder that holds its lib/\n");
}
