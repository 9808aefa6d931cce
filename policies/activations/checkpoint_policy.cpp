#include <dtk/policies/advice.h>
#include <dtk/policies/checkpoint.h>
#include <dtk/policies/internal/checkpoint_policy.h>
#include <dtk/policies/internal/path_globs.h>
#include <dtk/policies/internal/repeated_modules.h>
#include <dtk/policies/internal/scoped.h>
#include <dtk/policies/offload.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "activations/keep_spec.h"

namespace dtk::policies {
namespace {

constexpr const char* kCheckpointEnabled = "policies.checkpoint.enabled";

// Splits the chosen paths into segments of consecutive modules with one choice: neighbours in `paths`, at
// most `length`.
std::vector<std::vector<std::string>> make_segments(const std::vector<std::string>& chosen,
                                                    const std::vector<SegmentChoice>& choices,
                                                    const std::vector<std::string>& paths, int64_t length) {
  std::map<std::string, size_t> position;
  for (size_t i = 0; i < paths.size(); ++i) position[paths[i]] = i;
  std::vector<std::vector<std::string>> segments;
  for (size_t i = 0; i < chosen.size(); ++i) {
    const bool fits = !segments.empty() && static_cast<int64_t>(segments.back().size()) < length &&
                      position[chosen[i - 1]] + 1 == position[chosen[i]] && choices[i - 1] == choices[i];
    if (!fits) segments.emplace_back();
    segments.back().push_back(chosen[i]);
  }
  return segments;
}

void check_count(const char* name, int64_t value, size_t matches) {
  if (value >= 1 && value <= static_cast<int64_t>(matches)) return;
  throw PolicyError("policies.checkpoint." + std::string(name),
                    " = " + std::to_string(value) + " is out of range for " + std::to_string(matches) +
                        " matching modules; allowed: [1, " + std::to_string(matches) + "]");
}

std::string text_of(ByteCount count) {
  return std::to_string(count.bytes) + " bytes";
}

// Without those modules that keep everything, on the device.
void leave_out_kept(std::vector<std::string>& chosen, std::vector<SegmentChoice>& choices) {
  size_t left = 0;
  for (size_t i = 0; i < chosen.size(); ++i) {
    if (choices[i].all && !choices[i].offload) continue;
    std::swap(chosen[left], chosen[i]);
    std::swap(choices[left++], choices[i]);
  }
  chosen.resize(left);
  choices.resize(left);
}

std::string counted(size_t count, const char* thing) {
  return std::to_string(count) + " " + thing + (count == 1 ? "" : "s");
}

// As the list has them, but "offload" without a pattern.
std::string kept_text(const CheckpointOptions& options) {
  std::string text;
  for (const std::string& one : options.keep.results) {
    if (!SegmentKeeps::is_offload(one)) text += (text.empty() ? ", keeping " : ", ") + one;
  }
  if (!options.keep.offloads()) return text;
  if (options.keep.offloads_all() && options.keep.recomputes())
    text += text.empty() ? ", inputs in host memory" : ", these and inputs in host memory";
  return text + ": storages of at least " + text_of(options.offload_min_bytes);
}

// A module and one within it both run as segments where each is its own; as members of one they cannot.
void check_overlap(const std::vector<std::string>& matches, int64_t segment) {
  for (const std::string& outer : matches) {
    for (const std::string& inner : matches) {
      if (segment == 1 || !lies_within(inner, outer)) continue;
      throw PolicyError("policies.checkpoint.targets",
                        " overlap: " + inner + " runs within " + outer +
                            ", so policies.checkpoint.segment = " + std::to_string(segment) +
                            " cannot join them in one segment; name modules of one level, or " +
                            advise("policies.checkpoint.segment", "1") + ", which nests them");
    }
  }
}

}  // namespace

// The segment that the latest module belongs to, while more of it may follow.
struct CheckpointPolicy::OpenSegment {
  std::optional<size_t> number;              // none is open
  std::unique_ptr<CheckpointSegment> chain;  // null: nothing of it is recomputed
};

struct CheckpointPolicy::Effect {
  struct OfSegment {
    std::atomic<bool> ran{false};
    std::atomic<bool> has_graph{false};  // an output of a run of it needs a gradient
    std::atomic<int64_t> saved{0};       // at most; see CheckpointSegment::max_saved()
  };
  explicit Effect(size_t count) : segments(count) {}
  int64_t saved() const {
    int64_t sum = 0;
    for (const OfSegment& one : segments) sum += one.saved;
    return sum;
  }
  bool ran() const {
    return std::any_of(segments.begin(), segments.end(), [](const auto& one) { return one.ran.load(); });
  }

  std::vector<OfSegment> segments;
  bool stepped = false;  // a training step is behind us, so there should be some
};

// Modules within a module may be segments too; they end with it, also when it is recomputed.
class CheckpointPolicy::Within : NotCopied {
 public:
  explicit Within(std::shared_ptr<OpenSegment> open) : open_(std::move(open)) {
    if (open_ != nullptr) outer_ = std::exchange(*open_, {});
  }
  ~Within() {
    if (open_ != nullptr) *open_ = std::move(outer_);
  }

 private:
  const std::shared_ptr<OpenSegment> open_;
  OpenSegment outer_;
};

CheckpointPolicy::CheckpointPolicy(const CheckpointOptions& options, const std::vector<std::string>& paths,
                                   const NamedTensors& parameters)
    : options_(options), open_(std::make_shared<OpenSegment>()), effect_(std::make_shared<Effect>(0)) {
  if (options.offload_min_bytes.bytes < 0) {
    throw PolicyError(
        "policies.checkpoint.offload_min_bytes",
        " = " + std::to_string(options.offload_min_bytes.bytes) + " is out of range; allowed: [0, inf)");
  }
  const bool asked = options.enabled == Enabled::on;
  if (options.keep.word == KeepWord::all && asked) {
    throw PolicyError("policies.checkpoint",
                      ": asked for, but keep = \"all\" keeps every tensor, so it has no effect; " +
                          advise("policies.checkpoint.keep", "\"block\"") + ", or " +
                          advise(kCheckpointEnabled, "false"));
  }
  const bool by_structure = options.targets.empty();
  const std::vector<std::string> matches =
      by_structure ? repeated_modules(paths, parameters)
                   : matching_paths(options.targets, paths, "policies.checkpoint.targets");
  if (matches.empty()) {
    const std::string why =
        parameters.empty() || are_named_by_paths(parameters, paths)
            ? "no module repeats: no two that follow each other have parameters of the same shapes"
            : "which modules repeat is not known: no parameter's name begins with the path of a module, and "
              "none is numbered";
    if (asked) {
      throw PolicyError("policies.checkpoint.targets", " names none, and " + why + "; name modules, or " +
                                                           advise(kCheckpointEnabled, "false"));
    }
    reason_ = why;
    return;
  }
  check_count("every", options.every, matches.size());
  check_count("segment", options.segment, matches.size());
  check_overlap(matches, options.segment);
  if (options.keep.word == KeepWord::all) {
    reason_ = "keep = \"all\": every tensor is kept";
    return;
  }
  std::vector<std::string> chosen;
  for (size_t i = 0; i < matches.size(); i += static_cast<size_t>(options.every))
    chosen.push_back(matches[i]);
  std::vector<SegmentChoice> choices = choices_of(options.keep, chosen);
  leave_out_kept(chosen, choices);
  if (chosen.empty() && asked) {
    throw PolicyError("policies.checkpoint",
                      ": asked for, but policies.checkpoint.keep keeps every tensor of each chosen "
                      "module, so it has no effect; keep less, or " +
                          advise(kCheckpointEnabled, "false"));
  }
  if (chosen.empty()) {
    reason_ = "policies.checkpoint.keep keeps every tensor of each chosen module";
    return;
  }
  segments_ = make_segments(chosen, choices, paths, options.segment);
  effect_ = std::make_shared<Effect>(segments_.size());
  for (size_t i = 0; i < chosen.size(); ++i) {
    if (kept_.size() < segments_.size() && segments_[kept_.size()].front() == chosen[i]) add_kept(choices[i]);
  }
  if (options.segment > 1 && segments_.size() == chosen.size()) {
    throw PolicyError(
        "policies.checkpoint.segment",
        " = " + std::to_string(options.segment) + " has no effect: with policies.checkpoint.every = " +
            std::to_string(options.every) + " no two of the chosen modules follow each other; " +
            (options.every > 1 ? "set one of the two to 1" : "set segment to 1, or choose modules that do"));
  }
  const std::string &first = segments_.front().front(), &last = segments_.back().back();
  const auto again = std::count_if(choices.begin(), choices.end(), [](const auto& one) { return !one.all; });
  const size_t moved = chosen.size() - static_cast<size_t>(again);
  reason_ =
      (again == 0   ? "offloads " + counted(moved, "module")
       : moved == 0 ? "recomputes " + counted(chosen.size(), "module")
                    : "recomputes " + std::to_string(again) + " and offloads " + counted(moved, "module")) +
      " in " + counted(segments_.size(), "segment") + ", " +
      (first == last ? first : "from " + first + " to " + last) + (by_structure ? ", which repeat" : "") +
      kept_text(options);
}

// What the next segment keeps; those that keep the same results count them together.
void CheckpointPolicy::add_kept(const SegmentChoice& choice) {
  Kept kept;
  kept.recomputes = !choice.all;
  if (choice.offload && store_ == nullptr)
    store_ = std::make_shared<OffloadStore>(options_.offload_min_bytes.bytes);
  if (choice.offload) kept.store = store_;
  if (!choice.names.empty()) {
    std::shared_ptr<KeptResults>& results = results_[choice.names];
    if (results == nullptr) results = std::make_shared<KeptResults>(choice.names);
    kept.results = results;
  }
  kept_.push_back(std::move(kept));
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
  if (!results_.empty()) {
    seam.keep = [inner = std::move(seam.keep)](std::string_view name, at::Tensor value) {
      return named(name, inner(name, std::move(value)));
    };
  }
  seam.run = [inner = std::move(seam.run), places = std::move(places), open = open_, effect = effect_,
              all_kept = kept_](std::string_view path, const ModuleFn& fn, Tensors&& inputs) {
    const auto found = places->find(path);
    if (found == places->end()) return inner(path, fn, std::move(inputs));
    const Place& place = found->second;
    const Kept& kept = all_kept[place.segment];
    Effect::OfSegment& of_segment = effect->segments[place.segment];
    of_segment.ran = true;
    // Ours while it runs, so that what throws leaves none open.
    OpenSegment mine = std::exchange(*open, {});
    const bool goes_on = mine.number == place.segment && !place.first;
    // Weak: the open segment holds this function.
    ModuleFn body = [inner, where = std::string(path), fn, weak = std::weak_ptr(open)](Tensors&& in) {
      const Within within(weak.lock());
      return inner(where, fn, std::move(in));
    };
    int64_t before = 0;
    if (!goes_on) mine = {place.segment, nullptr};
    if (kept.recomputes) {
      const bool unproved = !effect->stepped || of_segment.saved <= 0;
      if (!goes_on) mine.chain = std::make_unique<CheckpointSegment>(unproved, kept.results);
      before = mine.chain->max_saved();
      body = [&chain = *mine.chain, path, nested = std::move(body)](Tensors&& in) {
        return chain.append(path, nested, std::move(in));
      };
    }
    Tensors outputs = kept.store == nullptr ? body(std::move(inputs))
                                            : offload(path, body, std::move(inputs), kept.store, goes_on);
    if (kept.recomputes) of_segment.saved += mine.chain->max_saved() - before;
    of_segment.has_graph = of_segment.has_graph ||
                           std::any_of(outputs.begin(), outputs.end(),
                                       [](const auto& one) { return one.defined() && one.requires_grad(); });
    if (!place.last) *open = std::move(mine);
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
  return (!recomputes() || effect_->saved() > 0) && moves_as_asked();
}

bool CheckpointPolicy::recomputes() const {
  return std::any_of(kept_.begin(), kept_.end(), [](const Kept& one) { return one.recomputes; });
}

bool CheckpointPolicy::moves_as_asked() const {
  return store_ == nullptr || store_->counts().copied_out > 0;
}

std::string CheckpointPolicy::no_effect() const {
  const std::string& first = segments_.front().front();
  const std::string& last = segments_.back().back();
  const std::string chosen = first == last ? first : first + " to " + last;
  if (moves_as_asked() && !effect_->ran()) return "no forward pass has run " + chosen + " through the seam";
  if (moves_as_asked())
    return "backward needs no more of " + chosen + " than what is there anyway: inputs and parameters";
  return "no forward pass has saved a storage of at least " + text_of(options_.offload_min_bytes) +
         " in a chosen module";
}

// "blocks.0 and 2 more", which ran, but never for backward.
std::string CheckpointPolicy::without_graph() const {
  std::string first;
  size_t more = 0;
  for (size_t i = 0; i < segments_.size(); ++i) {
    if (!effect_->segments[i].ran || effect_->segments[i].has_graph) continue;
    if (first.empty()) {
      first = segments_[i].front();
      more = segments_[i].size() - 1;
    } else {
      more += segments_[i].size();
    }
  }
  return more == 0 ? first : first + " and " + std::to_string(more) + " more";
}

void CheckpointPolicy::before_step() {
  effect_->stepped = true;
  for (const auto& [names, results] : results_) results->check_met("policies.checkpoint.keep");
  if (options_.enabled != Enabled::on) return;
  const std::string frozen = without_graph();
  if (!frozen.empty() && !options_.targets.empty()) {
    throw PolicyError("policies.checkpoint.targets",
                      " name " + frozen +
                          ", where nothing is trained and no gradient passes: without a graph they keep 0 "
                          "bytes, so recomputing them frees none; leave them out");
  }
  if (has_effect()) return;
  const char* const change = moves_as_asked() ? "name other modules in policies.checkpoint.targets"
                                              : "lower policies.checkpoint.offload_min_bytes";
  throw PolicyError("policies.checkpoint.enabled", " = true, but " + no_effect() + ", so it has no effect; " +
                                                       change + ", or " +
                                                       advise(kCheckpointEnabled, "\"default\""));
}

PolicyReport CheckpointPolicy::report() const {
  const bool without = !segments_.empty() && effect_->stepped && !has_effect();
  const bool recomputed = recomputes() && effect_->saved() > 0;
  if (without && !recomputed) return {name(), false, "without effect: " + no_effect()};
  PolicyReport report{name(), !segments_.empty(), reason_};
  const std::string frozen = effect_->stepped ? without_graph() : "";
  if (!frozen.empty()) report.reason += "; of them without a graph, keeping 0 bytes: " + frozen;
  if (without) report.reason += "; nothing waits there: " + no_effect();
  if (store_ != nullptr) {
    const OffloadCounts counts = store_->counts();
    report.host_bytes = counts.max_host_bytes;
    if (counts.from_host) report.reason += "; the training device is the CPU: it is the same memory";
  }
  return report;
}

}  // namespace dtk::policies
