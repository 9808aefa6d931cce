#include "support/catch_session.h"

#if __has_include(<catch2/catch_session.hpp>)
#include <catch2/catch_all.hpp>
#include <catch2/catch_session.hpp>
using EndListener = Catch::EventListenerBase;
#else
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
using EndListener = Catch::TestEventListenerBase;
#endif

namespace {

int checked = 0;

struct CountTests : EndListener {
  using EndListener::EndListener;
  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    if (stats.totals.assertions.total() > 0) ++checked;
  }
};

}  // namespace

CATCH_REGISTER_LISTENER(CountTests)

int dtk::test::run_catch(int argc, char** argv) {
  return Catch::Session().run(argc, argv);
}

int dtk::test::tests_that_checked() {
  return checked;
}
