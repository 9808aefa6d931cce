#include "models/ops/cuda/silu_mul.h"

#include "cuda_on_cpu/kernel_values.h"

namespace {

using namespace cuda_on_cpu;
using namespace dtk::models::cuda;

Summary summary;

struct Tables {
  SiluMul its;
  std::size_t first;  // of the gates, in their table
  Values dy, gate, up;
  Values y, dgate, dup;

  // Random, or zeros that end in the values of `few`.
  explicit Tables(const SiluMul& s, std::size_t first_gate = 0, const Tables* few = nullptr)
      : its(s),
        first(first_gate),
        dy("dy", s.x, size(s.count, 1), {1, 0, 1}, few ? &few->dy : nullptr),
        gate("gate", s.x, size(s.count, 1) + first, {2, 0, 3}, few ? &few->gate : nullptr),
        up("up", s.x, size(s.count, 1), {3, 0, 1}, few ? &few->up : nullptr),
        y("y", s.x, up.size()),
        dgate("dgate", s.x, up.size()),
        dup("dup", s.x, up.size()) {}

  const void* gates() const { return static_cast<const std::byte*>(gate.data()) + first * bytes_of(its.x); }
  int forward() { return silu_mul_forward(its, gates(), up.data(), y.data(), nullptr); }
  int backward() {
    return silu_mul_backward(its, dy.data(), gates(), up.data(), dgate.data(), dup.data(), nullptr);
  }
  std::string bits() const { return bits_of({&y, &dgate, &dup}); }
};

struct Reference {
  Wanted y, dgate, dup;
};

long double silu(long double x) {
  return x / (1 + std::exp(-x));
}

// The derivative by central differences of long double, relative to the value where that is far below 1. y is
// linear in `up`: its derivative is what it changes by where that grows by 1.
Reference reference(const Tables& in) {
  constexpr long double kStep = 1e-6L;
  Reference out{Wanted(in.up.size()), Wanted(in.up.size()), Wanted(in.up.size())};
  for (std::size_t at = 0; at < in.up.size(); ++at) {
    const long double gate = in.gate[in.first + at];
    const auto value = static_cast<double>(silu(gate));
    const auto slope = static_cast<double>((silu(gate + kStep) - silu(gate - kStep)) / (2 * kStep));
    out.y.add(at, value * in.up[at]);
    out.dup.add(at, in.dy[at] * (value * (in.up[at] + 1) - value * in.up[at]));
    out.dgate.add(at, in.dy[at] * in.up[at] * slope);
    // It is a sum of two terms, which cancel near its root.
    const long double sigmoid = 1 / (1 + std::exp(-gate));
    const auto terms = static_cast<double>(sigmoid * (1 + std::abs(gate) * (1 - sigmoid)));
    out.dgate.terms[at] = std::abs(in.dy[at] * in.up[at]) * terms;
  }
  return out;
}

void look(Tables& tables) {
  const Reference want = reference(tables);
  CHECK(summary.take("y", tables.y, want.y) <= 1);
  CHECK(summary.take("dgate", tables.dgate, want.dgate) <= 1);
  CHECK(summary.take("dup", tables.dup, want.dup) <= 1);
}

}  // namespace

TEST_CASE("silu_mul: each type, and counts that fours and blocks do not divide") {
  for (const Type x : kTypes)
    for (const std::int64_t count : {1, 2, 3, 4, 5, 7, 257, 1023, 1024, 1025, 5 * 1024 + 3}) {
      CAPTURE(name_of(x), count);
      under_schedules([&] { return Tables({count, x}); }, look);
    }
}

TEST_CASE("silu_mul: tables that begin anywhere") {
  for (const Type x : kTypes)
    for (const std::size_t first : {1, 2, 4}) {
      CAPTURE(name_of(x), first);
      under_schedules([&] { return Tables({1030, x}, first); }, look);
    }
}

TEST_CASE("silu_mul: far from zero") {
  constexpr int kCount = 440;
  Tables tables({kCount, Type::fp32});
  for (std::size_t i = 0; i < kCount; ++i) tables.gate.set(i, (static_cast<double>(i) - 220) / 2);
  REQUIRE(tables.forward() == cudaSuccess);
  REQUIRE(tables.backward() == cudaSuccess);
  look(tables);
}

TEST_CASE("silu_mul: the largest numbers") {
  for (const Type x : kTypes) {
    Tables tables({4, x});
    const double largest = x == Type::fp16 ? 65504 : 3e38;
    for (std::size_t i = 0; i < 4; ++i) {
      tables.gate.set(i, std::array{-1.0, 1.0, -1.0, 1.0}[i] * largest);
      tables.up.set(i, std::array{largest, 0.5, -largest, -1.0}[i]);
      tables.dy.set(i, 1);
    }
    REQUIRE(tables.forward() == cudaSuccess);
    REQUIRE(tables.backward() == cudaSuccess);
    for (std::size_t i = 0; i < 4; ++i) {
      CHECK(tables.y[i] == (i % 2 == 0 ? 0 : tables.gate[i] * tables.up[i]));
      CHECK(tables.dgate[i] == (i % 2 == 0 ? 0 : tables.up[i]));
      CHECK(tables.dup[i] == (i % 2 == 0 ? 0 : tables.gate[i]));
    }
  }
}

TEST_CASE("silu_mul: nothing to do") {
  const std::uint64_t before = counts().blocks;
  Tables tables({0, Type::fp32});
  CHECK(tables.forward() == cudaSuccess);
  CHECK(tables.backward() == cudaSuccess);
  CHECK(counts().blocks == before);
}

TEST_CASE("silu_mul: more than 2^31 elements") {
  for (const std::size_t first : {0, 1}) {
    CAPTURE(first);
    set_schedule({});
    Tables few({1024 + 3, Type::bf16}, first);
    REQUIRE(few.forward() == cudaSuccess);
    REQUIRE(few.backward() == cudaSuccess);
    Tables many({(std::int64_t{1} << 31) + 4 * 1024 + 3, Type::bf16}, first, &few);
    run_last_blocks(5);
    REQUIRE(many.forward() == cudaSuccess);
    REQUIRE(many.backward() == cudaSuccess);
    for (const auto& [got, want] :
         {std::pair(&many.y, &few.y), std::pair(&many.dgate, &few.dgate), std::pair(&many.dup, &few.dup)})
      CHECK(same_end(*got, *want, few.up.size()));
  }
}

TEST_CASE("silu_mul: all accesses were checked") {
  CHECK(counts().accesses > 100000);
}
