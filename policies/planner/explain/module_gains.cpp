// What a module lets go of as a segment is what only its own operators hold, but for its inputs; what it
// keeps besides are inputs that nobody holds. The reasons are those two sets in words.
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <set>
#include <utility>

#include "core/figures.h"
#include "explain/snapshot.h"

namespace dtk::planner {
namespace {

using Storage = Snapshot::Storage;

class Segment {
 public:
  Segment(const Snapshot& snapshot, std::string path) : snapshot_(snapshot), path_(std::move(path)) {
    for (const Snapshot::Instance& one : snapshot.instances) {
      if (one.path != path_) continue;
      tensors_saved_ += one.tensors_saved;
      if (one.tensors_saved > 0) inputs_.insert(one.inputs.begin(), one.inputs.end());
      all_inputs_.insert(one.inputs.begin(), one.inputs.end());
      outputs_.insert(one.outputs.begin(), one.outputs.end());
    }
    for (const auto& [storage, kept] : snapshot.kept) sort(storage, kept);
    for (const auto& [storage, bytes] : inputs_) {
      if (snapshot.kept.count(storage) == 0) added_.push_back(storage);
    }
  }

  SegmentGain gain() const {
    SegmentGain result{path_, 0, 0, 0, ""};
    result.saves = sum_of(saved_);
    for (const auto& [storage, bytes] : all_inputs_) result.inputs += bytes;
    result.gain = sum_of(let_go_) - sum_of(added_);
    if (result.gain <= 0) result.reason = reason();
    return result;
  }

 private:
  void sort(Storage storage, const Snapshot::Kept& kept) {
    const auto mine = [&](const Snapshot::Holder& holder) {
      return snapshot_.within(holder.instance, path_);
    };
    if (std::none_of(kept.holders.begin(), kept.holders.end(), mine)) return;
    saved_.push_back(storage);
    if (inputs_.count(storage) > 0) return;
    const auto other = std::find_if_not(kept.holders.begin(), kept.holders.end(), mine);
    if (other == kept.holders.end()) {
      let_go_.push_back(storage);
    } else {
      shared_[{outputs_.count(storage) > 0, other->path, is_input_of(storage, other->instance)}].push_back(
          storage);
    }
  }

  bool is_input_of(Storage storage, int instance) const {
    if (instance == Snapshot::kOutside) return false;
    return snapshot_.instances[static_cast<size_t>(instance)].inputs.count(storage) > 0;
  }

  int64_t bytes_of(Storage storage) const { return snapshot_.kept.at(storage).bytes; }

  std::string reason() const {
    if (tensors_saved_ == 0) return "it saves nothing for backward: nothing can be let go";
    const size_t stay = saved_.size() - let_go_.size() - shared_count();
    std::vector<std::string> parts;
    if (saved_.empty()) {
      parts.emplace_back("it saves parameters only, which are there anyway");
    } else if (stay == saved_.size()) {
      const char* one = added_.empty() ? "all that it saves is its input" : "all that it saves is an input";
      parts.emplace_back(stay == 1 ? one : "all that it saves are inputs");
    } else if (stay > 0) {
      parts.emplace_back(stay == 1 ? "its input stays" : "its inputs stay");
    }
    for (const auto& [who, storages] : shared_) parts.push_back(shared_words(who, storages.size()));
    if (!let_go_.empty()) parts.push_back("it lets go of " + bytes_text(sum_of(let_go_)));
    if (!added_.empty()) parts.push_back(added_words());
    const std::string text = c10::Join("; ", parts);
    if (added_.empty()) return text + ": nothing is let go";
    return text + ": splitting here keeps " +
           (let_go_.empty() ? count(added_.size(), "tensor") + " more"
                            : bytes_text(sum_of(added_)) + " instead");
  }

  int64_t sum_of(const std::vector<Storage>& storages) const {
    int64_t sum = 0;
    for (const Storage storage : storages)
      sum += snapshot_.kept.count(storage) > 0 ? bytes_of(storage) : inputs_.at(storage);
    return sum;
  }

  size_t shared_count() const {
    size_t all = 0;
    for (const auto& [who, storages] : shared_) all += storages.size();
    return all;
  }

  struct Sharer {
    bool result;  // of this segment, else made within it
    std::string path;
    bool as_input;
    friend auto operator<=>(const Sharer&, const Sharer&) = default;
  };

  // "its result is conv3's input, which conv3 keeps all the same"
  static std::string shared_words(const Sharer& who, size_t storages) {
    const bool one = storages == 1;
    const std::string other = who.path.empty() ? "the rest of the step" : who.path;
    const std::string what = who.result ? (one ? "its result" : count(storages, "of its results"))
                                        : (one ? "a tensor made in it" : count(storages, "of its tensors"));
    const std::string is = one ? " is " : " are ";
    if (who.as_input)
      return what + is + other + "'s input" + (one ? "" : "s") + ", which " + other + " keeps all the same";
    return what + is + "kept by " + other + " all the same";
  }

  // "its own input, the result of conv2, is saved by nobody"
  std::string added_words() const {
    std::set<std::string> makers;
    for (const Storage storage : added_) makers.insert(maker_of(storage));
    std::string list;
    size_t left = makers.size();
    for (const std::string& maker : makers) {
      list += (list.empty() ? "" : --left == 1 ? " and " : ", ") + maker;
    }
    const bool others = saved_.size() > let_go_.size() + shared_count();
    if (added_.size() == 1)
      return (others ? "another input, " : "its own input, ") + list + ", is saved by nobody";
    return count(added_.size(), others ? "other input" : "input") + ", " + list + ", are saved by nobody";
  }

  std::string maker_of(Storage storage) const {
    for (const Snapshot::Instance& one : snapshot_.instances) {
      if (std::find(one.outputs.begin(), one.outputs.end(), storage) != one.outputs.end())
        return "the result of " + one.path;
    }
    return "which comes from outside";
  }

  // "one tensor", "3 tensors"; "3 of its results"
  static std::string count(size_t number, const std::string& what) {
    if (what.starts_with("of ")) return std::to_string(number) + " " + what;
    return number == 1 ? "one " + what : std::to_string(number) + " " + what + "s";
  }

  const Snapshot& snapshot_;
  const std::string path_;
  int64_t tensors_saved_ = 0;
  std::map<Storage, int64_t> inputs_, all_inputs_;  // of runs that save anything; of all
  std::set<Storage> outputs_;
  std::vector<Storage> saved_, let_go_, added_;
  std::map<Sharer, std::vector<Storage>> shared_;  // with holders elsewhere
};

}  // namespace

int64_t Snapshot::bytes() const {
  int64_t sum = 0;
  for (const auto& [storage, one] : kept) sum += one.bytes;
  return sum;
}

bool Snapshot::within(int instance, const std::string& path) const {
  for (; instance != kOutside; instance = instances[static_cast<size_t>(instance)].parent) {
    if (instances[static_cast<size_t>(instance)].path == path) return true;
  }
  return false;
}

const std::string& Snapshot::outermost(const Holder& holder) const {
  if (holder.instance == kOutside) return holder.path;
  const Instance* instance = &instances[static_cast<size_t>(holder.instance)];
  while (instance->parent != kOutside) instance = &instances[static_cast<size_t>(instance->parent)];
  return instance->path;
}

void explain_snapshot(const Snapshot& snapshot, Observed& observed) {
  std::set<Storage> given, made;
  std::vector<std::string> paths;
  for (const Snapshot::Instance& one : snapshot.instances) {
    made.insert(one.outputs.begin(), one.outputs.end());
    if (one.parent == Snapshot::kOutside) {
      for (const auto& [storage, bytes] : one.inputs) given.insert(storage);
    }
    if (std::find(paths.begin(), paths.end(), one.path) == paths.end()) paths.push_back(one.path);
  }
  observed.saved = snapshot.bytes();
  for (const auto& [storage, kept] : snapshot.kept) {
    const bool outside =
        std::any_of(kept.holders.begin(), kept.holders.end(),
                    [](const Snapshot::Holder& holder) { return holder.instance == Snapshot::kOutside; });
    if (outside) {
      observed.outside += kept.bytes;
    } else if (given.count(storage) > 0 && made.count(storage) == 0) {
      observed.entering += kept.bytes;
    }
  }
  for (const auto& [storage, kept] : snapshot.kept) {
    std::set<std::string> who;
    for (const Snapshot::Holder& holder : kept.holders) who.insert(snapshot.outermost(holder));
    if (who.size() == 1 && !who.begin()->empty()) observed.kept_by[*who.begin()] += kept.bytes;
  }
  for (const std::string& path : paths) observed.segments.push_back(Segment(snapshot, path).gain());
}

}  // namespace dtk::planner
