#include <dtk/policies/internal/recomputing.h>

namespace dtk::policies {
namespace {

thread_local bool is_recomputing = false;

}  // namespace

bool recomputing() {
  return is_recomputing;
}

RecomputingScope::RecomputingScope() : again_(is_recomputing, true) {}

}  // namespace dtk::policies
