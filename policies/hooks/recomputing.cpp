#include <dtk/policies/recomputing.h>

namespace dtk::policies {
namespace {

thread_local bool running_again = false;

}  // namespace

bool recomputing() {
  return running_again;
}

RecomputingScope::RecomputingScope() : again_(running_again, true) {}

}  // namespace dtk::policies
