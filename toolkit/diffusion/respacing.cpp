#include "toolkit/diffusion/respacing.h"

#include <charconv>
#include <cmath>
#include <set>
#include <stdexcept>

#include "toolkit/core/format.h"
#include "toolkit/diffusion/diffusion_names.h"

namespace dtk {
namespace {

constexpr char kForms[] =
    "wanted: a number of steps (\"250\"), one for each of several equal sections (\"10,15,20\") or, for "
    "equal strides, \"ddim50\"";

int64_t parse_count(const std::string& text) {
  int64_t count = 0;
  const char* const end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, count);
  if (result.ec != std::errc() || result.ptr != end || count < 1) throw std::invalid_argument(kForms);
  return count;
}

std::vector<int64_t> parse_counts(const std::string& text) {
  std::vector<int64_t> counts;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(',', begin), text.size());
    counts.push_back(parse_count(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return counts;
}

int64_t strided_count(int64_t steps, int64_t stride) {
  return (steps + stride - 1) / stride;
}

[[noreturn]] void too_few(const std::string& what, int64_t has, int64_t asked) {
  throw std::invalid_argument(
      fmt::format("{} has {} steps, fewer than the {} asked of it", what, has, asked));
}

std::vector<int64_t> strided(int64_t count, int64_t steps) {
  if (count > steps) too_few("the diffusion", steps, count);
  int64_t stride = 1;
  while (strided_count(steps, stride) > count) ++stride;
  if (strided_count(steps, stride) != count) {
    throw std::invalid_argument(
        fmt::format("no whole stride through {} steps takes {} of them; the nearest are ddim{} and ddim{}",
                    steps, count, strided_count(steps, stride), strided_count(steps, stride - 1)));
  }
  std::vector<int64_t> kept;
  for (int64_t step = 0; step < steps; step += stride) kept.push_back(step);
  return kept;
}

std::vector<int64_t> in_sections(const std::vector<int64_t>& counts, int64_t steps) {
  const auto sections = static_cast<int64_t>(counts.size());
  std::set<int64_t> kept;
  int64_t start = 0;
  for (int64_t i = 0; i < sections; ++i) {
    const int64_t size = steps / sections + (i < steps % sections ? 1 : 0);
    const int64_t count = counts[static_cast<size_t>(i)];
    if (count > size) {
      too_few(sections == 1 ? "the diffusion" : fmt::format("section {} of {}", i + 1, sections), size,
              count);
    }
    const double stride = count > 1 ? static_cast<double>(size - 1) / static_cast<double>(count - 1) : 1.0;
    double position = 0.0;  // a sum and not a product: its rounding is part of the published steps
    for (int64_t k = 0; k < count; ++k) {
      kept.insert(start + static_cast<int64_t>(std::nearbyint(position)));  // half to even, the default mode
      position += stride;
    }
    start += size;
  }
  return {kept.begin(), kept.end()};
}

}  // namespace

std::vector<int64_t> respaced_steps(const std::string& text, int64_t steps) {
  const bool ddim = text.starts_with("ddim");
  std::vector<int64_t> kept =
      ddim ? strided(parse_count(text.substr(4)), steps) : in_sections(parse_counts(text), steps);
  if (static_cast<int64_t>(kept.size()) < kMinDiffusionSteps) {
    throw std::invalid_argument("that is one step, and a process needs at least two");
  }
  return kept;
}

}  // namespace dtk
