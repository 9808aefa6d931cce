// The table [springs].
#pragma once
#include <cstdint>
#include <string>

#include "toolkit/config/config.h"

namespace springs {

struct Table {
  std::string recording;
  std::string held_out;
  int64_t steps = 8;
  int64_t width = 16;
  int64_t heads = 2;
  int64_t depth = 2;
  double delta = 0.5;
  double late_weight = 2.0;
  double jitter = 0.05;
  int64_t drawn = 4;
  double spread = 0.0;
  int64_t seed = 0;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [recording, held_out, steps, width, heads, depth, delta, late_weight, jitter, drawn, spread, seed] =
        self;
    visit("recording", recording, "", "file to train on");
    visit("held_out", held_out, "", "file of samples that are never trained on; \"\": none");
    visit("steps", steps, "[1, 4096]", "of the forces and of what follows; the recording's too");
    visit("width", width, "[1, 4096]", "of a token, which is a step; divisible by heads");
    visit("heads", heads, "[1, 64]", "of attention");
    visit("depth", depth, "[1, 64]", "blocks");
    visit("delta", delta, "(0, inf)", "error (m) from which on the loss is linear");
    visit("late_weight", late_weight, "(0, inf)", "of the last step's error; of the first 1");
    visit("jitter", jitter, "[0, inf)", "deviation of noise (m, m/s) on the starts that are trained on");
    visit("drawn", drawn, "[0, 65536]",
          "samples whose future is drawn, held-out ones if there are some; 0: none");
    visit("spread", spread, "[0, inf)", "deviation of noise (m, m/s) on the starts that are drawn from");
    visit("seed", seed, "[0, inf)", "of the noise on starts that are drawn from");
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
