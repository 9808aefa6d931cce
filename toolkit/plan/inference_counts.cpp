#include "toolkit/plan/inference_counts.h"

#include <dtk/planner/explain.h>

#include <algorithm>
#include <limits>
#include <map>

#include "toolkit/core/clock.h"
#include "toolkit/core/largest_fit.h"
#include "toolkit/plan/inference.h"

namespace dtk {
namespace {

constexpr int64_t kMaxCount = int64_t{1} << 24;

LoadedConfig with_count(LoadedConfig loaded, int64_t count) {
  loaded.inferred = count;
  return loaded;
}

// Lines take their neighbours that lie on them; a count alone lies on any through it, and takes none.
std::vector<LinearPiece> joined(std::vector<LinearPiece> pieces) {
  const auto holds = [](const LinearPiece& line, const LinearPiece& other) {
    return line.last > line.first && line.bytes(other.first) == other.bytes(other.first) &&
           line.bytes(other.last) == other.bytes(other.last);
  };
  for (size_t i = 0; i + 1 < pieces.size();) {
    LinearPiece &one = pieces[i], &next = pieces[i + 1];
    if (!holds(one, next) && !holds(next, one)) {
      ++i;
      continue;
    }
    const LinearPiece line = holds(one, next) ? one : next;
    one = {one.first, next.last, line.at_0, line.each};
    pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    if (i > 0) --i;  // what stands before may lie on it now
  }
  // Counts alone that are on a line with their neighbours, each of which is known.
  for (size_t i = 0; i + 1 < pieces.size(); ++i) {
    LinearPiece& one = pieces[i];
    while (i + 1 < pieces.size() && pieces[i + 1].first == pieces[i + 1].last) {
      const LinearPiece& next = pieces[i + 1];
      if (one.first == one.last) {
        one.each = next.at_0 - one.at_0;
        one.at_0 -= one.each * one.first;
      } else if (one.bytes(next.first) != next.at_0) {
        break;
      }
      one.last = next.last;
      pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    }
  }
  return pieces;
}

}  // namespace

std::vector<LinearPiece> linear_pieces(int64_t most, const std::function<int64_t(int64_t)>& bytes_of) {
  std::map<int64_t, int64_t> known;
  const auto at = [&](int64_t count) {
    const auto found = known.find(count);
    return found != known.end() ? found->second : known[count] = bytes_of(count);
  };
  const auto is_line = [&](int64_t first, int64_t last) {
    const int64_t run = last - first, rise = at(last) - at(first);
    if (rise % run != 0) return false;
    const int64_t each = rise / run, middle = first + run / 2;
    for (const int64_t count : {middle, first + 1, last - 1}) {
      if (at(count) != at(first) + each * (count - first)) return false;
    }
    return true;
  };
  std::vector<LinearPiece> pieces;
  const std::function<void(int64_t, int64_t)> look = [&](int64_t first, int64_t last) {
    if (first == last) {
      pieces.push_back({first, first, at(first), 0});
    } else if (last - first > 1 && is_line(first, last)) {
      const int64_t each = (at(last) - at(first)) / (last - first);
      pieces.push_back({first, last, at(first) - each * first, each});
    } else {
      const int64_t middle = first + (last - first) / 2;
      look(first, middle);
      look(middle + 1, last);
    }
  };
  look(1, most);
  return joined(std::move(pieces));
}

CountTable plan_counts(const LoadedConfig& loaded, c10::Device device, const std::vector<int64_t>& counts,
                       const planner::SimulationOptions& options) {
  SteadyClock clock;
  const double begin = clock.seconds();
  CountTable table;
  std::map<int64_t, Plan> plans;
  const auto plan_of = [&](int64_t count) -> const Plan& {
    const auto found = plans.find(count);
    if (found != plans.end()) return found->second;
    return plans.emplace(count, make_plan(with_count(loaded, count), device, options)).first->second;
  };
  const int64_t most = counts.back();
  for (const policies::PhasePeak& phase : plan_of(most).memory.phases) {
    const auto bytes_of = [&](int64_t count) {
      const policies::PhasePeak* const found =
          policies::phase_named(plan_of(count).memory.phases, phase.name);
      return found == nullptr ? 0 : found->peak.bytes;
    };
    table.phases.push_back({phase.name, linear_pieces(most, bytes_of)});
  }
  // Where pieces of any phase begin, and where one of two lines overtakes the other.
  for (int64_t count = 1; count <= most; ++count) {
    const PhasePieces* highest = nullptr;
    int64_t bytes = std::numeric_limits<int64_t>::min();
    for (const PhasePieces& phase : table.phases) {
      const auto piece = std::find_if(phase.pieces.begin(), phase.pieces.end(),
                                      [&](const LinearPiece& one) { return count <= one.last; });
      if (piece->bytes(count) <= bytes) continue;
      bytes = piece->bytes(count);
      highest = &phase;
    }
    if (!table.leading.empty() && table.leading.back().phase == highest->phase) {
      table.leading.back().last = count;
    } else {
      table.leading.push_back({highest->phase, "", count, count});
    }
  }
  for (LeadingPhase& leading : table.leading) {
    const planner::Observed seen = planner::observe(
        device, [&] { return plan_inference(with_count(loaded, leading.last), device, options).memory; });
    const auto place = seen.places.find(leading.phase);
    if (place == seen.places.end()) continue;
    leading.by =
        place->second.operation + (place->second.path.empty() ? std::string() : " in " + place->second.path);
  }
  for (const int64_t count : counts) table.plans.push_back(plan_of(count));
  table.planned = std::ssize(plans);
  table.seconds = clock.seconds() - begin;
  return table;
}

LargestCount largest_planned_count(const LoadedConfig& loaded, c10::Device device, int64_t bytes,
                                   const planner::SimulationOptions& options) {
  const std::vector<LoadedConfig> choices = tighter_choices(loaded, device);
  LargestCount best;
  int64_t planned = 0;
  for (const LoadedConfig& one : choices) {
    LargestCount found;
    const LargestFit fit = largest_within(kMaxCount, bytes, [&](int64_t count) {
      Plan plan = make_plan(with_count(one, count), device, options);
      ++planned;
      const int64_t taken = plan.bytes_in(Capacity::device);
      (taken <= bytes ? found.largest : found.next) = std::move(plan);
      return taken;
    });
    const bool is_first = &one == &choices.front();
    if (is_first || fit.fitting > (best.largest ? *best.largest->loaded.inferred : 0))
      best = std::move(found);
  }
  best.planned = planned;
  return best;
}

}  // namespace dtk
