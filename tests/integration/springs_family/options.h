// The table [springs].
#pragma once
#include <cstdint>
#include <string>

#include "toolkit/config/config.h"

namespace springs {

struct Table {
  std::string recording;     // file (recording.h)
  std::string held_out;      // file of samples never trained on; "": none
  int64_t steps = 8;         // of the forces and of what follows; the recording's too
  int64_t width = 16;        // of a token, which is a step
  int64_t heads = 2;         // of attention; width must be divisible
  int64_t depth = 2;         // blocks
  double delta = 0.5;        // error (m) from which on the loss is linear
  double late_weight = 2.0;  // of the last step's error; of the first 1
  double jitter = 0.05;      // deviation of noise (m, m/s) on the starts that are trained on
  int64_t drawn = 4;         // samples whose future is drawn, held-out ones if there are some; 0: none
  double spread = 0.0;       // deviation of noise (m, m/s) on the starts that are drawn from
  int64_t seed = 0;          // of that noise

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [recording, held_out, steps, width, heads, depth, delta, late_weight, jitter, drawn, spread, seed] =
        self;
    visit("recording", recording, "");
    visit("held_out", held_out, "");
    visit("steps", steps, "[1, 4096]");
    visit("width", width, "[1, 4096]");
    visit("heads", heads, "[1, 64]");
    visit("depth", depth, "[1, 64]");
    visit("delta", delta, "(0, inf)");
    visit("late_weight", late_weight, "(0, inf)");
    visit("jitter", jitter, "[0, inf)");
    visit("drawn", drawn, "[0, 65536]");
    visit("spread", spread, "[0, inf)");
    visit("seed", seed, "[0, inf)");
  }
  friend bool operator==(const Table&, const Table&) = default;
};

struct Options {
  Table springs;

  template <class Self, class Visit>
  static void tables(Self& self, Visit&& visit) {
    visit("springs", self.springs);
  }
  friend bool operator==(const Options&, const Options&) = default;
};

inline const Table& table_of(const dtk::RunConfig& config) {
  return config.families.of<Options>().springs;
}

}  // namespace springs
