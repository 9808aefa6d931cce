#include "models/ops/cuda/norm_modulate.h"

#include "cuda_on_cpu/kernel_values.h"

namespace {

using namespace cuda_on_cpu;
using namespace dtk::models::cuda;

constexpr float kEpsilon = 1e-6F;
Summary summary;

struct Case {
  NormModulate shape;
  std::int64_t shift_stride = 0, scale_stride = 0;
};

// The tables of a case; shift and scale lie in one wider table, scale behind shift.
struct Tables {
  Case its;
  Values x, dy, conditions;
  Values y, mean, rstd, partial, dx, dshift, dscale;

  // Random, or zeros that end in the last rows of `few`.
  explicit Tables(const Case& c, const Tables* few = nullptr) : Tables(c, c.shape, few) {}
  Tables(const Case& c, const NormModulate& s, const Tables* few)
      : its(c),
        x("x", s.x, size(s.N, s.T, s.D), {1, 0.5, 2}, few ? &few->x : nullptr),
        dy("dy", s.y, size(s.N, s.T, s.D), {2, 0, 1}, few ? &few->dy : nullptr),
        conditions("shift and scale", s.condition,
                   size(s.N, std::max(c.shift_stride, c.scale_stride)) + size(s.D, 1), {3, 0, 0.5},
                   few ? &few->conditions : nullptr),
        y("y", s.y, x.size()),
        mean("mean", Type::fp32, size(s.N, s.T)),
        rstd("rstd", Type::fp32, size(s.N, s.T)),
        partial("partial", Type::fp32, size(s.N, chunks(s.T), 2 * s.D), few != nullptr),
        dx("dx", s.x, x.size()),
        dshift("dshift", s.condition, size(s.N, s.D)),
        dscale("dscale", s.condition, size(s.N, s.D)) {}

  std::size_t shift_at(std::int64_t n, std::int64_t d) const {
    return size(n, its.shift_stride) + size(d, 1);
  }
  std::size_t scale_at(std::int64_t n, std::int64_t d) const {
    return size(n, its.scale_stride) + size(its.shape.D + d, 1);
  }
  Rows shift() const { return {conditions.data(), its.shift_stride}; }
  Rows scale() const {
    return {static_cast<const std::byte*>(conditions.data()) +
                size(its.shape.D, 1) * bytes_of(its.shape.condition),
            its.scale_stride};
  }

  int forward() {
    return norm_modulate_forward(its.shape, x.data(), shift(), scale(), kEpsilon, y.data(), mean.floats(),
                                 rstd.floats(), nullptr);
  }
  int backward() {
    return norm_modulate_backward(its.shape, dy.data(), x.data(), mean.floats(), rstd.floats(), scale(),
                                  partial.floats(), dx.data(), dshift.data(), dscale.data(), nullptr);
  }
  std::string bits() const { return bits_of({&y, &mean, &rstd, &partial, &dx, &dshift, &dscale}); }
};

struct Reference {
  Wanted y, mean, rstd, dx, dshift, dscale;
};

// The chain rule through the steps centre, variance, its root, product and sum, one after the other.
Reference reference(const Tables& in) {
  const auto [N, T, D, x_type, y_type, condition] = in.its.shape;
  const std::size_t rows = size(N, T);
  Reference out{Wanted(in.x.size()), Wanted(rows),       Wanted(rows),
                Wanted(in.x.size()), Wanted(size(N, D)), Wanted(size(N, D))};
  for (std::int64_t n = 0; n < N; ++n) {
    for (std::int64_t t = 0; t < T; ++t) {
      const std::size_t row = size(n, T) + size(t, 1), base = row * size(D, 1);
      const auto at = [&](std::int64_t d) { return base + size(d, 1); };
      const auto channels = static_cast<double>(D);
      for (std::int64_t d = 0; d < D; ++d) out.mean.add(row, in.x[at(d)] / channels);
      const double mean = out.mean.values[row];
      double variance = 0;
      for (std::int64_t d = 0; d < D; ++d) variance += (in.x[at(d)] - mean) * (in.x[at(d)] - mean) / channels;
      // An error of the mean enters squared, that of a centred value with the root: hence the mean's share.
      const double rstd = 1 / std::sqrt(variance + static_cast<double>(kEpsilon));
      out.rstd.values[row] = out.rstd.terms[row] = rstd;

      double by_rstd = 0, by_mean = 0, largest = 0;
      for (std::int64_t d = 0; d < D; ++d) {
        const double centred = in.x[at(d)] - mean, dy = in.dy[at(d)];
        const double factor = 1 + in.conditions[in.scale_at(n, d)], shift = in.conditions[in.shift_at(n, d)];
        out.y.add(at(d), centred * rstd * factor);
        out.y.add(at(d), shift);
        out.y.terms[at(d)] += std::abs(mean * rstd * factor);
        out.dshift.add(size(n, D) + size(d, 1), dy);
        out.dscale.add(size(n, D) + size(d, 1), dy * centred * rstd);
        out.dscale.terms[size(n, D) + size(d, 1)] += std::abs(dy * mean * rstd);
        out.dx.add(at(d), dy * factor * rstd);
        by_rstd += dy * factor * centred;
        by_mean -= dy * factor * rstd;
        largest = std::max(largest, std::abs(dy * factor * rstd));
      }
      const double by_variance = -0.5 * by_rstd * rstd * rstd * rstd;
      for (std::int64_t d = 0; d < D; ++d) {
        by_mean -= by_variance * 2 * (in.x[at(d)] - mean) / channels;
        out.dx.add(at(d), by_variance * 2 * (in.x[at(d)] - mean) / channels);
      }
      for (std::int64_t d = 0; d < D; ++d) {
        out.dx.add(at(d), by_mean / channels);
        out.dx.terms[at(d)] += largest;
      }
    }
  }
  return out;
}

void check(const Case& its) {
  const auto& s = its.shape;
  CAPTURE(s.N, s.T, s.D, name_of(s.x), name_of(s.y), name_of(s.condition), its.shift_stride,
          its.scale_stride);
  under_schedules([&] { return Tables(its); },
                  [](Tables& tables) {
                    const Reference want = reference(tables);
                    CHECK(summary.take("y", tables.y, want.y) <= 1);
                    CHECK(summary.take("mean", tables.mean, want.mean) <= 1);
                    CHECK(summary.take("rstd", tables.rstd, want.rstd) <= 1);
                    CHECK(summary.take("dx", tables.dx, want.dx) <= 1);
                    CHECK(summary.take("dshift", tables.dshift, want.dshift) <= 1);
                    CHECK(summary.take("dscale", tables.dscale, want.dscale) <= 1);
                  });
}

NormModulate shape_of(std::int64_t N, std::int64_t T, std::int64_t D, const Types& types) {
  return {N, T, D, types[0], types[1], types[2]};
}

}  // namespace

TEST_CASE("norm_modulate: each kernel, with each combination of types") {
  for (const Types& types : kSupported)
    for (const std::int64_t D : {1, 3, 4, 257, 384, 388, 768, 772, 1152, 1156, 1536, 1540, 4096})
      check({shape_of(1, 3, D, types), 6 * D, 6 * D});
}

TEST_CASE("norm_modulate: samples and tokens that fill no block") {
  for (const Types& types :
       {Types{Type::fp32, Type::fp32, Type::fp32}, Types{Type::fp32, Type::bf16, Type::bf16},
        Types{Type::fp16, Type::fp16, Type::fp16}})
    for (const auto& [N, T, D] : {std::tuple(3, 65, 388), std::tuple(1, 130, 260), std::tuple(3, 64, 36),
                                  std::tuple(1, 1, 1152), std::tuple(3, 66, 61), std::tuple(1, 129, 1540)})
      check({shape_of(N, T, D, types), 6 * D, 6 * D});
}

TEST_CASE("norm_modulate: rows of conditions that begin anywhere") {
  const Types types{Type::fp32, Type::bf16, Type::bf16};
  check({shape_of(3, 17, 8, types), 17, 17});
  check({shape_of(3, 17, 8, types), 16, 24});
  check({shape_of(2, 2, 5, types), 30, 31});
}

TEST_CASE("norm_modulate: types that are not supported") {
  for (const Type x : kTypes)
    for (const Type y : kTypes)
      for (const Type condition : kTypes) {
        Tables tables({shape_of(1, 1, 4, {x, y, condition}), 24, 24});
        const int want = kSupported.count({x, y, condition}) != 0 ? cudaSuccess : cudaErrorInvalidValue;
        CHECK(tables.forward() == want);
        CHECK(tables.backward() == want);
      }
}

TEST_CASE("norm_modulate: nothing to do") {
  const std::uint64_t before = counts().blocks;
  for (const auto& [N, T, D] : {std::tuple(0, 4, 8), std::tuple(2, 0, 8), std::tuple(2, 4, 0)}) {
    Tables tables({shape_of(N, T, D, {Type::fp32, Type::fp32, Type::fp32}), 48, 48});
    CHECK(tables.forward() == cudaSuccess);
    CHECK(tables.backward() == cudaSuccess);
  }
  CHECK(counts().blocks == before);
}

TEST_CASE("norm_modulate: more than 2^31 elements") {
  constexpr Type kHalf = Type::bf16;
  for (const std::int64_t D : {1152, 1540, 1151}) {
    CAPTURE(D);
    set_schedule({});
    Tables few({shape_of(1, kChunkRows, D, {kHalf, kHalf, kHalf}), 6 * D, 6 * D});
    REQUIRE(few.forward() == cudaSuccess);
    REQUIRE(few.backward() == cudaSuccess);
    Case its = few.its;
    its.shape.T = ((std::int64_t{1} << 31) / D / kChunkRows + 2) * kChunkRows;
    Tables many(its, &few);
    run_last_blocks(4);
    REQUIRE(many.forward() == cudaSuccess);
    CHECK(same_end(many.y, few.y, few.y.size()));
    run_last_blocks(1);
    REQUIRE(many.backward() == cudaSuccess);
    CHECK(same_end(many.dx, few.dx, few.dx.size()));
    CHECK(same_end(many.partial, few.partial, few.partial.size()));
    CHECK(same_end(many.dscale, few.dscale, size(D % 32 == 0 ? 32 : D % 32, 1)));
  }
}

TEST_CASE("norm_modulate: more than 2^31 elements of conditions and of partial sums") {
  constexpr Type kHalf = Type::fp16;
  for (const std::int64_t D : {1152, 1540}) {
    CAPTURE(D);
    set_schedule({});
    Tables few({shape_of(1, 1, D, {kHalf, kHalf, kHalf}), 6 * D, 6 * D});
    REQUIRE(few.forward() == cudaSuccess);
    REQUIRE(few.backward() == cudaSuccess);
    Case its = few.its;
    its.shape.N = (std::int64_t{1} << 31) / (2 * D) + 2;
    Tables many(its, &few);
    run_last_blocks(1);
    REQUIRE(many.forward() == cudaSuccess);
    REQUIRE(many.backward() == cudaSuccess);
    CHECK(same_end(many.y, few.y, few.y.size()));
    CHECK(same_end(many.dx, few.dx, few.dx.size()));
    CHECK(same_end(many.partial, few.partial, few.partial.size()));
  }
}

TEST_CASE("norm_modulate: all accesses were checked") {
  CHECK(counts().accesses > 1000000);
}
