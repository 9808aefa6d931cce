// Catch2 2.13 (Debian 12) and 3.x behind one include. No test includes Catch2 directly.
#pragma once
#define CATCH_CONFIG_ENABLE_PAIR_STRINGMAKER
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif

#include <map>
#include <set>
#include <vector>

// LibTorch has operator<< for containers in namespace std, of whatever elements: Catch2 must not take them.
namespace Catch::Detail {
struct NotInsertable {
  static constexpr bool value = false;
};
template <class... T>
class IsStreamInsertable<std::vector<T...>> : public NotInsertable {};
template <class... T>
class IsStreamInsertable<std::map<T...>> : public NotInsertable {};
template <class... T>
class IsStreamInsertable<std::set<T...>> : public NotInsertable {};
}  // namespace Catch::Detail
