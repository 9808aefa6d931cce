// Which rank of a job a process is, as torchrun, mpirun, srun or a shell loop says in variables.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace dtk {

inline constexpr int64_t kMaxRanks = 1'000'000;

struct Launch {
  int64_t rank = 0, ranks = 1;
  int64_t rank_here = 0, ranks_here = 1;  // of those on this host
  std::string address;                    // of the host of rank 0, or of the launcher's own store
  int64_t port = 0;
  bool launcher_serves = false;  // the store at that address is the launcher's, which outlives the ranks
  std::string attempt = "0";     // how often the launcher has started these ranks again
};

/// The value of a variable; null where it is not set.
using Environment = std::function<const char*(const char* name)>;

/// Nothing where no launcher says anything, or there is one rank only. In this order: RANK and WORLD_SIZE
/// (torchrun, a shell loop), OMPI_COMM_WORLD_* (mpirun), SLURM_* of a step (srun); MASTER_ADDR and
/// MASTER_PORT say where rank 0 is, for srun by default the first host of the step and a port that follows
/// from the job's number. Throws ConfigError for variables that contradict each other or are missing.
std::optional<Launch> launch_from(const Environment& environment);

/// "node07" of "node[07-12,20],other3": the first host of SLURM's lists.
std::string first_host(const std::string& list);

}  // namespace dtk
