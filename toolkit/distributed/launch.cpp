#include "toolkit/distributed/launch.h"

#include <charconv>
#include <limits>

#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"

namespace dtk {
namespace {

// The variables of one launcher.
struct Names {
  const char *rank, *ranks, *rank_here, *ranks_here;
};

class Variables {
 public:
  explicit Variables(const Environment& environment) : environment_(environment) {}

  bool has(const char* name) const { return environment_(name) != nullptr; }
  std::string text(const char* name, const std::string& otherwise = "") const {
    const char* const value = environment_(name);
    return value == nullptr ? otherwise : value;
  }
  int64_t number(const char* name, int64_t smallest, int64_t largest) const {
    const std::string value = text(name);
    int64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error == std::errc() && end == value.data() + value.size() && number >= smallest && number <= largest)
      return number;
    throw ConfigError(
        fmt::format("{} = \"{}\" is none of the numbers from {} to {}", name, value, smallest, largest));
  }
  int64_t number_or(const char* name, int64_t otherwise) const {
    return has(name) ? number(name, 0, std::numeric_limits<int32_t>::max()) : otherwise;
  }

 private:
  const Environment& environment_;
};

// Nothing where neither variable is set.
std::optional<Launch> launch_by(const Variables& variables, const Names& names) {
  const bool has_rank = variables.has(names.rank), has_ranks = variables.has(names.ranks);
  if (!has_rank && !has_ranks) return std::nullopt;
  if (!has_rank || !has_ranks) {
    throw ConfigError(
        fmt::format("{} is set and {} is not; a launcher sets both, such as torchrun --no-python "
                    "--nproc-per-node 2 dit-train ...; without ranks set neither",
                    has_rank ? names.rank : names.ranks, has_rank ? names.ranks : names.rank));
  }
  Launch launch;
  launch.ranks = variables.number(names.ranks, 1, kMaxRanks);
  launch.rank = variables.number(names.rank, 0, launch.ranks - 1);
  launch.rank_here = variables.number_or(names.rank_here, launch.rank);
  launch.ranks_here = variables.number_or(names.ranks_here, launch.ranks);
  return launch;
}

// Above those that systems give to others, and below those that they give to connections.
int64_t port_of_job(int64_t job) {
  constexpr int64_t kFirst = 20'000, kPorts = 12'000;
  return kFirst + job % kPorts;
}

}  // namespace

std::string first_host(const std::string& list) {
  const size_t end = list.find_first_of(",[");
  if (end == list.npos || list[end] == ',') return list.substr(0, end);
  const size_t close = list.find(']', end), number = list.find_first_of("-,]", end);
  if (close == list.npos) return list.substr(0, end);
  const size_t after = list.find(',', close);
  const size_t behind = after == list.npos ? list.npos : after - close - 1;
  return list.substr(0, end) + list.substr(end + 1, number - end - 1) + list.substr(close + 1, behind);
}

std::optional<Launch> launch_from(const Environment& environment) {
  const Variables variables(environment);
  constexpr Names torchrun{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
  constexpr Names mpirun{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                         "OMPI_COMM_WORLD_LOCAL_SIZE"};
  constexpr Names srun{"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"};
  std::optional<Launch> launch = launch_by(variables, torchrun);
  if (!launch) launch = launch_by(variables, mpirun);
  // SLURM_PROCID is also set in a batch script, which is no step.
  const bool is_step = !launch && variables.has("SLURM_STEP_NUM_TASKS");
  if (is_step) launch = launch_by(variables, srun);
  if (!launch || launch->ranks == 1) return std::nullopt;
  launch->address =
      variables.text("MASTER_ADDR", is_step ? first_host(variables.text("SLURM_STEP_NODELIST")) : "");
  if (launch->address.empty()) {
    throw ConfigError(
        fmt::format("rank {} of {}: MASTER_ADDR is not set, the host of rank 0; set it and MASTER_PORT, "
                    "with mpirun by -x MASTER_ADDR=HOST -x MASTER_PORT=29500",
                    launch->rank, launch->ranks));
  }
  constexpr int64_t kMaxPort = 65'535;
  if (variables.has("MASTER_PORT") || !is_step || !variables.has("SLURM_JOB_ID")) {
    if (!variables.has("MASTER_PORT")) {
      throw ConfigError(
          fmt::format("rank {} of {}: MASTER_PORT is not set, a free port of {}; set it, such as to 29500",
                      launch->rank, launch->ranks, launch->address));
    }
    launch->port = variables.number("MASTER_PORT", 1, kMaxPort);
  } else {
    launch->port = port_of_job(variables.number("SLURM_JOB_ID", 0, std::numeric_limits<int64_t>::max()));
  }
  launch->launcher_serves = variables.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  launch->attempt = variables.text("TORCHELASTIC_RESTART_COUNT", "0");
  return launch;
}

}  // namespace dtk
