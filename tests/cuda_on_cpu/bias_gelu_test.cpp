#include "models/ops/cuda/bias_gelu.h"

#include <numbers>

#include "cuda_on_cpu/kernel_values.h"

namespace {

using namespace cuda_on_cpu;
using namespace dtk::models::cuda;

Summary summary;

struct Tables {
  BiasGelu its;
  Values x, dy, bias;
  Values y, partial, dx, dbias;

  // Random, or zeros that end in the rows of `few`.
  explicit Tables(const BiasGelu& s, const Tables* few = nullptr)
      : its(s),
        x("x", s.x, size(s.R, s.D), {1, 0, 2}, few ? &few->x : nullptr),
        dy("dy", s.x, size(s.R, s.D), {2, 0, 1}, few ? &few->dy : nullptr),
        bias("bias", s.bias, size(s.D, 1), {3, 0, 1}, few ? &few->bias : nullptr),
        y("y", s.x, x.size()),
        partial("partial", Type::fp32, size(chunks(s.R), s.D), few != nullptr),
        dx("dx", s.x, x.size()),
        dbias("dbias", s.bias, size(s.D, 1)) {}

  int forward() { return bias_gelu_forward(its, x.data(), bias.data(), y.data(), nullptr); }
  int backward_in_place() {
    return bias_gelu_backward(its, dy.data(), x.data(), bias.data(), partial.floats(), dy.data(),
                              dbias.data(), nullptr);
  }
  int backward() {
    return bias_gelu_backward(its, dy.data(), x.data(), bias.data(), partial.floats(), dx.data(),
                              dbias.data(), nullptr);
  }
  std::string bits() const { return bits_of({&y, &partial, &dx, &dbias}); }
};

struct Reference {
  Wanted y, dx, dbias;
};

long double gelu(long double x) {
  const long double inner = std::sqrt(2 / std::numbers::pi_v<long double>) * (x + 0.044715L * x * x * x);
  return 0.5L * x * (1 + std::tanh(inner));
}

// The derivative by central differences, whose error is some 1e-13.
Reference reference(const Tables& in) {
  const BiasGelu& s = in.its;
  constexpr long double kStep = 1e-6L;
  Reference out{Wanted(in.x.size()), Wanted(in.x.size()), Wanted(in.dbias.size())};
  for (std::size_t at = 0; at < in.x.size(); ++at) {
    const std::size_t d = at % size(s.D, 1);
    const long double sum = static_cast<long double>(in.x[at]) + in.bias[d];
    const auto slope = static_cast<double>((gelu(sum + kStep) - gelu(sum - kStep)) / (2 * kStep));
    out.y.add(at, static_cast<double>(gelu(sum)));
    out.y.terms[at] = static_cast<double>(std::abs(sum));  // 1 + tanh loses digits where tanh is near -1
    out.dx.add(at, in.dy[at] * slope);
    out.dbias.add(d, in.dy[at] * slope);
    const double lost = std::abs(in.dy[at]) * static_cast<double>(1 + sum * sum);
    out.dx.terms[at] = lost;
    out.dbias.terms[d] += lost;
  }
  return out;
}

void check(const BiasGelu& s) {
  CAPTURE(s.R, s.D, name_of(s.x), name_of(s.bias));
  under_schedules([&] { return Tables(s); },
                  [](Tables& tables) {
                    const Reference want = reference(tables);
                    CHECK(summary.take("y", tables.y, want.y) <= 1);
                    CHECK(summary.take("dx", tables.dx, want.dx) <= 1);
                    CHECK(summary.take("dbias", tables.dbias, want.dbias) <= 1);
                    const std::string beside = bits_of({&tables.dx, &tables.partial, &tables.dbias});
                    REQUIRE(tables.backward_in_place() == cudaSuccess);
                    CHECK((bits_of({&tables.dy, &tables.partial, &tables.dbias}) == beside));
                  });
}

bool is_supported(Type x, Type bias) {
  return bias == Type::fp32 || bias == x;
}

}  // namespace

TEST_CASE("bias_gelu: each combination of types") {
  for (const Type x : kTypes)
    for (const Type bias : kTypes)
      if (is_supported(x, bias))
        for (const auto& [R, D] :
             {std::pair(3, 1), std::pair(9, 4), std::pair(65, 37), std::pair(130, 260), std::pair(64, 129),
              std::pair(8, 1152), std::pair(600, 12), std::pair(2, 4608)})
          check({R, D, x, bias});
}

TEST_CASE("bias_gelu: dx in dy's place") {
  for (const Schedule& schedule : kSchedules) {
    for (const auto& [R, D] : {std::pair(130, 260), std::pair(65, 37)}) {
      set_schedule(schedule);
      Tables tables({R, D, Type::bf16, Type::fp32});
      REQUIRE(tables.backward() == cudaSuccess);
      const std::string apart = bits_of({&tables.dx, &tables.dbias});
      REQUIRE(bias_gelu_backward(tables.its, tables.dy.data(), tables.x.data(), tables.bias.data(),
                                 tables.partial.floats(), tables.dy.data(), tables.dbias.data(),
                                 nullptr) == cudaSuccess);
      CHECK((apart == bits_of({&tables.dy, &tables.dbias})));
    }
  }
}

TEST_CASE("bias_gelu: far from zero") {
  Tables tables({1, 4, Type::fp32, Type::fp32});
  for (std::size_t i = 0; i < 4; ++i) {
    tables.x.set(i, std::array{-1e4, -20.0, 20.0, 1e4}[i]);
    tables.dy.set(i, 1);
    tables.bias.set(i, 0);
  }
  REQUIRE(tables.forward() == cudaSuccess);
  REQUIRE(tables.backward() == cudaSuccess);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(tables.y[i] == std::max(tables.x[i], 0.0));
    CHECK(tables.dx[i] == (i < 2 ? 0.0 : 1.0));
  }
}

TEST_CASE("bias_gelu: types that are not supported") {
  for (const Type x : kTypes)
    for (const Type bias : kTypes) {
      Tables tables({1, 4, x, bias});
      const int want = is_supported(x, bias) ? cudaSuccess : cudaErrorInvalidValue;
      CHECK(tables.forward() == want);
      CHECK(tables.backward() == want);
    }
}

TEST_CASE("bias_gelu: nothing to do") {
  const std::uint64_t before = counts().blocks;
  for (const auto& [R, D] : {std::pair(0, 8), std::pair(4, 0)}) {
    Tables tables({R, D});
    CHECK(tables.forward() == cudaSuccess);
    CHECK(tables.backward() == cudaSuccess);
  }
  CHECK(counts().blocks == before);
}

TEST_CASE("bias_gelu: more than 2^31 elements") {
  for (const std::int64_t D : {4608, 1151}) {
    CAPTURE(D);
    set_schedule({});
    Tables few({kChunkRows, D, Type::bf16, Type::bf16});
    REQUIRE(few.forward() == cudaSuccess);
    REQUIRE(few.backward() == cudaSuccess);
    BiasGelu its = few.its;
    its.R = ((std::int64_t{1} << 31) / D / kChunkRows + 2) * kChunkRows;
    Tables many(its, &few);
    run_last_blocks(1);
    REQUIRE(many.forward() == cudaSuccess);
    CHECK(same_end(many.y, few.y, 4));
    REQUIRE(many.backward() == cudaSuccess);
    CHECK(same_end(many.dx, few.dx, 4));
    CHECK(same_end(many.partial, few.partial, 4));
    CHECK(same_end(many.dbias, few.dbias, 4));
    REQUIRE(many.backward_in_place() == cudaSuccess);
    CHECK(same_end(many.dy, few.dx, 4));
  }
}

TEST_CASE("bias_gelu: all accesses were checked") {
  CHECK(counts().accesses > 1000000);
}
