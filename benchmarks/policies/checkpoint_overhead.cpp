// What the checkpointing engine costs a segment beyond the segment's own work: a chain of segments of one
// scalar multiplication each, minus the same chain without the engine; likewise of a multiplication and a
// tanh, whose result has to be recomputed: what is recomputed counts as cost. One side of
// checkpoint_overhead.py: a line "round" or "again" makes one round of both chains.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <dtk/policies/checkpoint.h>
#include <dtk/policies/saved_tensors.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdio>
#include <ctime>
#include <cxxopts.hpp>
#include <iostream>
#include <string>
#include <utility>

#include "support/bench_setup.h"

namespace {

using dtk::policies::checkpoint;
using dtk::policies::ModuleFn;
using dtk::policies::Tensors;

struct Micros {
  double forward = 0, backward = 0;  // of a segment
};

ModuleFn product(const at::Tensor& w) {
  return [w](Tensors&& in) { return Tensors{in[0] * w}; };
}

ModuleFn tanh_of_product(const at::Tensor& w) {
  return [w](Tensors&& in) { return Tensors{(in[0] * w).tanh()}; };
}

Micros pass(int64_t segments, bool checkpointed, const ModuleFn& body, const at::Tensor& x) {
  // Of the processor: other processes are no matter.
  const auto micros_since = [segments](std::clock_t begin) {
    return 1e6 / CLOCKS_PER_SEC * static_cast<double>(std::clock() - begin) / static_cast<double>(segments);
  };
  Micros micros;
  const std::clock_t begin = std::clock();
  Tensors h{x};
  for (int64_t i = 0; i < segments; ++i) {
    h = checkpointed ? checkpoint("net", body, std::move(h)) : body(std::move(h));
  }
  micros.forward = micros_since(begin);
  const std::clock_t middle = std::clock();
  torch::autograd::backward({h[0]}, {});
  h.clear();
  micros.backward = micros_since(middle);
  return micros;
}

void serve(int64_t segments) {
  at::set_num_threads(1);
  const dtk::policies::SavedTensorEngineGuard engine;
  const at::Tensor x = at::ones({}).requires_grad_(true), w = at::ones({}).requires_grad_(true);
  std::printf("ready 1\n");
  std::fflush(stdout);
  Micros over;
  for (std::string request; std::getline(std::cin, request);) {
    if (request == "round" || request == "again") {
      const ModuleFn body = request == "round" ? product(w) : tanh_of_product(w);
      const Micros with = pass(segments, true, body, x), without = pass(segments, false, body, x);
      over = {with.forward - without.forward, with.backward - without.backward};
      std::printf("%s %.4f\n", request.c_str(), over.forward + over.backward);
    } else {
      std::printf("forward %.4f\n", over.forward);  // of the latest round
    }
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  cxxopts::Options options("checkpoint-overhead",
                           "Answers 'round', 'again' and 'forward' with microseconds a segment");
  options.add_options()("segments", "of a chain", cxxopts::value<int64_t>()->default_value("10000"));
  return dtk::bench::main_of(
      "checkpoint-overhead", options, argc, argv,
      [](const cxxopts::ParseResult& parsed) { serve(parsed["segments"].as<int64_t>()); });
}
