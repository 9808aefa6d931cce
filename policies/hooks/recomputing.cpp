#include <dtk/policies/recomputing.h>

#include <utility>

namespace dtk::policies {
namespace {

thread_local bool running_again = false;

}  // namespace

bool recomputing() {
  return running_again;
}

RecomputingScope::RecomputingScope() : previous_(std::exchange(running_again, true)) {}

RecomputingScope::~RecomputingScope() {
  running_again = previous_;
}

}  // namespace dtk::policies
