// Catch2 2.13 (Debian 12) and 3.x behind one include. No test includes Catch2 directly.
#pragma once
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif
