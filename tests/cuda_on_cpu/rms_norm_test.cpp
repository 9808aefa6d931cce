#include "models/ops/cuda/rms_norm.h"

#include "cuda_on_cpu/kernel_values.h"

namespace {

using namespace cuda_on_cpu;
using namespace dtk::models::cuda;

constexpr float kEpsilon = 1e-5F;
Summary summary;

struct Tables {
  RmsNorm its;
  Values x, dy, weight;
  Values y, rstd, partial, dx, dweight;

  // Random, or zeros that end in the rows of `few`.
  explicit Tables(const RmsNorm& s, const Tables* few = nullptr)
      : its(s),
        x("x", s.x, size(s.R, s.D), {1, 0.5, 2}, few ? &few->x : nullptr),
        dy("dy", s.y, size(s.R, s.D), {2, 0, 1}, few ? &few->dy : nullptr),
        weight("weight", s.weight, size(s.D, 1), {3, 1, 0.5}, few ? &few->weight : nullptr),
        y("y", s.y, x.size()),
        rstd("rstd", Type::fp32, size(s.R, 1)),
        partial("partial", Type::fp32, size(chunks(s.R), s.D), few != nullptr),
        dx("dx", s.x, x.size()),
        dweight("dweight", s.weight, size(s.D, 1)) {}

  int forward() {
    return rms_norm_forward(its, x.data(), weight.data(), kEpsilon, y.data(), rstd.floats(), nullptr);
  }
  int backward(bool summed = true) {
    return rms_norm_backward(its, dy.data(), x.data(), rstd.floats(), weight.data(),
                             summed ? partial.floats() : nullptr, dx.data(),
                             summed ? dweight.data() : nullptr, nullptr);
  }
  std::string bits() const { return bits_of({&y, &rstd, &partial, &dx, &dweight}); }
};

struct Reference {
  Wanted y, rstd, dx, dweight;
};

// The chain rule through the steps square, mean, inverse root and the two products, one after the other.
Reference reference(const Tables& in) {
  const RmsNorm& s = in.its;
  Reference out{Wanted(in.x.size()), Wanted(size(s.R, 1)), Wanted(in.x.size()), Wanted(size(s.D, 1))};
  for (std::size_t row = 0; row < size(s.R, 1); ++row) {
    const std::size_t D = size(s.D, 1), base = row * D;
    double square = 0;
    for (std::size_t d = 0; d < D; ++d) square += in.x[base + d] * in.x[base + d];
    const double mean = square / static_cast<double>(D) + static_cast<double>(kEpsilon);
    const double root = std::sqrt(mean);
    out.rstd.add(row, 1 / root);
    double by_root = 0, terms = 0;
    for (std::size_t d = 0; d < D; ++d) {
      const double x = in.x[base + d], normal = x / root, dy = in.dy[base + d], weight = in.weight[d];
      out.y.add(base + d, normal * weight);
      out.dweight.add(d, dy * normal);
      out.dx.add(base + d, dy * weight / root);
      by_root -= dy * weight * x / mean;
      terms += std::abs(dy * weight * x / mean);
    }
    const double by_square = by_root / (2 * root) / static_cast<double>(D);
    for (std::size_t d = 0; d < D; ++d) {
      const double x = in.x[base + d];
      out.dx.add(base + d, by_square * 2 * x);
      out.dx.terms[base + d] += terms / root / static_cast<double>(D) * std::abs(x);
    }
  }
  return out;
}

void check(const RmsNorm& s) {
  CAPTURE(s.R, s.D, name_of(s.x), name_of(s.y), name_of(s.weight));
  under_schedules([&] { return Tables(s); },
                  [](Tables& tables) {
                    const Reference want = reference(tables);
                    CHECK(summary.take("y", tables.y, want.y) <= 1);
                    CHECK(summary.take("rstd", tables.rstd, want.rstd) <= 1);
                    CHECK(summary.take("dx", tables.dx, want.dx) <= 1);
                    CHECK(summary.take("dweight", tables.dweight, want.dweight) <= 1);
                  });
}

RmsNorm shape_of(std::int64_t R, std::int64_t D, const Types& types) {
  return {R, D, types[0], types[1], types[2]};
}

constexpr Types kFloats{Type::fp32, Type::fp32, Type::fp32}, kMixed{Type::fp32, Type::bf16, Type::fp32},
    kHalves{Type::fp16, Type::fp16, Type::fp16};
const std::set<Types> kTaken{kFloats,
                             kMixed,
                             kHalves,
                             {Type::fp32, Type::fp16, Type::fp32},
                             {Type::fp32, Type::bf16, Type::bf16},
                             {Type::fp32, Type::fp16, Type::fp16},
                             {Type::bf16, Type::bf16, Type::bf16},
                             {Type::bf16, Type::bf16, Type::fp32},
                             {Type::fp16, Type::fp16, Type::fp32}};

}  // namespace

TEST_CASE("rms_norm: each kernel, with each combination of types") {
  for (const Types& types : kTaken)
    for (const std::int64_t D : {1, 3, 4, 128, 132, 257, 512, 516, 8192, 8196}) check(shape_of(3, D, types));
}

TEST_CASE("rms_norm: teams of warps, and rows that fill no block") {
  for (const Types& types : {kFloats, kMixed, kHalves})
    for (const auto& [R, D] :
         {std::pair(1, 64), std::pair(130, 64), std::pair(65, 260), std::pair(66, 1024), std::pair(129, 1028),
          std::pair(67, 2052), std::pair(5, 4096), std::pair(9, 5120), std::pair(66, 61)})
      check(shape_of(R, D, types));
  check(shape_of(65, 8196, kMixed));
}

TEST_CASE("rms_norm: the gradient of the weight is not summed where it is not wanted") {
  for (const Types& types : {kFloats, kMixed})
    for (const auto& [R, D] :
         {std::pair(130, 64), std::pair(66, 1024), std::pair(5, 4100), std::pair(66, 61)}) {
      CAPTURE(R, D);
      set_schedule({});
      Tables with(shape_of(R, D, types)), without(shape_of(R, D, types));
      REQUIRE(with.forward() == cudaSuccess);
      REQUIRE(with.backward() == cudaSuccess);
      REQUIRE(without.forward() == cudaSuccess);
      const std::string before = bits_of({&without.partial, &without.dweight});
      REQUIRE(without.backward(false) == cudaSuccess);
      CHECK((without.dx.bits() == with.dx.bits()));
      CHECK((bits_of({&without.partial, &without.dweight}) == before));
    }
}

TEST_CASE("rms_norm: tables that begin anywhere") {
  // A width that fours divide, and rows of x that begin where four may not be read at once.
  const RmsNorm its = shape_of(3, 8, kFloats);
  Tables tables(its);
  const Values longer("x", Type::fp32, size(3, 8) + 1, {1, 0.5, 2}, &tables.x);
  const auto* const x = longer.floats() + 1;
  const Values y("y", Type::fp32, tables.y.size()), dx("dx", Type::fp32, tables.dx.size());
  REQUIRE(tables.forward() == cudaSuccess);
  REQUIRE(tables.backward() == cudaSuccess);
  REQUIRE(rms_norm_forward(its, x, tables.weight.data(), kEpsilon, y.data(), tables.rstd.floats(), nullptr) ==
          cudaSuccess);
  REQUIRE(rms_norm_backward(its, tables.dy.data(), x, tables.rstd.floats(), tables.weight.data(),
                            tables.partial.floats(), dx.data(), tables.dweight.data(),
                            nullptr) == cudaSuccess);
  const Reference want = reference(tables);
  CHECK(summary.take("y", y, want.y) <= 1);
  CHECK(summary.take("dx", dx, want.dx) <= 1);
}

TEST_CASE("rms_norm: types that are not supported") {
  for (const Type x : kTypes)
    for (const Type y : kTypes)
      for (const Type weight : kTypes) {
        Tables tables(shape_of(1, 4, {x, y, weight}));
        const int want = kTaken.count({x, y, weight}) != 0 ? cudaSuccess : cudaErrorInvalidValue;
        CHECK(tables.forward() == want);
        CHECK(tables.backward() == want);
      }
}

TEST_CASE("rms_norm: nothing to do") {
  const std::uint64_t before = counts().blocks;
  for (const auto& [R, D] : {std::pair(0, 8), std::pair(4, 0)}) {
    Tables tables(shape_of(R, D, kFloats));
    CHECK(tables.forward() == cudaSuccess);
    CHECK(tables.backward() == cudaSuccess);
  }
  CHECK(counts().blocks == before);
}

TEST_CASE("rms_norm: more than 2^31 elements") {
  for (const std::int64_t D : {8192, 8196, 1151}) {
    CAPTURE(D);
    set_schedule({});
    Tables few(shape_of(kChunkRows, D, {Type::bf16, Type::bf16, Type::bf16}));
    REQUIRE(few.forward() == cudaSuccess);
    REQUIRE(few.backward() == cudaSuccess);
    RmsNorm its = few.its;
    its.R = ((std::int64_t{1} << 31) / D / kChunkRows + 2) * kChunkRows;
    Tables many(its, &few);
    run_last_blocks(16);
    REQUIRE(many.forward() == cudaSuccess);
    CHECK(same_end(many.y, few.y, few.y.size()));
    run_last_blocks(1);
    REQUIRE(many.backward() == cudaSuccess);
    CHECK(same_end(many.dx, few.dx, few.dx.size()));
    CHECK(same_end(many.partial, few.partial, few.partial.size()));
    CHECK(same_end(many.dweight, few.dweight, 4));
  }
}

TEST_CASE("rms_norm: all accesses were checked") {
  CHECK(counts().accesses > 1000000);
}
