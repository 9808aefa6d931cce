// place_segments() chooses by a model of the peak: what the sub-trees keep and work with, beside `base` bytes
// that no choice changes. What the model leaves out is found by planning its choice, and `base` is corrected
// by the difference until the model is right about its choice. Where sub-trees differ, one number for all of
// them may not do: at the end, choices that differ from the best one in one sub-tree or two are planned too.
#include <dtk/planner/explain.h>
#include <dtk/planner/placement.h>
#include <dtk/toolkit/placement_search.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dtk {
namespace {

using planner::SegmentChoices;
using Levels = std::vector<size_t>;  // by target: 0 keeps all, 1 is computed again

constexpr size_t kKept = 0, kRecomputed = 1;
constexpr int64_t kMostCorrections = 16;
constexpr size_t kMostRefinements = 48;  // plans

struct PlannedChoice {
  Levels levels;
  int64_t bytes = 0;  // of memory.budget
  int64_t flops = 0;  // computed again
};

// What counts against memory.budget, as Plan::bytes_in(Room::allocator).
int64_t bytes_of(const planner::Rehearsed& plan) {
  return policies::highest(plan.device).peak.bytes + planner::allocated_beside(plan.terms);
}

class Search {
 public:
  Search(const PlacedJob& job, c10::Device device, int64_t budget)
      : job_(job), device_(device), budget_(budget), limit_(budget) {}

  CheckpointPlacement run() {
    const PlannedChoice plain = plan_plain();
    if (plain.bytes > budget_ && has_gain()) {
      const PlannedChoice all = plan_all();
      base_ = std::min(plain.bytes - modelled(plain.levels), all.bytes - modelled(all.levels));
      // The last target runs backward first: what it would compute again is there either way.
      if (all.bytes > budget_) plan(without_last(all.levels));
      correct();
      // Nothing fits: as few bytes as there can be, but not at any price.
      limit_ = std::max(budget_, best().bytes);
      if (limit_ > budget_) correct();
      refine();
    }
    return placement();
  }

 private:
  // Nothing computed again, and watched: fills targets_ and chain_.
  PlannedChoice plan_plain() {
    const planner::Observed seen = planner::observe(device_, [&] { return job_.plan({}); });
    std::vector<std::string> paths;
    for (const planner::SegmentGain& segment : seen.segments) paths.push_back(segment.path);
    targets_ = job_.targets(paths);
    for (const planner::SegmentGain& segment : seen.segments) {
      if (std::find(targets_.begin(), targets_.end(), segment.path) == targets_.end()) continue;
      SegmentChoices choices{.levels = {{.kept_bytes = segment.saves}}};
      if (segment.gain > 0)
        choices.levels.push_back({.kept_bytes = segment.saves - segment.gain, .working_bytes = segment.gain});
      chain_.push_back(std::move(choices));
    }
    return note({Levels(chain_.size(), kKept), bytes_of(seen.plan), seen.plan.steady_step().recomputed});
  }

  bool has_gain() const {
    return std::any_of(chain_.begin(), chain_.end(),
                       [](const SegmentChoices& one) { return one.levels.size() > kRecomputed; });
  }

  // Each target that saves anything by it computed again; fills the FLOPs of chain_.
  PlannedChoice plan_all() {
    Levels levels;
    for (const SegmentChoices& one : chain_) levels.push_back(one.levels.size() - 1);
    planner::Rehearsed rehearsed;
    const PlannedChoice all = plan(levels, &rehearsed);
    most_flops_ = all.flops;
    for (size_t i = 0; i < chain_.size(); ++i) {
      if (levels[i] == kKept) continue;
      int64_t flops = 0;
      for (const auto& [path, again] : rehearsed.recomputed) {
        if (path == targets_[i] || path.starts_with(targets_[i] + ".")) flops += again;
      }
      // Some always: of two that cost no product, computing one again is less than both.
      chain_[i].levels[kRecomputed].flops = std::max<int64_t>(1, flops);
    }
    return all;
  }

  static Levels without_last(Levels levels) {
    for (size_t i = levels.size(); i > 0; --i) {
      if (std::exchange(levels[i - 1], kKept) == kRecomputed) break;
    }
    return levels;
  }

  PlannedChoice plan(const Levels& levels, planner::Rehearsed* rehearsed = nullptr) {
    const auto seen = planned_.find(levels);
    if (seen != planned_.end()) return seen->second;
    planner::Rehearsed memory = job_.plan(recomputed(levels));
    const PlannedChoice choice = note({levels, bytes_of(memory), memory.steady_step().recomputed});
    if (rehearsed != nullptr) *rehearsed = std::move(memory);
    return choice;
  }

  PlannedChoice note(PlannedChoice choice) { return planned_[choice.levels] = std::move(choice); }

  // What was planned already corrects, too: the model may choose what does not fit.
  void correct() {
    for (int64_t i = 0; i < kMostCorrections; ++i) {
      const auto chosen = planner::place_segments(chain_, limit_ - base_);
      if (!chosen) return;
      const int64_t base = plan(chosen->levels).bytes - chosen->peak_bytes;
      if (std::exchange(base_, base) == base) return;
    }
  }

  // From the best choice to a neighbour that fits and computes less again, until there is none.
  void refine() {
    const size_t most = planned_.size() + kMostRefinements;
    for (bool better = true; better;) {
      better = false;
      const PlannedChoice from = best();
      for (const Levels& levels : cheaper_neighbours(from.levels)) {
        if (planned_.size() >= most) return;
        const PlannedChoice tried = plan(levels);
        better = tried.bytes <= limit_ && tried.flops < from.flops;
        if (better) break;
      }
    }
  }

  // Without one that is computed again, or with another one in its place that costs less; the cheapest first.
  // Of sub-trees alike, the last is let off and the first taken: what an early one keeps is there all through
  // backward.
  std::vector<Levels> cheaper_neighbours(const Levels& levels) const {
    const auto flops = [&](size_t i) { return chain_[i].levels[kRecomputed].flops; };
    std::map<std::pair<int64_t, int64_t>, size_t> again, kept;  // by what one costs and keeps
    for (size_t i = 0; i < chain_.size(); ++i) {
      if (chain_[i].levels.size() <= kRecomputed) continue;
      const std::pair key(flops(i), chain_[i].levels[kRecomputed].working_bytes);
      if (levels[i] == kRecomputed) again[key] = i;
      if (levels[i] == kKept) kept.emplace(key, i);
    }
    std::vector<std::pair<int64_t, Levels>> found;  // with the FLOPs that are saved, negative
    for (const auto& [costs, off] : again) {
      Levels without = levels;
      without[off] = kKept;
      found.emplace_back(-flops(off), without);
      for (const auto& [fewer, on] : kept) {
        if (flops(on) >= flops(off)) continue;
        Levels other = without;
        other[on] = kRecomputed;
        found.emplace_back(flops(on) - flops(off), std::move(other));
      }
    }
    std::stable_sort(found.begin(), found.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<Levels> neighbours;
    for (auto& [saved, one] : found) neighbours.push_back(std::move(one));
    return neighbours;
  }

  // The model's peak of a choice, without base_.
  int64_t modelled(const Levels& levels) const {
    std::vector<SegmentChoices> one;
    for (size_t i = 0; i < chain_.size(); ++i) one.push_back({.levels = {chain_[i].levels[levels[i]]}});
    return planner::place_segments(one, std::numeric_limits<int64_t>::max())->peak_bytes;
  }

  std::vector<std::string> recomputed(const Levels& levels) const {
    std::vector<std::string> paths;
    for (size_t i = 0; i < levels.size(); ++i) {
      if (levels[i] == kRecomputed) paths.push_back(targets_[i]);
    }
    return paths;
  }

  // The fewest FLOPs of those that fit, or the fewest bytes if none does.
  const PlannedChoice& best() const {
    const auto better = [&](const auto& a, const auto& b) {
      const PlannedChoice &one = a.second, &other = b.second;
      const bool fits = one.bytes <= limit_, other_fits = other.bytes <= limit_;
      if (fits != other_fits) return fits;
      return fits ? std::pair(one.flops, one.bytes) < std::pair(other.flops, other.bytes)
                  : std::pair(one.bytes, one.flops) < std::pair(other.bytes, other.flops);
    };
    return std::min_element(planned_.begin(), planned_.end(), better)->second;
  }

  CheckpointPlacement placement() const {
    const PlannedChoice& best = this->best();
    return {.recomputed = recomputed(best.levels),
            .targets = static_cast<int64_t>(targets_.size()),
            .flops = best.flops,
            .most_flops = most_flops_,
            .planned_bytes = best.bytes,
            .budget_bytes = budget_,
            .plans = static_cast<int64_t>(planned_.size())};
  }

  const PlacedJob& job_;
  const c10::Device device_;
  const int64_t budget_;
  int64_t limit_ = 0;  // the budget, or what is least where nothing fits it
  std::vector<std::string> targets_;
  std::vector<SegmentChoices> chain_;  // of targets_
  int64_t base_ = 0;
  std::optional<int64_t> most_flops_;
  std::map<Levels, PlannedChoice> planned_;
};

}  // namespace

CheckpointPlacement search_placement(const PlacedJob& job, c10::Device device, int64_t budget_bytes) {
  return Search(job, device, budget_bytes).run();
}

}  // namespace dtk
