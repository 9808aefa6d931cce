// The world of a planned run: files that nobody keeps, a clock that stands still.
#pragma once
#include <dtk/planner/planned_group.h>
#include <dtk/planner/simulate.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>
#include <vector>

#include "toolkit/core/clock.h"
#include "toolkit/core/errors.h"
#include "toolkit/distributed/ranks.h"
#include "toolkit/io/file_system.h"
#include "toolkit/io/forgotten_file.h"
#include "toolkit/run/run.h"

namespace dtk {

/// Nothing exists and all that is written is forgotten.
class NoFiles final : public FileSystem {
 public:
  std::unique_ptr<WritableFile> create(const Path&) override { return std::make_unique<ForgottenFile>(); }
  std::unique_ptr<WritableFile> append(const Path&) override { return std::make_unique<ForgottenFile>(); }
  using FileSystem::read;
  std::string read(const Path& path, uint64_t) override {
    throw FileError(path.string() + ": a plan reads no files");
  }
  void read_into(const Path& path, uint64_t, void*, size_t) override { read(path); }
  bool exists(const Path&) override { return false; }
  bool is_folder(const Path&) override { return false; }
  uint64_t size(const Path& path) override { return read(path).size(); }
  std::vector<std::string> list(const Path&) override { return {}; }
  void create_directories(const Path&) override {}
  void rename(const Path&, const Path&) override {}
  void remove_all(const Path&) override {}
  std::unique_ptr<FileLock> try_lock(const Path&) override { return std::make_unique<FileLock>(); }
  void sync_directory(const Path&) override {}
  bool keeps_content() const override { return false; }
};

/// One of so many ranks, by default the leader, which has the largest part of what they share; the others say
/// what it says.
class PlannedRanks final : public Ranks {
 public:
  explicit PlannedRanks(int64_t ranks, int64_t rank = 0)
      : group_(planner::planned_group(static_cast<int>(rank), static_cast<int>(ranks))),
        ranks_(ranks),
        rank_(rank) {}
  int64_t rank() const override { return rank_; }
  int64_t size() const override { return ranks_; }
  std::string name() const override { return "rank " + std::to_string(rank_) + " of the plan"; }
  c10::intrusive_ptr<c10d::Backend> group() const override { return group_; }
  std::vector<std::vector<double>> all_say(const std::vector<double>& own, const char*) override {
    return std::vector<std::vector<double>>(static_cast<size_t>(ranks_), own);
  }
  void join(const at::Tensor&, const char*) override {}
  std::string leader_says(const std::string&, const std::string& text) override { return text; }
  void meet(const std::string&) override {}

 private:
  const c10::intrusive_ptr<c10d::Backend> group_;
  const int64_t ranks_, rank_;
};

class StandingClock final : public Clock {
  double seconds() override { return 0; }
  bool waits_for_threads() const override { return true; }
};

/// Ends the plan where the run has left all that it leaves, and knows the books after each step. The run must
/// log each step.
class PlanObserver final : public RunObserver {
 public:
  using End = std::function<void(const PlanObserver&, const RunResult&)>;
  explicit PlanObserver(End end) : end_(std::move(end)) {}
  void message(const std::string&) override {}
  void progress(const Progress&) override { after_steps_.emplace_back(); }
  void working(const std::string&, int64_t, int64_t) override {}
  void finished(const RunResult& result) override {
    end_(*this, result);
    ended_ = true;
  }
  bool wants_bare_errors() const override { return true; }
  bool ended() const { return ended_; }

  /// Whether the books after the last step and now are those after the first step: then more steps, and what
  /// is done between them, would show nothing new.
  bool returns_to_first() const {
    if (after_steps_.size() < 2) return false;
    const planner::LedgerSnapshot& first = after_steps_.front();
    return first.equal(after_steps_.back()) && first.equal(planner::LedgerSnapshot());
  }

  /// Whether the first `steps` steps ended with equal books.
  bool alike(int64_t steps) const {
    const auto count = std::min(after_steps_.size(), static_cast<size_t>(steps));
    return std::all_of(
        after_steps_.begin(), after_steps_.begin() + static_cast<std::ptrdiff_t>(count),
        [&](const planner::LedgerSnapshot& books) { return books.equal(after_steps_.front()); });
  }

 private:
  const End end_;
  std::vector<planner::LedgerSnapshot> after_steps_;
  bool ended_ = false;
};

}  // namespace dtk
