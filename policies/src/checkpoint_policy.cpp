#include <dtk/policies/checkpoint.h>
#include <dtk/policies/checkpoint_policy.h>
#include <dtk/policies/globs.h>
#include <dtk/policies/offload.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <map>
#include <set>
#include <utility>

namespace dtk::policies {
namespace {

// Splits the chosen paths into segments of consecutive sub-trees: neighbours in `paths`, at most `length`.
std::vector<std::vector<std::string>> make_segments(const std::vector<std::string>& chosen,
                                                    const std::vector<std::string>& paths, int64_t length) {
  std::map<std::string, size_t> position;
  for (size_t i = 0; i < paths.size(); ++i) position[paths[i]] = i;
  std::vector<std::vector<std::string>> segments;
  for (const std::string& path : chosen) {
    const bool fits = !segments.empty() && static_cast<int64_t>(segments.back().size()) < length &&
                      position[segments.back().back()] + 1 == position[path];
    if (!fits) segments.emplace_back();
    segments.back().push_back(path);
  }
  return segments;
}

void check_count(const char* name, int64_t value, size_t matches) {
  if (value >= 1 && value <= static_cast<int64_t>(matches)) return;
  throw PolicyError("policies.checkpoint." + std::string(name) + " = " + std::to_string(value) +
                    " is out of range for " + std::to_string(matches) + " matching sub-trees; allowed: [1, " +
                    std::to_string(matches) + "]");
}

std::string text_of(ByteCount count) {
  return std::to_string(count.bytes) + " bytes";
}

std::string counted(size_t count, const char* thing) {
  return std::to_string(count) + " " + thing + (count == 1 ? "" : "s");
}

void check_results(const std::vector<std::string>& results) {
  const std::string key = "policies.checkpoint.keep";
  std::set<std::string> seen;
  for (const std::string& one : results) {
    if (one.empty()) throw PolicyError(key + " holds an empty name; take it out");
    if (SegmentKeeps::is_word(one) && one != "offload")
      throw PolicyError(key + ": \"" + one + "\" is not the name of a result; write it alone: " + key +
                        " = \"" + one + "\"");
    if (!seen.insert(one).second) throw PolicyError(key + " holds \"" + one + "\" twice; take one out");
  }
}

void check_keep(const SegmentKeeps& keep) {
  check_results(keep.results);
  if (keep.word == "auto") {
    throw PolicyError(
        "policies.checkpoint.keep = \"auto\" leaves the choice to a planner, as dit-plan and dit-train do "
        "under memory.budget; give the policy what was chosen: keep = \"block\" with the sub-trees to "
        "compute again as targets, or keep = \"all\"");
  }
  if (!keep.results.empty() || SegmentKeeps::is_word(keep.word)) return;
  if (keep.word.empty()) {
    throw PolicyError(
        "policies.checkpoint.keep is an empty list; name results, such as [\"fc2_out\"] or "
        "[\"aten::addmm\"], or set policies.checkpoint.keep = \"block\"");
  }
  throw PolicyError("policies.checkpoint.keep = \"" + keep.word +
                    "\" is not a choice; allowed: all | block | offload | a list of names and operators");
}

// What a list names beside "offload".
std::vector<std::string> names_of(const SegmentKeeps& keep) {
  std::vector<std::string> names;
  std::copy_if(keep.results.begin(), keep.results.end(), std::back_inserter(names),
               [](const std::string& one) { return one != "offload"; });
  return names;
}

std::string kept_text(const CheckpointOptions& options) {
  std::string text;
  for (const std::string& one : names_of(options.keep)) text += (text.empty() ? ", keeping " : ", ") + one;
  if (!options.keep.offloads()) return text;
  if (options.keep.recomputes())
    text += text.empty() ? ", inputs in host memory" : ", these and inputs in host memory";
  return text + ": storages of at least " + text_of(options.offload_min_bytes);
}

// A sub-tree and one within it both run as segments where each is its own; as members of one they cannot.
void check_overlap(const std::vector<std::string>& matches, int64_t segment) {
  for (const std::string& outer : matches) {
    for (const std::string& inner : matches) {
      if (segment == 1 || !inner.starts_with(outer + ".")) continue;
      throw PolicyError("policies.checkpoint.targets overlap: " + inner + " runs within " + outer +
                        ", so policies.checkpoint.segment = " + std::to_string(segment) +
                        " cannot join them in one segment; name sub-trees of one level, or set "
                        "policies.checkpoint.segment = 1, which nests them");
    }
  }
}

}  // namespace

// The segment that the latest sub-tree belongs to, while more of it may follow.
struct CheckpointPolicy::OpenSegment {
  size_t number = 0;
  std::unique_ptr<CheckpointChain> chain;  // null: there is none, or it is offloaded
  bool offloaded = false;
};

struct CheckpointPolicy::Effect {
  std::atomic<bool> ran{false};   // a chosen sub-tree
  std::atomic<int64_t> saved{0};  // at most; see CheckpointChain::most_saved()
  bool stepped = false;           // a training step is behind us, so there should be some
};

// Sub-trees within a sub-tree may be segments too; they end with it, also when it is run again.
class CheckpointPolicy::Within {
 public:
  explicit Within(std::shared_ptr<OpenSegment> open) : open_(std::move(open)) {
    if (open_ != nullptr) outer_ = std::exchange(*open_, {});
  }
  ~Within() {
    if (open_ != nullptr) *open_ = std::move(outer_);
  }
  Within(const Within&) = delete;
  Within& operator=(const Within&) = delete;

 private:
  const std::shared_ptr<OpenSegment> open_;
  OpenSegment outer_;
};

CheckpointPolicy::CheckpointPolicy(const CheckpointOptions& options, const std::vector<std::string>& paths)
    : options_(options), open_(std::make_shared<OpenSegment>()), effect_(std::make_shared<Effect>()) {
  check_keep(options.keep);
  if (options.offload_min_bytes.bytes < 0) {
    throw PolicyError(
        "policies.checkpoint.offload_min_bytes = " + std::to_string(options.offload_min_bytes.bytes) +
        " is out of range; allowed: [0, inf)");
  }
  if (options.keep.offloads()) store_ = std::make_shared<OffloadStore>(options.offload_min_bytes.bytes);
  if (const auto names = names_of(options.keep); !names.empty()) keep_ = std::make_shared<KeptResults>(names);
  const bool asked = options.enabled == Enabled::on;
  if (options.keep.word == "all" && asked) {
    throw PolicyError(
        "policies.checkpoint: asked for, but keep = \"all\" keeps every tensor, so it has no effect; "
        "use keep = \"block\", or enabled = false");
  }
  const bool default_targets = options.targets == CheckpointOptions{}.targets;
  if (default_targets && !asked && !matches_any(options.targets.front(), paths)) {
    reason_ = "no sub-tree matches the default targets, " + options.targets.front();
    return;
  }
  if (options.targets.empty()) {
    throw PolicyError(
        "policies.checkpoint.targets is empty; name sub-trees, such as [\"blocks.*\"], or set "
        "policies.checkpoint.enabled = false");
  }
  const std::vector<std::string> matches =
      matching_paths(options.targets, paths, "policies.checkpoint.targets");
  check_count("every", options.every, matches.size());
  check_count("segment", options.segment, matches.size());
  check_overlap(matches, options.segment);
  if (options.keep.word == "all") {
    reason_ = "keep = \"all\": every tensor is kept";
    return;
  }
  std::vector<std::string> chosen;
  for (size_t i = 0; i < matches.size(); i += static_cast<size_t>(options.every))
    chosen.push_back(matches[i]);
  segments_ = make_segments(chosen, paths, options.segment);
  if (options.segment > 1 && segments_.size() == chosen.size()) {
    throw PolicyError(
        "policies.checkpoint.segment = " + std::to_string(options.segment) +
        " has no effect: with policies.checkpoint.every = " + std::to_string(options.every) +
        " no two of the chosen sub-trees follow each other; " +
        (options.every > 1 ? "set one of the two to 1" : "set segment to 1, or choose sub-trees that do"));
  }
  reason_ = (options.keep.recomputes() ? "recomputes " : "offloads ") + counted(chosen.size(), "sub-tree") +
            " in " + counted(segments_.size(), "segment") + ", from " + segments_.front().front() + " to " +
            segments_.back().back() + kept_text(options);
}

// Which segment a path belongs to, and whether it begins or ends it.
struct CheckpointPolicy::Place {
  size_t segment;
  bool first;
  bool last;
};

void CheckpointPolicy::put_in(Seam& seam) {
  if (segments_.empty()) return;
  auto places = std::make_shared<Places>();
  for (size_t s = 0; s < segments_.size(); ++s) {
    for (const std::string& path : segments_[s]) {
      (*places)[path] = {s, path == segments_[s].front(), path == segments_[s].back()};
    }
  }
  if (!options_.keep.recomputes()) return put_in_offload(seam, std::move(places));
  if (keep_ != nullptr) {
    seam.keep = [inner = std::move(seam.keep)](std::string_view name, at::Tensor value) {
      return named(name, inner(name, std::move(value)));
    };
  }
  seam.run = [inner = std::move(seam.run), places, open = open_, effect = effect_, keep = keep_,
              store = store_](std::string_view path, const SubtreeFn& fn, Tensors&& inputs) {
    const auto place = places->find(path);
    if (place == places->end()) return inner(path, fn, std::move(inputs));
    effect->ran = true;
    // Ours while it runs, so that what throws leaves none open.
    OpenSegment mine = std::exchange(*open, {});
    const bool goes_on =
        mine.chain != nullptr && mine.number == place->second.segment && !place->second.first;
    if (!goes_on) {
      const bool unproved = !effect->stepped || effect->saved <= 0;
      mine = {place->second.segment, std::make_unique<CheckpointChain>(unproved, keep)};
    }
    // Weak: the open segment holds this function.
    const SubtreeFn nested = [inner, where = std::string(path), fn,
                              weak = std::weak_ptr(open)](Tensors&& in) {
      const Within within(weak.lock());
      return inner(where, fn, std::move(in));
    };
    const int64_t before = mine.chain->most_saved();
    const SubtreeFn segment = [&](Tensors&& in) { return mine.chain->append(path, nested, std::move(in)); };
    Tensors outputs = store == nullptr ? segment(std::move(inputs))
                                       : offload(path, segment, std::move(inputs), store, goes_on);
    effect->saved += mine.chain->most_saved() - before;
    if (!place->second.last) *open = std::move(mine);
    return outputs;
  };
}

void CheckpointPolicy::put_in_offload(Seam& seam, std::shared_ptr<const Places> places) const {
  seam.run = [inner = std::move(seam.run), places = std::move(places), open = open_, store = store_](
                 std::string_view path, const SubtreeFn& fn, Tensors&& inputs) {
    const auto place = places->find(path);
    if (place == places->end()) return inner(path, fn, std::move(inputs));
    const OpenSegment before = std::exchange(*open, {});
    const bool goes_on = before.offloaded && before.number == place->second.segment && !place->second.first;
    const SubtreeFn nested = [&](Tensors&& in) { return inner(path, fn, std::move(in)); };
    Tensors outputs = offload(path, nested, std::move(inputs), store, goes_on);
    if (!place->second.last) *open = {place->second.segment, nullptr, true};
    return outputs;
  };
}

std::unique_ptr<PolicyScope> CheckpointPolicy::forward_scope() {
  class Scope final : public PolicyScope {
   public:
    explicit Scope(std::shared_ptr<OpenSegment> open) : open_(std::move(open)) {}
    ~Scope() override { *open_ = {}; }

   private:
    const std::shared_ptr<OpenSegment> open_;
  };
  return segments_.empty() ? nullptr : std::make_unique<Scope>(open_);
}

// Of both, where both were asked for: so much of what the user chose does something.
bool CheckpointPolicy::has_effect() const {
  return (!options_.keep.recomputes() || effect_->saved > 0) && moves_or_need_not();
}

bool CheckpointPolicy::moves_or_need_not() const {
  return store_ == nullptr || store_->counts().copied_out > 0;
}

std::string CheckpointPolicy::no_effect() const {
  const std::string& first = segments_.front().front();
  const std::string& last = segments_.back().back();
  const std::string chosen = first == last ? first : first + " to " + last;
  if (moves_or_need_not() && !effect_->ran) return "no forward pass has run " + chosen + " through the seam";
  if (moves_or_need_not())
    return "backward needs no more of " + chosen + " than what is there anyway: inputs and parameters";
  return "no forward pass has saved a storage of at least " + text_of(options_.offload_min_bytes) +
         " in a chosen sub-tree";
}

void CheckpointPolicy::before_step() {
  effect_->stepped = true;
  if (keep_ != nullptr) keep_->check_met("policies.checkpoint.keep");
  if (options_.enabled != Enabled::on || has_effect()) return;
  const std::string what =
      "policies.checkpoint.enabled = true, but " + no_effect() + ", so it has no effect; ";
  if (!moves_or_need_not()) {
    throw PolicyError(what +
                      "lower policies.checkpoint.offload_min_bytes, or set policies.checkpoint.enabled = "
                      "\"default\"");
  }
  throw PolicyError(what +
                    "name other sub-trees in policies.checkpoint.targets, or set "
                    "policies.checkpoint.enabled = \"default\"");
}

PolicyReport CheckpointPolicy::report() const {
  const bool without = !segments_.empty() && effect_->stepped && !has_effect();
  const bool recomputed = options_.keep.recomputes() && effect_->saved > 0;
  if (without && !recomputed) return {name(), false, "without effect: " + no_effect()};
  PolicyReport report{name(), !segments_.empty(), reason_};
  if (without) report.reason += "; nothing waits there: " + no_effect();
  if (store_ != nullptr) {
    const OffloadCounts counts = store_->counts();
    report.host_bytes = counts.most_host_bytes;
    if (counts.from_host) report.reason += "; the training device is the CPU: it is the same memory";
  }
  return report;
}

}  // namespace dtk::policies
