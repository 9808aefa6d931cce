#include "models/ops/cuda/rotate.h"

#include "cuda_on_cpu/kernel_values.h"

namespace {

using namespace cuda_on_cpu;
using namespace dtk::models::cuda;

Summary summary;

// Where x lies in its table, in elements.
struct Layout {
  std::int64_t first, sample, token, head;
};
Layout dense(const Rotate& s) {
  return {0, s.T * s.H * s.D, s.H * s.D, s.D};
}
// The second of three tables side by side, as one product makes query, key and value.
Layout middle_of_three(const Rotate& s) {
  return {s.H * s.D, 3 * s.T * s.H * s.D, 3 * s.H * s.D, s.D};
}
// Of a table (N, H, T, D).
Layout heads_first(const Rotate& s) {
  return {0, s.T * s.H * s.D, s.D, s.T * s.D};
}

struct Tables {
  Rotate its;
  Layout layout;
  Values x, dy, cosine, sine;
  Values y, dx;

  std::size_t last() const {  // behind x, in its table
    const Rotate& s = its;
    if (s.N * s.T * s.H == 0) return 0;
    return size(
        layout.first + (s.N - 1) * layout.sample + (s.T - 1) * layout.token + (s.H - 1) * layout.head + s.D,
        1);
  }
  // Random, or zeros that end in the values of `few`. x and dy lie alike.
  Tables(const Rotate& s, const Layout& where, const Tables* few = nullptr)
      : its(s),
        layout(where),
        x("x", s.x, last(), {1, 0, 1}, few ? &few->x : nullptr),
        dy("dy", s.x, last(), {2, 0, 1}, few ? &few->dy : nullptr),
        cosine("cosine", s.table, size(s.T, s.D), {3, 0, 1}, few ? &few->cosine : nullptr),
        sine("sine", s.table, size(s.T, s.D), {4, 0, 1}, few ? &few->sine : nullptr),
        y("y", s.x, size(s.N * s.T, s.H, s.D)),
        dx("dx", s.x, y.size()) {}

  Heads heads(const Values& table) const {
    return {static_cast<const std::byte*>(table.data()) + size(layout.first, 1) * bytes_of(its.x),
            layout.sample, layout.token, layout.head};
  }
  int forward() { return rotate_forward(its, heads(x), cosine.data(), sine.data(), y.data(), nullptr); }
  int backward() { return rotate_backward(its, heads(dy), cosine.data(), sine.data(), dx.data(), nullptr); }
  std::string bits() const { return bits_of({&y, &dx}); }
};

struct Reference {
  Wanted y, dx;
};

// x * cosine + turned(x) * sine, where turned has the halves of each part in each other's place, the second
// one negated.
Doubles rotated(const Doubles& x, const Tables& in, std::size_t t) {
  const std::size_t D = x.size(), part = D / size(in.its.parts, 1), half = part / 2;
  Doubles turned(D), y(D);
  for (std::size_t begin = 0; begin < D; begin += part) {
    for (std::size_t d = 0; d < half; ++d) turned[begin + d] = -x[begin + half + d];
    for (std::size_t d = 0; d < half; ++d) turned[begin + half + d] = x[begin + d];
  }
  for (std::size_t d = 0; d < D; ++d) y[d] = x[d] * in.cosine[t * D + d] + turned[d] * in.sine[t * D + d];
  return y;
}

// It is linear: its matrix's columns are what becomes of unit vectors, and the gradient is by the transposed
// one.
Reference reference(const Tables& in) {
  const Rotate& s = in.its;
  const std::size_t D = size(s.D, 1);
  Reference out{Wanted(in.y.size()), Wanted(in.y.size())};
  for (std::int64_t t = 0; t < s.T; ++t)
    for (std::size_t from = 0; from < D; ++from) {
      Doubles unit(D);
      unit[from] = 1;
      const Doubles column = rotated(unit, in, size(t, 1));
      for (std::size_t to = 0; to < D; ++to) {
        if (column[to] == 0) continue;
        for (std::int64_t n = 0; n < s.N; ++n)
          for (std::int64_t h = 0; h < s.H; ++h) {
            const std::size_t row = size((n * s.T + t) * s.H + h, s.D);
            const std::size_t at =
                size(in.layout.first + n * in.layout.sample + t * in.layout.token + h * in.layout.head, 1);
            out.y.add(row + to, column[to] * in.x[at + from]);
            out.dx.add(row + from, column[to] * in.dy[at + to]);
          }
      }
    }
  return out;
}

void check(const Rotate& s, const Layout& layout) {
  CAPTURE(s.N, s.T, s.H, s.D, s.parts, name_of(s.x), name_of(s.table), layout.first, layout.sample,
          layout.token, layout.head);
  under_schedules([&] { return Tables(s, layout); },
                  [](Tables& tables) {
                    const Reference want = reference(tables);
                    CHECK(summary.take("y", tables.y, want.y) <= 1);
                    CHECK(summary.take("dx", tables.dx, want.dx) <= 1);
                  });
}

bool is_supported(Type x, Type table) {
  return table == Type::fp32 || table == x;
}

}  // namespace

TEST_CASE("rotate: each combination of types, widths and parts, wherever heads begin") {
  for (const Type x : kTypes)
    for (const Type table : kTypes)
      if (is_supported(x, table))
        for (const auto& [D, parts] : {std::pair(2, 1), std::pair(4, 1), std::pair(4, 2), std::pair(6, 1),
                                       std::pair(8, 1), std::pair(12, 2), std::pair(16, 2), std::pair(48, 3),
                                       std::pair(64, 1), std::pair(64, 2), std::pair(128, 1)}) {
          const Rotate s{3, 5, 3, D, parts, x, table};
          for (const Layout& layout : {dense(s), middle_of_three(s), heads_first(s)}) check(s, layout);
        }
}

TEST_CASE("rotate: heads and tokens that fill no block") {
  for (const Type x : {Type::fp32, Type::bf16})
    for (const auto& [N, T, H, D] :
         {std::tuple(1, 1, 1, 8), std::tuple(3, 1, 4, 8), std::tuple(1, 33, 5, 16), std::tuple(3, 17, 8, 64),
          std::tuple(2, 65, 1, 4), std::tuple(1, 3, 32, 128), std::tuple(3, 7, 9, 22)}) {
      const Rotate s{N, T, H, D, 1, x, Type::fp32};
      for (const Layout& layout : {dense(s), middle_of_three(s), heads_first(s)}) check(s, layout);
    }
}

TEST_CASE("rotate: strides that fours do not divide") {
  for (const Type x : kTypes) {
    const Rotate s{2, 3, 5, 8, 1, x, Type::fp32};
    check(s, {1, 120, 40, 8});
    check(s, {2, 120, 40, 8});
    check(s, {0, 130, 40, 8});
    check(s, {0, 150, 50, 8});
    check(s, {0, 180, 60, 9});
    check(s, {0, 0, 40, 8});  // one sample for all
  }
}

TEST_CASE("rotate: types and widths that are not supported") {
  for (const Type x : kTypes)
    for (const Type table : kTypes) {
      const Rotate s{1, 1, 1, 4, 1, x, table};
      Tables tables(s, dense(s));
      const int want = is_supported(x, table) ? cudaSuccess : cudaErrorInvalidValue;
      CHECK(tables.forward() == want);
      CHECK(tables.backward() == want);
    }
  for (const auto& [D, parts] : {std::pair(3, 1), std::pair(6, 2), std::pair(4, 0), std::pair(2, -1)}) {
    const Rotate s{1, 1, 1, D, parts};
    Tables tables(s, dense(s));
    CHECK(tables.forward() == cudaErrorInvalidValue);
    CHECK(tables.backward() == cudaErrorInvalidValue);
  }
}

TEST_CASE("rotate: nothing to do") {
  const std::uint64_t before = counts().blocks;
  for (const auto& [N, T, H, D] :
       {std::tuple(0, 4, 2, 8), std::tuple(2, 0, 2, 8), std::tuple(2, 4, 0, 8), std::tuple(2, 4, 2, 0)}) {
    const Rotate s{N, T, H, D};
    Tables tables(s, dense(s));
    CHECK(tables.forward() == cudaSuccess);
    CHECK(tables.backward() == cudaSuccess);
  }
  CHECK(counts().blocks == before);
}

TEST_CASE("rotate: more than 2^31 elements, of tokens, of samples and between them") {
  constexpr Type kHalf = Type::bf16;
  constexpr std::int64_t kMany = std::int64_t{1} << 31;
  for (const std::int64_t D : {64, 6})
    for (const std::int64_t H : {1, 4})
      for (const bool samples : {false, true}) {
        CAPTURE(D, H, samples);
        set_schedule({});
        const std::int64_t T = samples ? 3 : 400;
        const Rotate s{1, T, H, D, 1, kHalf, kHalf};
        Tables few(s, middle_of_three(s));
        REQUIRE(few.forward() == cudaSuccess);
        REQUIRE(few.backward() == cudaSuccess);
        Rotate its = s;
        (samples ? its.N : its.T) = kMany / (H * D * (samples ? T : 1)) + T;
        Tables many(its, middle_of_three(its), &few);
        run_last_blocks(2);
        REQUIRE(many.forward() == cudaSuccess);
        REQUIRE(many.backward() == cudaSuccess);
        CHECK(same_end(many.y, few.y, size(3 * H, D)));
        CHECK(same_end(many.dx, few.dx, size(3 * H, D)));
      }
}

TEST_CASE("rotate: all accesses were checked") {
  CHECK(counts().accesses > 100000);
}
