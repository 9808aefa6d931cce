#include "activations/keep_spec.h"

#include <dtk/policies/advice.h>
#include <dtk/policies/internal/path_globs.h>
#include <dtk/policies/policy.h>

#include <algorithm>
#include <set>

namespace dtk::policies {
namespace {

const std::string kKey = "policies.checkpoint.keep";

// Of a word that is a set; else none.
std::vector<std::string> names_of(std::optional<KeepWord> word) {
  if (word == KeepWord::elementwise) return {"qkv_out", "attn_out", "proj_out", "fc1_out", "fc2_out"};
  if (word == KeepWord::attention) return {"attn_out", "proj_out", "fc2_out"};
  if (word == KeepWord::gates) return {"proj_out", "fc2_out"};
  if (word == KeepWord::fc2) return {"fc2_out"};
  return {};
}

// "blocks.0: offload" is for the modules that match blocks.0; an entry without a pattern for all.
struct Entry {
  std::string pattern, what;
  std::optional<KeepWord> word;  // that `what` is

  explicit Entry(const std::string& text) : what(text) {
    if (const size_t colon = text.find(": "); colon != std::string::npos) {
      pattern = text.substr(0, colon);
      what = text.substr(colon + 2);
    }
    word = parse_enum<KeepWord>(what);
  }
  bool is_for(const std::string& path) const { return pattern.empty() || glob_matches(pattern, path); }
};

void check_entries(const std::vector<std::string>& entries, const std::vector<std::string>& paths) {
  std::set<std::string> seen;
  for (const std::string& text : entries) {
    const Entry entry(text);
    if (entry.what.empty()) throw PolicyError(kKey, " holds an empty name; take it out");
    const bool may_stand = entry.word == KeepWord::offload || !names_of(entry.word).empty() ||
                           (entry.word == KeepWord::all && !entry.pattern.empty());
    if (entry.word && !may_stand) {
      throw PolicyError(
          kKey,
          ": \"" + text + "\" is not the name of a result; " +
              (entry.pattern.empty() ? "write it alone: " + kKey + " = \"" + text + "\""
                                     : "allowed for some modules: all, offload, sets, names and operators"));
    }
    if (!seen.insert(text).second) throw PolicyError(kKey, " holds \"" + text + "\" twice; take one out");
    if (std::none_of(paths.begin(), paths.end(), [&](const auto& path) { return entry.is_for(path); })) {
      throw PolicyError(
          kKey, ": \"" + entry.pattern + "\" of \"" + text +
                    "\" matches none of the chosen modules; near: " + nearest_paths(entry.pattern, paths));
    }
  }
}

void add_name(SegmentChoice& choice, const std::string& name) {
  if (std::find(choice.names.begin(), choice.names.end(), name) == choice.names.end())
    choice.names.push_back(name);
}

SegmentChoice choice_of(const std::vector<std::string>& entries, const std::string& path) {
  SegmentChoice choice;
  for (const std::string& text : entries) {
    const Entry entry(text);
    if (!entry.is_for(path)) continue;
    if (entry.word == KeepWord::all) {
      choice.all = true;
    } else if (entry.word == KeepWord::offload) {
      choice.offload = true;
    } else if (entry.word) {
      for (const std::string& name : names_of(entry.word)) add_name(choice, name);
    } else {
      add_name(choice, entry.what);
    }
  }
  if (choice.all) choice.names.clear();  // they are kept, too
  return choice;
}

}  // namespace

std::vector<SegmentChoice> choices_of(const SegmentKeeps& keep, const std::vector<std::string>& paths) {
  if (keep.word == KeepWord::automatic) {
    throw PolicyError(
        kKey,
        " = \"auto\" leaves the choice to a planner, as dit-plan and dit-train do "
        "under memory.budget; give the policy what was chosen: keep = \"block\" with the modules to "
        "recompute as targets, or keep = \"all\"");
  }
  if (keep.results.empty() && keep.word == KeepWord::listed) {
    throw PolicyError(kKey,
                      " is an empty list; name results, such as [\"fc2_out\"] or "
                      "[\"aten::addmm\"], or " +
                          advise(kKey, "\"block\""));
  }
  check_entries(keep.results, paths);
  std::vector<SegmentChoice> choices;
  for (const std::string& path : paths) {
    const bool offload = keep.word == KeepWord::offload;
    choices.push_back(keep.word == KeepWord::listed
                          ? choice_of(keep.results, path)
                          : SegmentChoice{.all = offload || keep.word == KeepWord::all,
                                          .offload = offload,
                                          .names = names_of(keep.word)});
  }
  return choices;
}

}  // namespace dtk::policies
