#include <dtk/policies/checkpoint.h>
#include <dtk/policies/checkpoint_policy.h>
#include <dtk/policies/globs.h>

#include <map>

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

}  // namespace

CheckpointPolicy::CheckpointPolicy(const CheckpointOptions& options, const std::vector<std::string>& paths)
    : options_(options) {
  if (options.keep == "all" && options.enabled == Enabled::on) {
    throw PolicyError(
        "policies.checkpoint: asked for, but keep = \"all\" keeps every tensor, so it has no effect; "
        "use keep = \"block\", or enabled = false");
  }
  const std::vector<std::string> matches =
      matching_paths(options.targets, paths, "policies.checkpoint.targets");
  check_count("every", options.every, matches.size());
  check_count("segment", options.segment, matches.size());
  std::vector<std::string> chosen;
  for (size_t i = 0; i < matches.size(); i += static_cast<size_t>(options.every))
    chosen.push_back(matches[i]);
  if (options.keep != "all") segments_ = make_segments(chosen, paths, options.segment);
}

void CheckpointPolicy::apply(Seam& seam) {
  // Which chain a path belongs to, and whether it begins it.
  struct Place {
    size_t segment;
    bool first;
    bool last;
  };
  auto places = std::make_shared<std::map<std::string, Place, std::less<>>>();
  for (size_t s = 0; s < segments_.size(); ++s) {
    for (const std::string& path : segments_[s]) {
      (*places)[path] = {s, path == segments_[s].front(), path == segments_[s].back()};
    }
  }
  auto chain = std::make_shared<std::unique_ptr<CheckpointChain>>();
  seam.run = [inner = std::move(seam.run), places, chain](std::string_view path, const SubtreeFn& fn,
                                                          Tensors&& inputs) {
    const auto place = places->find(path);
    if (place == places->end()) return inner(path, fn, std::move(inputs));
    if (place->second.first) *chain = std::make_unique<CheckpointChain>();
    const SubtreeFn nested = [inner, where = std::string(path), fn](Tensors&& in) {
      return inner(where, fn, std::move(in));
    };
    Tensors outputs = (*chain)->append(path, nested, std::move(inputs));
    if (place->second.last) chain->reset();
    return outputs;
  };
}

PolicyReport CheckpointPolicy::report() const {
  PolicyReport report{name(), !segments_.empty(), "", 0};
  if (segments_.empty()) {
    report.reason = "keep = \"all\": every tensor is kept";
    return report;
  }
  size_t count = 0;
  for (const auto& segment : segments_) count += segment.size();
  report.reason = "recomputes " + std::to_string(count) + " sub-trees in " +
                  std::to_string(segments_.size()) + " segments, from " + segments_.front().front() + " to " +
                  segments_.back().back();
  return report;
}

}  // namespace dtk::policies
