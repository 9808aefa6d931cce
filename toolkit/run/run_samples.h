// The samples that a run draws: on its way, and once it is trained.
#pragma once
#include <dtk/policies/memory_ledger.h>

#include <filesystem>
#include <optional>
#include <vector>

#include "toolkit/io/stored_tensor.h"
#include "toolkit/run/memory_meters.h"
#include "toolkit/run/record.h"
#include "toolkit/run/run.h"
#include "toolkit/run/run_ranks.h"
#include "toolkit/train/model_family.h"
#include "toolkit/train/trainer.h"

namespace dtk {

/// For the thread that trains; all ranks draw at the same steps. Of models of which something is drawn
/// (ModelFacts::drawn). Throws as Trainer::sample() and RunRecord.
class RunSamples {
 public:
  /// All must outlive this.
  RunSamples(const RunConfig& config, const ModelFacts& model, const RunData& data, const RunWorld& world,
             const RunRanks& ranks, const MemoryMeters& meters, Trainer& trainer)
      : config_(config),
        model_(model),
        data_(data),
        world_(world),
        ranks_(ranks),
        meters_(meters),
        trainer_(trainer) {}

  /// Between two steps. A stop while they are drawn leaves none; the loop of the training heeds it.
  void on_the_way(RunRecord& record);
  /// The training is complete and saved as `checkpoint`: that they do not fit, or a stop, is said in `result`
  /// and takes nothing of it away.
  void at_end(RunRecord& record, const std::filesystem::path& checkpoint, RunResult& result);
  /// What those at the end were refused.
  const std::optional<policies::RefusedAllocation>& refused() const { return refused_; }

 private:
  std::vector<NamedTensor> draw(RunRecord& record);
  std::filesystem::path keep(RunRecord& record, const std::vector<NamedTensor>& samples);

  const RunConfig& config_;
  const ModelFacts& model_;
  const RunData& data_;
  const RunWorld& world_;
  const RunRanks& ranks_;
  const MemoryMeters& meters_;
  Trainer& trainer_;
  std::optional<policies::RefusedAllocation> refused_;
};

}  // namespace dtk
