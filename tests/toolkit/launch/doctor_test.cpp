// What dit-train --doctor says of machines made up here.
#include "toolkit/launch/doctor.h"

#include "support/catch.h"
#include "support/files/temporary_folder.h"
#include "toolkit/launch/shipped.h"

using dtk::launch::Machine;
using dtk::launch::TorchSearch;

namespace {

const TorchSearch no_torch = {.root = {}, .version = "", .passed = {"DTK_TORCH is not set"}};

}  // namespace

TEST_CASE("doctor: a machine without anything says what can not be done for want of each") {
  Machine machine;
  machine.threads = 2;
  CHECK(dtk::launch::doctor_text("0.1.0", no_torch, "2.11", machine, {}) ==
        R"(dit-train       0.1.0, built for LibTorch 2.11
LibTorch        none of version 2.11: nothing can be trained, planned or sampled
                DTK_TORCH is not set
CUDA driver     none that answers: no training and no calibration on a GPU; plans for a GPU work
processor       2 threads; no avx2
                without avx2 LibTorch's kernels for the CPU take several times as long
                no bf16 instructions: bf16 on the CPU saves bytes and costs time
memory          unknown: plans for the CPU are not compared with it
configurations  none are shipped beside this program: --config needs a file
not ready: there is no LibTorch 2.11, which these programs were built for. Looked at:
  DTK_TORCH is not set
Install one in the active environment (pip install "torch==2.11.*"), or set DTK_TORCH to the folder that holds its lib/
)");
}

TEST_CASE("doctor: a machine with a GPU, and the shipped configurations") {
  const dtk::test::TemporaryFolder folder;
  for (const char* name : {"two.toml", "base.toml", "notes.txt"}) folder.write(name, "");
  const Machine machine = {
      .driver = 13010,
      .devices = {{"Some GPU", int64_t{80} << 30, 9, 0}, {"Other GPU", int64_t{3} << 29, 12, 1}},
      .threads = 16,
      .instructions = {"avx2", "amx_bf16"},
      .bytes = int64_t{128} << 30,
      .available = int64_t{96} << 30};
  const std::string root = (folder / "").string();
  CHECK(dtk::launch::doctor_text("0.1.0", {.root = "/t", .version = "2.11.0+cu130", .passed = {}}, "2.11",
                                 machine, root) == R"(dit-train       0.1.0, built for LibTorch 2.11
LibTorch        2.11.0+cu130 in /t
  for CUDA      no libtorch_cuda.so: no training on a GPU; plans for a GPU work
CUDA driver     for CUDA 13.1
  cuda:0        Some GPU, 80.0 GiB, compute capability 9.0
  cuda:1        Other GPU, 1.5 GiB, compute capability 12.1
processor       16 threads; avx2 amx_bf16
memory          128.0 GiB, 96.0 GiB available
configurations  )" + root + R"(
                --config base
                --config two
ready: dit-train can start
)");
}

TEST_CASE("doctor: a driver that is older than LibTorch's CUDA") {
  Machine machine;
  machine.driver = 12080;
  machine.devices = {{"Some GPU", int64_t{80} << 30, 9, 0}};
  const auto said = [&](const std::string& version) {
    return dtk::launch::doctor_text("0.1.0", {.root = "/t", .version = version, .passed = {}}, "2.15",
                                    machine, {});
  };
  const std::string older = "older than the CUDA 13 of this LibTorch: no training on a GPU\n";
  CHECK(said("2.15.0+cu132").find("CUDA driver     for CUDA 12.8\n                " + older) !=
        std::string::npos);
  for (const char* version : {"2.15.0+cu126", "2.15.0+cpu", "2.15.0"})
    CHECK(said(version).find(older) == std::string::npos);
}

TEST_CASE("doctor: this machine has threads and memory") {
  const Machine machine = dtk::launch::this_machine();
  CHECK(machine.threads >= 1);
  CHECK(machine.bytes > int64_t{1} << 28);
  CHECK(machine.available > 0);
  CHECK(machine.available < machine.bytes);
}

TEST_CASE("shipped configurations lie beside a build folder, a wheel's programs and an installation's") {
  const dtk::test::TemporaryFolder folder;
  const auto found = [&](const std::string& program) {
    return dtk::launch::configurations_of(folder / program).lexically_relative(folder / "");
  };
  CHECK(dtk::launch::configurations_of(folder / "none/bin/dit-train").empty());
  for (const char* place : {"tree/configs", "site/dit_train/configs", "usr/share/dit-train/configs"}) {
    folder.write(std::string(place) + "/base.toml", "");
  }
  for (const char* place : {"tree/build/release", "site/dit_train/bin", "usr/libexec/dit-train", "usr/bin"})
    std::filesystem::create_directories(folder / place);
  CHECK(found("tree/build/release/dit-train") == "tree/configs");
  CHECK(found("site/dit_train/bin/dit-train") == "site/dit_train/configs");
  CHECK(found("usr/libexec/dit-train/dit-train") == "usr/share/dit-train/configs");
  CHECK(found("usr/bin/dit-train") == "usr/share/dit-train/configs");
}
