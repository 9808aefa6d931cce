// Which steps of a diffusion process a shorter sampling process keeps. Free of LibTorch.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace dtk {

/// The kept ones of steps 0 .. `steps` - 1, ascending, by the rules of the original DiT. `text` is
///   "n"       n steps from the first to the last: i·(steps-1)/(n-1), accumulated in floating point and
///             rounded half to even;
///   "a,b,c"   as many equal sections as there are counts, an extra step in each of the first where they do
///             not divide; each section by the rule of "n";
///   "ddimN"   the first whole stride from 0 that gives N steps.
/// Throws std::invalid_argument, with what is allowed, for a text of no such form, a section of fewer steps
/// than it should give, an N that no stride gives, and fewer than two steps in all.
std::vector<int64_t> respaced_steps(const std::string& text, int64_t steps);

}  // namespace dtk
