// Ranks that are threads of a test.
#pragma once
#include <dtk/policies/collectives.h>

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "toolkit/distributed/ranks.h"

namespace dtk::test {

/// What they share.
class RankBoard {
 public:
  explicit RankBoard(int64_t ranks) : said_(static_cast<size_t>(ranks)) {}

  std::vector<std::vector<double>> say(int64_t rank, const std::vector<double>& own) {
    std::unique_lock lock(mutex_);
    said_[static_cast<size_t>(rank)] = own;
    const int64_t round = round_;
    if (++come_ == std::ssize(said_)) {
      heard_ = said_;
      come_ = 0;
      ++round_;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return round_ != round || is_left_; });
    if (round_ == round) throw policies::CollectiveError("a rank has left");
    return heard_;
  }
  /// Of a rank that fails: the others' waits end.
  void leave() {
    const std::lock_guard lock(mutex_);
    is_left_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::vector<double>> said_, heard_;
  int64_t come_ = 0, round_ = 0;
  bool is_left_ = false;
};

class ThreadRanks final : public Ranks {
 public:
  ThreadRanks(RankBoard& board, int64_t rank, int64_t size) : board_(board), rank_(rank), size_(size) {}
  int64_t rank() const override { return rank_; }
  int64_t size() const override { return size_; }
  std::string name() const override { return "rank " + std::to_string(rank_); }
  c10::intrusive_ptr<c10d::Backend> group() const override { return {}; }
  std::vector<std::vector<double>> all_say(const std::vector<double>& own, const char*) override {
    return board_.say(rank_, own);
  }
  void join(const at::Tensor& values, const char*) override {
    const at::Tensor own = values.view(at::kInt).flatten();
    std::vector<double> said;
    for (int64_t i = 0; i < own.numel(); ++i) said.push_back(own.const_data_ptr<int>()[i]);
    at::Tensor all = at::zeros_like(own);
    for (const std::vector<double>& one : board_.say(rank_, said))
      all.add_(at::tensor(one, at::kDouble).to(at::kInt));
    own.copy_(all);
  }
  std::string leader_says(const std::string&, const std::string& text) override { return text; }
  void meet(const std::string&) override { board_.say(rank_, {}); }

 private:
  RankBoard& board_;
  const int64_t rank_, size_;
};

/// Runs `work` as each of so many ranks; what each threw, "" for those that came to their end.
inline std::vector<std::string> as_ranks(int64_t size, const std::function<void(Ranks&)>& work) {
  RankBoard board(size);
  std::vector<std::string> errors(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      ThreadRanks ranks(board, rank, size);
      try {
        work(ranks);
      } catch (const std::exception& error) {
        errors[static_cast<size_t>(rank)] = error.what();
        board.leave();
      }
    });
  }
  for (std::thread& one : threads) one.join();
  return errors;
}

}  // namespace dtk::test
