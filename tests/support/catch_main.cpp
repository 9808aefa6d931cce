// The one translation unit with Catch2's main. Catch2 3 brings its own in Catch2::Catch2WithMain; using
// our own for both keeps the link line the same.
#if __has_include(<catch2/catch_session.hpp>)
#include <catch2/catch_session.hpp>
int main(int argc, char** argv) {
  return Catch::Session().run(argc, argv);
}
#else
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
#endif
