// How the judge is trained and kept.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>

#include "judge_net.h"
#include "labelled_images.h"
#include "toolkit/io/file_system.h"

namespace dtk::judging {

/// Called after each epoch 1 .. epochs with its mean loss.
using EpochReport = std::function<void(int64_t epoch, int64_t epochs, double loss)>;

/// Trains on all of `source` with fixed settings and a fixed seed; the result differs by rounding only
/// between machines and thread counts.
JudgeNet train_judge(const std::shared_ptr<const DataSource>& source, const EpochReport& report);

struct TrainingFacts {
  double accuracy = 0;  // on the real test set, in [0, 1]
  double seconds = 0;   // of training, wall clock
};

/// Writes the weights by way of a temporary name and a rename, with `facts` in the metadata. Throws
/// FileError.
void save_judge(FileSystem& files, const std::filesystem::path& path, const JudgeNet& net,
                const TrainingFacts& facts);

/// Throws FileError for a file that does not hold the weights of this net.
JudgeNet load_judge(FileSystem& files, const std::filesystem::path& path);

}  // namespace dtk::judging
