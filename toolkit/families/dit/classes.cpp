#include "toolkit/families/dit/classes.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <optional>
#include <stdexcept>

#include "toolkit/core/format.h"
#include "toolkit/core/suggestions.h"
#include "toolkit/core/text.h"

namespace dtk::dit {
namespace {

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(' ');
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(' ') + 1 - begin);
}

std::optional<int64_t> whole(const std::string& text) {
  int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  return digits && error == std::errc() && stop == end ? std::optional(number) : std::nullopt;
}

// "bird, cat, dog and 3 more"
std::string some_of(std::vector<std::string> names) {
  constexpr size_t most = 6;
  const size_t more = names.size() - std::min(most, names.size());
  names.resize(names.size() - more);
  if (more > 0) names.push_back(fmt::format("{} more", more));
  return listed(names, " and ");
}

}  // namespace

ClassChoice::ClassChoice(const std::string& text, int64_t classes) : classes_(classes) {
  for (const std::string& entry : split(text, ',')) {
    Part part{.text = trimmed(entry)};
    if (part.text.empty())
      throw std::invalid_argument("an entry is empty; allowed: names, numbers, ranges such as 0-4, and all");
    const size_t dash = part.text.find('-');
    part.may_be_name = true;
    const auto first = whole(part.text.substr(0, dash));
    const auto last = dash == std::string::npos ? first : whole(part.text.substr(dash + 1));
    if (part.text == "all") {
      part.count = classes;
      part.may_be_name = false;
    } else if (first && last && *first <= *last && *last < classes) {
      part.first = *first;
      part.count = *last - *first + 1;
      part.may_be_name = dash == std::string::npos;
    } else {
      part.is_name = true;
    }
    parts_.push_back(std::move(part));
  }
}

int64_t ClassChoice::count() const {
  return std::accumulate(parts_.begin(), parts_.end(), int64_t{0},
                         [](int64_t sum, const Part& part) { return sum + part.count; });
}

std::vector<int64_t> ClassChoice::labels(const std::vector<std::string>& names) const {
  std::vector<int64_t> labels;
  for (const Part& part : parts_) {
    const auto name = std::find(names.begin(), names.end(), part.text);
    if (name != names.end() && part.may_be_name) {
      labels.push_back(name - names.begin());
      continue;
    }
    if (part.is_name && part.text.find_first_not_of("0123456789-") == std::string::npos) {
      throw std::invalid_argument(
          fmt::format("{} is no class of this model; allowed: 0 to {}", part.text, classes_ - 1));
    }
    if (part.is_name) {
      const std::vector<std::string> near = near_names(part.text, names);
      throw std::invalid_argument(fmt::format("no class is called \"{}\"; {}", part.text,
                                              names.empty()
                                                  ? "no names of classes are known here; use their numbers"
                                              : !near.empty() ? "did you mean " + listed(near, " or ") + "?"
                                                              : "allowed: " + some_of(names)));
    }
    for (int64_t i = 0; i < part.count; ++i) labels.push_back(part.first + i);
  }
  return labels;
}

}  // namespace dtk::dit
