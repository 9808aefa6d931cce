#include <dtk/policies/policy.h>

#include <cstdio>
#include <cstdlib>
#include <typeinfo>

#include "fuzz/target.h"
#include "toolkit/core/errors.h"

namespace dtk::fuzz {
namespace {

[[noreturn]] void give_up(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::abort();
}

bool is_refused(const std::string& message) {
  constexpr size_t most = 10'000;
  if (message.empty() || message.size() > most)
    give_up("a message of " + std::to_string(message.size()) + " bytes: " + message.substr(0, 200));
  return false;
}

}  // namespace

bool attempt(const Target& target, std::string_view input) try {
  target.read(input);
  return true;
} catch (const Error& error) {
  return is_refused(error.what());
} catch (const policies::PolicyError& error) {
  return is_refused(error.what());
} catch (const std::exception& error) {
  give_up(std::string("threw ") + typeid(error).name() + ": " + error.what());
}

}  // namespace dtk::fuzz
