// Which rank a process is, by the variables of each launcher.
#include "toolkit/distributed/launch.h"

#include <map>

#include "support/catch.h"
#include "toolkit/core/errors.h"
#include "toolkit/distributed/agreement.h"

using Catch::Matchers::Equals;
using dtk::first_host;
using dtk::Launch;
using dtk::launch_from;

namespace {

std::optional<Launch> launched(const std::map<std::string, std::string>& variables) {
  return launch_from([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

using Variables = std::map<std::string, std::string>;

Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

const Variables by_torchrun = {{"RANK", "5"},
                               {"WORLD_SIZE", "16"},
                               {"LOCAL_RANK", "1"},
                               {"LOCAL_WORLD_SIZE", "4"},
                               {"MASTER_ADDR", "node01"},
                               {"MASTER_PORT", "29400"}};
const Variables by_srun = {
    {"SLURM_PROCID", "9"},          {"SLURM_STEP_NUM_TASKS", "16"},        {"SLURM_LOCALID", "1"},
    {"SLURM_NTASKS_PER_NODE", "8"}, {"SLURM_STEP_NODELIST", "gpu[07-08]"}, {"SLURM_JOB_ID", "123456"}};

}  // namespace

TEST_CASE("launch: without a launcher, or with one rank, there are no others") {
  CHECK_FALSE(launched({}));
  CHECK_FALSE(launched({{"RANK", "0"}, {"WORLD_SIZE", "1"}}));
  // A batch script, which is no step.
  CHECK_FALSE(launched({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "16"}, {"SLURM_JOB_ID", "7"}}));
}

TEST_CASE("launch: torchrun's variables") {
  const auto launch = launched(
      with(by_torchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}, {"TORCHELASTIC_RESTART_COUNT", "2"}}));
  REQUIRE(launch);
  CHECK(launch->rank == 5);
  CHECK(launch->ranks == 16);
  CHECK(launch->rank_here == 1);
  CHECK(launch->ranks_here == 4);
  CHECK(launch->address == "node01");
  CHECK(launch->port == 29400);
  CHECK(launch->launcher_serves);
  CHECK(launch->attempt == "2");
}

TEST_CASE("launch: of a shell loop all ranks are on one host") {
  const auto launch =
      launched({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29500"}});
  REQUIRE(launch);
  CHECK(launch->rank_here == 1);
  CHECK(launch->ranks_here == 2);
  CHECK_FALSE(launch->launcher_serves);
  CHECK(launch->attempt == "0");
}

TEST_CASE("launch: mpirun's variables") {
  const auto launch = launched({{"OMPI_COMM_WORLD_RANK", "3"},
                                {"OMPI_COMM_WORLD_SIZE", "4"},
                                {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                {"MASTER_ADDR", "node01"},
                                {"MASTER_PORT", "29500"}});
  REQUIRE(launch);
  CHECK(launch->rank == 3);
  CHECK(launch->ranks_here == 2);
}

TEST_CASE("launch: srun's variables, whose first host serves unless MASTER_ADDR says otherwise") {
  const auto launch = launched(by_srun);
  REQUIRE(launch);
  CHECK(launch->rank == 9);
  CHECK(launch->ranks == 16);
  CHECK(launch->rank_here == 1);
  CHECK(launch->ranks_here == 8);
  CHECK(launch->address == "gpu07");
  CHECK(launch->port == 20'000 + 123'456 % 12'000);
  const auto other = launched(with(by_srun, {{"MASTER_ADDR", "head"}, {"MASTER_PORT", "5000"}}));
  REQUIRE(other);
  CHECK(other->address == "head");
  CHECK(other->port == 5000);
}

TEST_CASE("launch: the first host of SLURM's lists") {
  CHECK(first_host("node07") == "node07");
  CHECK(first_host("node07,other") == "node07");
  CHECK(first_host("node[07-12,20],other3") == "node07");
  CHECK(first_host("node[3,5]") == "node3");
  CHECK(first_host("rack[1-2]-node,other") == "rack1-node");
  CHECK(first_host("") == "");
}

TEST_CASE("launch: what is missing or no number is named") {
  const auto refuses = [](const Variables& variables, const std::string& message) {
    CHECK_THROWS_WITH(launched(variables), Equals(message));
  };
  refuses(with(by_torchrun, {{"RANK", "16"}}), "RANK = \"16\" is none of the numbers from 0 to 15");
  refuses(with(by_torchrun, {{"RANK", "one"}}), "RANK = \"one\" is none of the numbers from 0 to 15");
  refuses(with(by_torchrun, {{"WORLD_SIZE", "0"}}),
          "WORLD_SIZE = \"0\" is none of the numbers from 1 to 1000000");
  refuses(with(by_torchrun, {{"MASTER_PORT", "70000"}}),
          "MASTER_PORT = \"70000\" is none of the numbers from 1 to 65535");
  refuses({{"WORLD_SIZE", "2"}},
          "WORLD_SIZE is set and RANK is not; a launcher sets both, such as torchrun --no-python "
          "--nproc-per-node 2 "
          "dit-train ...; without ranks set neither");
  refuses({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "node01"}},
          "rank 0 of 2: MASTER_PORT is not set, a free port of node01; set it, such as to 29500");
}

TEST_CASE("backend: Gloo has no all-to-all of a GPU's tensors, NCCL none of a CPU's") {
  dtk::LoadedConfig loaded;
  const c10::Device gpu("cuda:0");
  for (const c10::Device device : {c10::Device(c10::kCPU), gpu}) dtk::check_backend(loaded, device);
  loaded.config.distributed.backend = dtk::Backend::nccl;
  dtk::check_backend(loaded, gpu);
  CHECK_THROWS_AS(dtk::check_backend(loaded, c10::kCPU), dtk::ConfigError);
  loaded.config.distributed.backend = dtk::Backend::gloo;
  dtk::check_backend(loaded, c10::kCPU);
  CHECK_THROWS_WITH(
      dtk::check_backend(loaded, gpu),
      Equals("distributed.backend = \"gloo\": Gloo exchanges tensors in host memory, and this rank "
             "trains on cuda:0; set distributed.backend = \"auto\", or use --device cpu"));
}
