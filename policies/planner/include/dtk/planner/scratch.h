// Scratch of CPU kernels: what one call of an operator takes by LibTorch's allocator for itself and frees
// before it ends.
//
// A plan knows it in one of three ways. Element-wise operators, and others that tests hold to it, take none.
// A few kernels have a formula of shapes and threads (cpu_kernels.cpp). What is left is decided by libraries,
// the machine's instructions and the number of threads: it is measured (measure_scratch()) or not known, and
// then counted as 0 and named. Memory that MKL and oneDNN take from the C library is no storage and in none
// of this.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

namespace dtk::planner {

/// A call by all that its scratch may depend on, but for the values of tensors.
struct OperatorCall {
  std::string operation;  // "aten::mm"
  std::string arguments;  // "BFloat16[64,384], BFloat16[384,1536]:1,384"; strides follow where they have gaps
  friend auto operator<=>(const OperatorCall&, const OperatorCall&) = default;
};

/// What a call was seen to take, in bytes. A kernel may free some of it before it makes its result.
struct ScratchBytes {
  int64_t most = 0;            // alive at once
  int64_t beside_results = 0;  // by which the call's highest sum exceeds its results'; not above `most`
  friend bool operator==(const ScratchBytes&, const ScratchBytes&) = default;
};
using MeasuredScratch = std::map<OperatorCall, ScratchBytes>;

/// Calls of one plan as they can be repeated, each once.
struct NotedCalls;

struct PlannedScratch {
  std::string source;          // SimulationOptions::scratch_source
  int64_t measured_calls = 0;  // different ones, booked as they were measured
  int64_t largest = 0;         // bytes, of those
  std::set<std::string>
      not_known;  // operators of which at least one call has neither formula nor measurement
  std::shared_ptr<const NotedCalls> calls;  // all that a measurement could tell of; null unless asked for
};

/// Makes each call on the CPU with as many threads as at::get_num_threads() and memory of its own, zeros, and
/// reads its scratch off the ledger. With several threads a call is made a few times and the most that each
/// of them was seen to take counts: at the most for two threads, the most seen for more; exact for one. Not
/// within a ShapesOnlyScope, and while nobody else allocates. `goes_on` is asked before each call; once it
/// says no, what is not measured yet is left out. Throws PlanError for a call that fails.
MeasuredScratch measure_scratch(const NotedCalls& calls, const std::function<bool()>& goes_on = nullptr);

}  // namespace dtk::planner
