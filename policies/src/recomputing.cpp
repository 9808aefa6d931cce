#include "recomputing.h"

#include <dtk/policies/checkpoint.h>

#include <cstring>
#include <utility>

namespace dtk::policies {
namespace {

thread_local bool running_again = false;
thread_local int64_t times_asked = 0;
thread_local RunningStatisticsWatch* innermost = nullptr;

}  // namespace

bool recomputing() {
  ++times_asked;
  return running_again;
}

bool is_recomputing() {
  return running_again;
}

RecomputingScope::RecomputingScope() : previous_(std::exchange(running_again, true)) {}

RecomputingScope::~RecomputingScope() {
  running_again = previous_;
}

RunningStatisticsWatch::RunningStatisticsWatch()
    : asked_(times_asked),
      outer_(std::exchange(innermost, this)),
      handle_(at::addThreadLocalCallback(
          at::RecordFunctionCallback(&on_operator).needsInputs(true).scopes({at::RecordScope::FUNCTION}))) {}

RunningStatisticsWatch::~RunningStatisticsWatch() {
  at::removeCallback(handle_);
  innermost = outer_;
}

std::string RunningStatisticsWatch::found() const {
  return times_asked == asked_ ? operator_ : std::string();
}

// All forms take (input, weight, bias, running_mean, running_var, training, ...); one is for training only.
std::unique_ptr<at::ObserverContext> RunningStatisticsWatch::on_operator(const at::RecordFunction& fn) {
  if (std::strstr(fn.name(), "batch_norm") == nullptr || fn.num_inputs() < 6) return nullptr;
  const auto inputs = fn.inputs();
  const bool training = (inputs[5].isBool() && inputs[5].toBool()) ||
                        std::strcmp(fn.name(), "aten::_batch_norm_with_update") == 0;
  if (training && inputs[3].isTensor() && inputs[3].toTensor().defined() && innermost != nullptr) {
    innermost->operator_ = fn.name();
  }
  return nullptr;
}

}  // namespace dtk::policies
