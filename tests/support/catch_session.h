// Catch2's own code, which is compiled once for all test programs.
#pragma once

namespace dtk::test {

/// Runs the tests that the arguments choose. Returns what main() is to return.
int run_catch(int argc, char** argv);

/// How many tests of this process have looked at something.
int tests_that_checked();

}  // namespace dtk::test
