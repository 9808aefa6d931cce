// Linked into a program, it gives it the policy.
#include "integration/own_policy/rounded.h"

namespace {

struct Registration {
  Registration() { dtk::policies::register_policy(kind); }
  const own::RoundedKind kind;
} const registration;

}  // namespace
