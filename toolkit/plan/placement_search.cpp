// place_segments() chooses by a model of the peak: what the modules keep and work with, beside `base` bytes
// that no choice changes. What the model leaves out is found by planning its choice, and `base` is corrected
// by the difference until the model is right about its choice. One number for all choices may not do: at the
// end, choices that the model takes to be a little too large are planned too.
#include "toolkit/plan/placement_search.h"

#include <dtk/planner/explain.h>
#include <dtk/planner/placement.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "toolkit/core/errors.h"

namespace dtk {
namespace {

using planner::SegmentChoices;
using planner::SegmentLevel;
// By target: kAllKept, kRecomputed, or beyond that 1 + kRecomputed + the index of PlacedJob::keeps.
using Levels = std::vector<size_t>;

constexpr size_t kAllKept = 0, kRecomputed = 1, kFirstNamed = 2;
constexpr int64_t kMaxCorrections = 16;
constexpr size_t kMaxRefinements = 48;  // plans
constexpr size_t kFewChoices = 4096;
constexpr int64_t kFewBeyond = 4;

struct PlannedChoice {
  Levels levels;
  int64_t bytes = 0;  // of memory.budget
  int64_t flops = 0;  // recomputed
};

// A module that may be recomputed, by level.
struct Target {
  std::string path;
  std::map<size_t, SegmentLevel> levels;
  std::vector<size_t> choices = {};  // of `levels`

  bool has_gain() const { return levels.size() > 1; }
};

// What counts against memory.budget, as Plan::bytes_in(Capacity::allocator).
int64_t bytes_of(const planner::SimulationResult& plan) {
  return MemoryNeed{policies::highest(plan.device), planner::allocated_beside(plan.terms)}.bytes();
}

bool is_within(const std::string& path, const std::string& module) {
  return path == module || path.starts_with(module + ".");
}

// FLOPs that a steady step recomputes of a module. Some always: of two that cost no product, to
// recompute one is less than both.
int64_t flops_of(const planner::SimulationResult& plan, const std::string& module) {
  int64_t flops = 0;
  for (const auto& [path, again] : plan.recomputed) {
    if (is_within(path, module)) flops += again;
  }
  return std::max<int64_t>(1, flops);
}

int64_t recomputed_held_by(const planner::Observed& seen, const std::string& module) {
  int64_t most = 0;
  for (const auto& [path, bytes] : seen.recomputed_held_by) {
    if (is_within(path, module)) most = std::max(most, bytes);
  }
  return most;
}

int64_t saved_by(const planner::Observed& seen, const std::string& path) {
  const auto found = std::find_if(seen.segments.begin(), seen.segments.end(),
                                  [&](const planner::SegmentGain& one) { return one.path == path; });
  return found != seen.segments.end() ? found->saves : 0;
}

// Those to choose from, without what another level is at least as good as in all.
std::vector<size_t> worth_choosing(const std::map<size_t, SegmentLevel>& levels) {
  const auto is_worse = [&](size_t level, const SegmentLevel& a) {
    return std::any_of(levels.begin(), levels.end(), [&](const auto& other) {
      const auto& [other_level, b] = other;
      if (b.kept_bytes > a.kept_bytes || b.working_bytes > a.working_bytes || b.flops > a.flops) return false;
      const bool alike =
          b.kept_bytes == a.kept_bytes && b.working_bytes == a.working_bytes && b.flops == a.flops;
      return !alike || other_level < level;
    });
  };
  std::vector<size_t> found;
  for (const auto& [level, one] : levels) {
    if (!is_worse(level, one)) found.push_back(level);
  }
  return found;
}

class Search {
 public:
  Search(const PlacedJob& job, c10::Device device, int64_t budget)
      : job_(job), device_(device), budget_(budget), limit_(budget) {}

  CheckpointPlacement run() {
    const PlannedChoice plain = plan_plain();
    const bool has_gain =
        std::any_of(targets_.begin(), targets_.end(), [](auto& one) { return one.has_gain(); });
    if (plain.bytes > budget_ && has_gain) {
      const PlannedChoice all = plan_all();
      base_ = all.bytes - modelled(all.levels);
      correct_levels();
      // The last target runs backward first: what it would recompute is there either way.
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
  // Nothing recomputed, and watched: fills targets_.
  PlannedChoice plan_plain() {
    const planner::Observed seen = planner::observe(device_, [&] { return job_.plan({}, {}); });
    std::vector<std::string> paths;
    for (const planner::SegmentGain& segment : seen.segments) paths.push_back(segment.path);
    const std::vector<std::string> among = job_.targets(paths);
    number_of_targets_ = static_cast<int64_t>(among.size());
    for (const planner::SegmentGain& segment : seen.segments) {
      if (std::find(among.begin(), among.end(), segment.path) == among.end()) continue;
      Target target{segment.path, {{kAllKept, {.kept_bytes = segment.saves}}}};
      if (segment.gain > 0) {
        target.levels[kRecomputed] = {.kept_bytes = segment.saves - segment.gain};
      }
      targets_.push_back(std::move(target));
    }
    return note({Levels(targets_.size(), kAllKept), bytes_of(seen.plan), seen.plan.steady_step().recomputed});
  }

  // Each target that saves anything by it recomputed; fills the FLOPs of its level, and adds levels that
  // keep some results.
  PlannedChoice plan_all() {
    const Levels levels = all_at(kRecomputed);
    planner::Observed seen;
    const PlannedChoice all = plan(levels, &seen);
    max_flops_ = all.flops;
    for (Target& target : targets_) {
      if (!target.has_gain()) continue;
      SegmentLevel& level = target.levels[kRecomputed];
      level.working_bytes = recomputed_held_by(seen, target.path);
      level.flops = flops_of(seen.plan, target.path);
    }
    for (size_t i = 0; i < job_.keeps.size(); ++i) add_named(kFirstNamed + i, seen);
    return all;
  }

  // What a level works with beside what it recomputes, such as temporaries: by how much its plan for all
  // targets exceeds the model more than that with nothing but inputs kept.
  void correct_levels() {
    for (size_t level = kAllKept; level < kFirstNamed + job_.keeps.size(); ++level) {
      const auto uniform = planned_.find(all_at(level));
      if (level == kRecomputed || uniform == planned_.end()) continue;
      const int64_t more = uniform->second.bytes - modelled(uniform->first) - base_;
      for (Target& target : targets_) {
        if (!target.has_gain()) continue;
        int64_t& working = target.levels.at(level).working_bytes;
        working = std::max<int64_t>(0, working + more);
      }
    }
    for (Target& target : targets_) target.choices = worth_choosing(target.levels);
  }

  // Bytes are those that a module keeps more than without results.
  void add_named(size_t level, const planner::Observed& recomputed) {
    planner::Observed seen;
    try {
      plan(all_at(level), &seen);
    } catch (const ConfigError&) {
      return;  // no target has such results
    }
    for (Target& target : targets_) {
      if (!target.has_gain()) continue;
      const int64_t more = saved_by(seen, target.path) - saved_by(recomputed, target.path);
      target.levels[level] = {
          .kept_bytes = target.levels[kRecomputed].kept_bytes + std::max<int64_t>(0, more),
          .working_bytes = recomputed_held_by(seen, target.path),
          .flops = flops_of(seen.plan, target.path)};
    }
  }

  Levels all_at(size_t level) const {
    Levels levels;
    for (const Target& target : targets_) levels.push_back(target.has_gain() ? level : kAllKept);
    return levels;
  }

  static Levels without_last(Levels levels) {
    for (size_t i = levels.size(); i > 0; --i) {
      if (std::exchange(levels[i - 1], kAllKept) != kAllKept) break;
    }
    return levels;
  }

  // `seen`: the plan is watched.
  PlannedChoice plan(const Levels& levels, planner::Observed* seen = nullptr) {
    const auto before = planned_.find(levels);
    if (before != planned_.end() && seen == nullptr) return before->second;
    const auto make = [&] { return job_.plan(recomputed(levels), kept(levels)); };
    if (seen == nullptr) return note(levels, make());
    *seen = planner::observe(device_, make);
    return note(levels, seen->plan);
  }

  PlannedChoice note(const Levels& levels, const planner::SimulationResult& plan) {
    return note({levels, bytes_of(plan), plan.steady_step().recomputed});
  }
  PlannedChoice note(PlannedChoice choice) { return planned_[choice.levels] = std::move(choice); }

  // What was planned already corrects, too: the model may choose what does not fit.
  void correct() {
    for (int64_t i = 0; i < kMaxCorrections; ++i) {
      const auto chosen = planner::place_segments(chain(), limit_ - base_);
      if (!chosen) return;
      const int64_t base = plan(levels_of(*chosen)).bytes - chosen->peak_bytes;
      if (std::exchange(base_, base) == base) return;
    }
  }

  // What recomputes less than the best choice does not fit by the model. That need not be so: what
  // exceeds the limit least by the model is planned too, as far as the model was seen to exceed a plan, and a
  // few beyond. Of few choices all are looked at, else those that are the best one but for a module or two.
  void refine() {
    const size_t most = planned_.size() + kMaxRefinements;
    for (bool better = true; better;) {
      better = false;
      const PlannedChoice from = best();
      int64_t beyond = 0;
      for (const auto& [peak, levels] :
           by_peak(few_choices() ? cheaper_choices(from.flops) : cheaper_neighbours(from.levels))) {
        if (planned_.count(levels) > 0) continue;
        if (peak + base_ > limit_ + max_overestimated() && ++beyond > kFewBeyond) break;
        if (planned_.size() >= most) return;
        const PlannedChoice tried = plan(levels);
        better = tried.bytes <= limit_ && tried.flops < from.flops;
        if (better) break;
      }
    }
  }

  int64_t max_overestimated() const {
    int64_t most = 0;
    for (const auto& [levels, choice] : planned_)
      most = std::max(most, modelled(levels) + base_ - choice.bytes);
    return most;
  }

  bool few_choices() const {
    size_t choices = 1;
    for (const Target& target : targets_) {
      choices *= std::max<size_t>(1, target.choices.size());
      if (choices > kFewChoices) return false;
    }
    return true;
  }

  std::vector<Levels> cheaper_choices(int64_t flops) const {
    std::vector<std::pair<int64_t, Levels>> partial = {{0, {}}};
    for (const Target& target : targets_) {
      std::vector<std::pair<int64_t, Levels>> longer;
      for (const auto& [sum, levels] : partial) {
        for (const size_t level : target.choices) {
          const int64_t more = sum + target.levels.at(level).flops;
          if (more >= flops) continue;
          longer.emplace_back(more, levels);
          longer.back().second.push_back(level);
        }
      }
      partial = std::move(longer);
    }
    std::vector<Levels> found;
    for (auto& [sum, levels] : partial) found.push_back(std::move(levels));
    return found;
  }

  // With the model's peaks, without base_.
  std::vector<std::pair<int64_t, Levels>> by_peak(const std::vector<Levels>& choices) const {
    std::vector<std::pair<int64_t, Levels>> found;
    for (const Levels& levels : choices) found.emplace_back(modelled(levels), levels);
    std::sort(found.begin(), found.end());
    return found;
  }

  // One module at another level, as the others change it.
  struct Move {
    size_t target = 0, level = 0;
    int64_t flops = 0;  // more
  };

  // Those of `levels` that are unlike. Of modules alike the last one recomputes less, or the first one
  // more: what an early one keeps is there all through backward.
  std::vector<Move> moves(const Levels& levels) const {
    std::map<std::array<int64_t, 4>, Move> unlike;  // by what one costs and keeps, before and after
    for (size_t i = 0; i < targets_.size(); ++i) {
      const SegmentLevel& now = targets_[i].levels.at(levels[i]);
      for (const size_t level : targets_[i].choices) {
        const SegmentLevel& other = targets_[i].levels.at(level);
        if (other.flops == now.flops) continue;
        const std::array key = {now.flops, now.kept_bytes, other.flops, other.kept_bytes};
        const Move move{i, level, other.flops - now.flops};
        if (move.flops < 0) unlike.insert_or_assign(key, move);
        if (move.flops > 0) unlike.emplace(key, move);
      }
    }
    std::vector<Move> found;
    for (const auto& [key, move] : unlike) found.push_back(move);
    return found;
  }

  // One move or two that recompute less together.
  std::vector<Levels> cheaper_neighbours(const Levels& levels) const {
    std::vector<Levels> found;
    const std::vector<Move> moves = this->moves(levels);
    for (const Move& less : moves) {
      if (less.flops >= 0) continue;
      Levels one = levels;
      one[less.target] = less.level;
      found.push_back(one);
      for (const Move& more : moves) {
        if (more.flops <= 0 || more.target == less.target || less.flops + more.flops >= 0) continue;
        Levels two = one;
        two[more.target] = more.level;
        found.push_back(std::move(two));
      }
    }
    return found;
  }

  std::vector<SegmentChoices> chain() const {
    std::vector<SegmentChoices> chain;
    for (const Target& target : targets_) {
      SegmentChoices choices;
      for (const size_t level : target.choices) choices.levels.push_back(target.levels.at(level));
      chain.push_back(std::move(choices));
    }
    return chain;
  }
  Levels levels_of(const planner::Placement& placement) const {
    Levels levels;
    for (size_t i = 0; i < targets_.size(); ++i) levels.push_back(targets_[i].choices[placement.levels[i]]);
    return levels;
  }

  // The model's peak of a choice, without base_.
  int64_t modelled(const Levels& levels) const {
    std::vector<SegmentChoices> one;
    for (size_t i = 0; i < targets_.size(); ++i)
      one.push_back({.levels = {targets_[i].levels.at(levels[i])}});
    return planner::place_segments(one, std::numeric_limits<int64_t>::max())->peak_bytes;
  }

  std::vector<std::string> recomputed(const Levels& levels) const {
    std::vector<std::string> paths;
    for (size_t i = 0; i < levels.size(); ++i) {
      if (levels[i] != kAllKept) paths.push_back(targets_[i].path);
    }
    return paths;
  }

  ResultsByModule kept(const Levels& levels) const {
    ResultsByModule keeps;
    for (size_t i = 0; i < levels.size(); ++i) {
      if (levels[i] >= kFirstNamed) keeps[targets_[i].path] = job_.keeps[levels[i] - kFirstNamed];
    }
    return keeps;
  }

  // The fewest FLOPs of those that fit, or the fewest bytes if none does.
  const PlannedChoice& best() const {
    const auto rank = [&](const PlannedChoice& one) {
      return one.bytes <= limit_ ? std::tuple(0, one.flops, one.bytes) : std::tuple(1, one.bytes, one.flops);
    };
    return std::min_element(planned_.begin(), planned_.end(),
                            [&](const auto& a, const auto& b) { return rank(a.second) < rank(b.second); })
        ->second;
  }

  CheckpointPlacement placement() const {
    const PlannedChoice& best = this->best();
    return {.recomputed = recomputed(best.levels),
            .keeps = kept(best.levels),
            .targets = number_of_targets_,
            .flops = best.flops,
            .max_flops = max_flops_,
            .planned_bytes = best.bytes,
            .budget_bytes = budget_,
            .plans = static_cast<int64_t>(planned_.size())};
  }

  const PlacedJob& job_;
  const c10::Device device_;
  const int64_t budget_;
  int64_t limit_ = 0;  // the budget, or what is least where nothing fits it
  int64_t number_of_targets_ = 0;
  std::vector<Target> targets_;
  int64_t base_ = 0;
  std::optional<int64_t> max_flops_;
  std::map<Levels, PlannedChoice> planned_;
};

}  // namespace

CheckpointPlacement search_placement(const PlacedJob& job, c10::Device device, int64_t budget_bytes) {
  return Search(job, device, budget_bytes).run();
}

}  // namespace dtk
