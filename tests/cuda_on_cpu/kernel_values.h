// Tables of three types for the kernels under test, random values for them, and how far results are from
// references.
#pragma once

#include <array>
#include <cstdio>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "cuda_on_cpu.h"
#include "models/ops/cuda/types.h"
#include "support/catch.h"

namespace cuda_on_cpu {

using dtk::models::cuda::Type;
using Doubles = std::vector<double>;

constexpr Type kTypes[] = {Type::fp32, Type::bf16, Type::fp16};
constexpr Schedule kSchedules[] = {{Order::ascending, Order::ascending},
                                   {Order::descending, Order::descending},
                                   {Order::shuffled, Order::shuffled, 1},
                                   {Order::shuffled, Order::shuffled, 2}};

using Types = std::array<Type, 3>;  // of the main tensor, another one, what conditions them
inline const std::set<Types> kSupported{
    {Type::fp32, Type::fp32, Type::fp32}, {Type::fp32, Type::bf16, Type::bf16},
    {Type::fp32, Type::fp16, Type::fp16}, {Type::fp32, Type::bf16, Type::fp32},
    {Type::fp32, Type::fp16, Type::fp32}, {Type::fp32, Type::fp32, Type::bf16},
    {Type::fp32, Type::fp32, Type::fp16}, {Type::bf16, Type::bf16, Type::bf16},
    {Type::fp16, Type::fp16, Type::fp16}};

inline std::size_t size(std::int64_t a, std::int64_t b, std::int64_t c = 1) {
  return static_cast<std::size_t>(a * b * c);
}
inline std::size_t bytes_of(Type type) {
  return type == Type::fp32 ? 4 : 2;
}
inline const char* name_of(Type type) {
  return type == Type::fp32 ? "fp32" : type == Type::bf16 ? "bf16" : "fp16";
}

inline Doubles random_values(std::size_t size, unsigned seed, double mean, double deviation) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(mean, deviation);
  Doubles values(size);
  for (double& value : values) value = normal(random);
  return values;
}

struct Normal {
  unsigned seed;
  double mean, deviation;
};

// Device memory of a type that is known at run time.
class Values {
 public:
  Values(const std::string& name, Type type, std::size_t size, bool written = false)
      : type_(type), bytes_(name, size * bytes_of(type), written) {}
  Values(const std::string& name, Type type, const Doubles& from) : Values(name, type, from.size(), true) {
    for (std::size_t i = 0; i < from.size(); ++i) set(i, from[i]);
  }
  // Random values; where there is an `end`, zeros that end in its values.
  Values(const std::string& name, Type type, std::size_t size, const Normal& random, const Values* end)
      : Values(name, type, size, true) {
    if (end != nullptr)
      std::memcpy(static_cast<std::byte*>(data()) + (size - end->size()) * bytes_of(type), end->data(),
                  end->size() * bytes_of(type));
    else
      for (std::size_t i = 0;
           const double value : random_values(size, random.seed, random.mean, random.deviation))
        set(i++, value);
  }
  void* data() const { return bytes_.data(); }
  float* floats() const { return static_cast<float*>(data()); }
  std::size_t size() const { return bytes_.values().size() / bytes_of(type_); }
  Type type() const { return type_; }

  void set(std::size_t i, double value) {
    const auto rounded = static_cast<float>(value);
    if (type_ == Type::fp32) at<float>(i) = rounded;
    if (type_ == Type::bf16) at<__nv_bfloat16>(i) = __float2bfloat16_rn(rounded);
    if (type_ == Type::fp16) at<__half>(i) = __float2half_rn(rounded);
  }
  double operator[](std::size_t i) const {
    if (type_ == Type::fp32) return at<float>(i);
    return type_ == Type::bf16 ? __bfloat162float(at<__nv_bfloat16>(i)) : __half2float(at<__half>(i));
  }
  std::string bits() const { return {reinterpret_cast<const char*>(data()), size() * bytes_of(type_)}; }

 private:
  template <class T>
  T& at(std::size_t i) const {
    return static_cast<T*>(data())[i];
  }
  Type type_;
  Buffer<std::byte> bytes_;
};

// Whether the last values of `got` are the last of `want`, bit by bit.
inline bool same_end(const Values& got, const Values& want, std::size_t count) {
  const auto end = [&](const Values& values) {
    return static_cast<const std::byte*>(values.data()) + (values.size() - count) * bytes_of(values.type());
  };
  return std::memcmp(end(got), end(want), count * bytes_of(got.type())) == 0;
}

inline void run_last_blocks(std::int64_t count) {
  Schedule schedule;
  schedule.last_blocks = count;
  set_schedule(schedule);
}

// A result as it should be, and the sum of the magnitudes of what is added up in it.
struct Wanted {
  Doubles values, terms;
  explicit Wanted(std::size_t size) : values(size), terms(size) {}
  void add(std::size_t i, double term) {
    values[i] += term;
    terms[i] += std::abs(term);
  }
};

// Half the distance of neighbours of the type: what rounding a result once may cost.
inline double half_ulp(Type type, double value) {
  const int digits = type == Type::fp32 ? 24 : type == Type::bf16 ? 8 : 11;
  const int lowest = type == Type::fp16 ? -14 : -126;
  const int exponent = value == 0 ? lowest : std::max(lowest, std::ilogb(value));
  return std::ldexp(1.0, exponent - digits);
}

// The largest error in units of what is allowed: half an ulp of the result's type, and of fp32's arithmetic
// 2^-24 for each of eight roundings on the way to a result, relative to the terms. Infinite if a result is
// NaN.
inline double worst(const Values& got, const Wanted& want) {
  constexpr double kArithmetic = 5e-7;
  double result = got.size() == want.values.size() ? 0 : HUGE_VAL;
  for (std::size_t i = 0; i < want.values.size(); ++i) {
    const double error = std::abs(got[i] - want.values[i]);
    const double ratio = error / (half_ulp(got.type(), want.values[i]) + kArithmetic * want.terms[i]);
    result = std::isnan(ratio) ? HUGE_VAL : std::max(result, ratio);
  }
  return result;
}

inline std::string bits_of(std::initializer_list<const Values*> tables) {
  std::string all;
  for (const Values* table : tables) all += table->bits();
  return all;
}

// Runs both passes of a case, made anew for each schedule: all have the same results, and `look` sees the
// first ones.
template <class Make, class Look>
void under_schedules(Make make, Look look) {
  std::string first;
  for (const Schedule& schedule : kSchedules) {
    set_schedule(schedule);
    auto tables = make();
    REQUIRE(tables.forward() == cudaSuccess);
    REQUIRE(tables.backward() == cudaSuccess);
    if (first.empty()) {
      first = tables.bits();
      look(tables);
    } else {
      CHECK((first == tables.bits()));
    }
  }
}

// The largest of each result over a program's cases, told at its end.
class Summary {
 public:
  ~Summary() {
    for (const auto& [name, ratio] : worst_) std::printf("%s: %.3f of the tolerance\n", name.c_str(), ratio);
    std::printf("%llu blocks, %llu accesses checked\n", static_cast<unsigned long long>(counts().blocks),
                static_cast<unsigned long long>(counts().accesses));
  }
  double take(const std::string& name, const Values& got, const Wanted& want) {
    const double ratio = worst(got, want);
    double& of_all = worst_[name + " " + name_of(got.type())];
    of_all = std::max(of_all, ratio);
    return ratio;
  }

 private:
  std::map<std::string, double> worst_;
};

}  // namespace cuda_on_cpu
