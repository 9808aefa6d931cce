// Images and labels that a judge worth its name rejects.
#pragma once
#include <string>
#include <vector>

#include "judging.h"

namespace dtk::judging {

struct Control {
  std::string name;
  Judge::Score score;
  bool told = false;   // the judge rejected it
  std::string wanted;  // what that takes, e.g. "fd above 100"
};

/// Real test images under shuffled labels must score like chance; uniform noise and blurred test images must
/// be far from real ones. Fixed seeds.
std::vector<Control> run_controls(Judge& judge);

}  // namespace dtk::judging
