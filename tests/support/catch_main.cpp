// main() of the test programs without a device. Ours for Catch2 2 and 3 alike, so that the link line is the
// same.
#include "support/catch_session.h"

int main(int argc, char** argv) {
  return dtk::test::run_catch(argc, argv);
}
