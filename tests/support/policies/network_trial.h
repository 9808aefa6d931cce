// Trains a random network plainly and with its segments, and plans the latter: what differs.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "support/policies/random_networks.h"

namespace dtk::bench {

struct NetworkTrial {
  /// Each a line: a value whose bits differ between the plain run and the one with segments, or bytes that
  /// differ between the latter and its plan.
  std::vector<std::string> different_values, different_bytes;
  /// What the forward pass of the last step left alive, alone and with segments. Random states that segments
  /// keep are in it.
  int64_t held_plain = 0, held = 0;
  int64_t offloaded = 0;  // to host memory, at the most
  int64_t values = 0;     // tensors compared
  int64_t storages = 0;   // compared: those of the run with segments that outlive their operator
  bool saves() const { return held < held_plain; }
};

/// Two steps of stochastic gradient descent on the CPU each. Compared to the bit: in each step the outputs
/// and the gradients of all leaves, after both the weights, statistics and counters. Compared to the byte,
/// without scratch: what is alive after each forward pass, the highest sum of each phase, and
/// the storages born by owner; for host memory likewise. Throws what a run throws, and std::runtime_error
/// where a value is not finite, so that nothing was compared. One at a time in a process.
NetworkTrial try_network(const RandomNetwork& network);

}  // namespace dtk::bench
