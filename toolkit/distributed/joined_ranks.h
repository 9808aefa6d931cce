// Ranks that are processes: LibTorch's store, by which they find each other, and its groups, Gloo and NCCL.
#pragma once
#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "toolkit/config/config.h"
#include "toolkit/core/errors.h"
#include "toolkit/distributed/launch.h"
#include "toolkit/distributed/ranks.h"

namespace dtk {

/// Why a job ended, as the rank says that ended first.
struct LastWord {
  ExitCode code = ExitCode::failure;
  std::string text;  // "rank 1 on node07: the data ..."
};

class JoinedRanks : public Ranks {
 public:
  /// The device that this rank trains on, after open_device(). Until then it is the CPU; for a GPU, group()
  /// is one of NCCL from now on, which the library at `nccl` makes. Throws ConfigError where there is none.
  virtual void take_device(c10::Device device, const std::string& nccl) = 0;
  /// Leaves the reason for the others, if none has left one before, and lets the connections go, by which
  /// they notice. True if it is the first. Only part() may be called after it.
  virtual bool leave_word(const LastWord& word) = 0;
  /// The reason that a rank left, within half a second after its connections broke; nothing if it left none.
  /// Likewise.
  virtual std::optional<LastWord> last_word() = 0;
  /// Where last_word() found nothing: the ranks of which nothing was heard by then, "2" or "0, 2": what
  /// died or stands still, and who has not noticed yet. Empty where nothing is known.
  virtual std::string silent_ranks() const = 0;
  /// At the end of a process that did one of the two: whoever serves the store waits until the others have
  /// read the reason that it holds, for as long as a rank may be without a collective, options.timeout;
  /// without one a third of a second.
  virtual void part() = 0;
};

/// Is told once, after ten seconds, for whom a rank waits.
using SayWaiting = std::function<void(const std::string&)>;
/// Waits until all ranks have come. Throws ConfigError for two processes that say they are one rank and for a
/// network interface that there is not; Error, exit code 6, where rank 0 or another has not come after
/// options.timeout. Never destroyed: where a rank has failed, LibTorch's destructors would wait for it.
JoinedRanks* join_ranks(
    const Launch& launch, const DistributedOptions& options,
    const SayWaiting& say = [](const std::string&) {});

}  // namespace dtk
