#include "models/ops/cuda/gated_add.h"

#include "cuda_on_cpu/kernel_values.h"

namespace {

using namespace cuda_on_cpu;
using namespace dtk::models::cuda;

Summary summary;

struct Tables {
  GatedAdd its;
  std::int64_t stride;
  std::size_t first = 0;  // of the gates, in their table
  Values x, dy, branch, gate;
  Values y, partial, dgate, dbranch;

  // Random, or zeros that end in the last rows of `few`.
  Tables(const GatedAdd& s, std::int64_t gate_stride, std::size_t first_gate = 0, const Tables* few = nullptr)
      : its(s),
        stride(gate_stride),
        first(first_gate),
        x("x", s.x, size(s.N, s.T, s.D), {1, 0.5, 2}, few ? &few->x : nullptr),
        dy("dy", s.x, size(s.N, s.T, s.D), {2, 0, 1}, few ? &few->dy : nullptr),
        branch("branch", s.branch, size(s.N, s.T, s.D), {3, 0, 1}, few ? &few->branch : nullptr),
        gate("gate", s.condition, size(s.N, gate_stride) + first_gate, {4, 0, 1}, few ? &few->gate : nullptr),
        y("y", s.x, x.size()),
        partial("partial", Type::fp32, size(s.N, chunks(s.T), s.D), few != nullptr),
        dgate("dgate", s.condition, size(s.N, s.D)),
        dbranch("dbranch", s.branch, x.size()) {}

  Rows gates() const {
    return {static_cast<const std::byte*>(gate.data()) + first * bytes_of(its.condition), stride};
  }
  int forward() { return gated_add_forward(its, x.data(), gates(), branch.data(), y.data(), nullptr); }
  int backward() {
    return gated_add_backward(its, dy.data(), gates(), branch.data(), partial.floats(), dgate.data(),
                              dbranch.data(), nullptr);
  }
  std::string bits() const { return bits_of({&y, &partial, &dgate, &dbranch}); }
};

struct Reference {
  Wanted y, dgate, dbranch;
};

// y is linear in the gate and in the branch: its derivative is what it changes by where one of them grows
// by 1.
Reference reference(const Tables& in) {
  const GatedAdd& s = in.its;
  Reference out{Wanted(in.x.size()), Wanted(in.dgate.size()), Wanted(in.x.size())};
  const auto y = [](double x, double gate, double branch) { return x + gate * branch; };
  for (std::int64_t n = 0; n < s.N; ++n)
    for (std::int64_t t = 0; t < s.T; ++t)
      for (std::int64_t d = 0; d < s.D; ++d) {
        const std::size_t at = size(n * s.T + t, s.D) + size(d, 1);
        const double gate = in.gate[in.first + size(n, in.stride) + size(d, 1)], x = in.x[at],
                     branch = in.branch[at];
        out.y.add(at, y(x, 0, branch));
        out.y.add(at, y(x, gate, branch) - y(x, 0, branch));
        out.dgate.add(size(n, s.D) + size(d, 1), in.dy[at] * (y(x, gate + 1, branch) - y(x, gate, branch)));
        out.dbranch.add(at, in.dy[at] * (y(x, gate, branch + 1) - y(x, gate, branch)));
      }
  return out;
}

void check(const GatedAdd& s, std::int64_t stride, std::size_t first_gate = 0) {
  CAPTURE(s.N, s.T, s.D, name_of(s.x), name_of(s.branch), name_of(s.condition), stride, first_gate);
  under_schedules([&] { return Tables(s, stride, first_gate); },
                  [](Tables& tables) {
                    const Reference want = reference(tables);
                    CHECK(summary.take("y", tables.y, want.y) <= 1);
                    CHECK(summary.take("dgate", tables.dgate, want.dgate) <= 1);
                    CHECK(summary.take("dbranch", tables.dbranch, want.dbranch) <= 1);
                  });
}

}  // namespace

TEST_CASE("gated_add: each combination of types") {
  for (const Types& types : kSupported)
    for (const auto& [N, T, D] :
         {std::tuple(1, 3, 1), std::tuple(3, 9, 4), std::tuple(3, 65, 37), std::tuple(1, 130, 260),
          std::tuple(3, 64, 129), std::tuple(1, 8, 1152), std::tuple(2, 3, 4096)})
      check({N, T, D, types[0], types[1], types[2]}, 6 * D);
}

TEST_CASE("gated_add: gates that begin anywhere") {
  check({3, 9, 8, Type::fp32, Type::bf16, Type::bf16}, 17);
  check({3, 9, 8, Type::fp32, Type::bf16, Type::bf16}, 8);
  check({3, 9, 8, Type::fp32, Type::bf16, Type::bf16}, 8, 1);
  check({3, 9, 8, Type::fp32, Type::fp32, Type::fp32}, 8, 2);
}

TEST_CASE("gated_add: types that are not supported") {
  for (const Type x : kTypes)
    for (const Type branch : kTypes)
      for (const Type condition : kTypes) {
        Tables tables({1, 1, 4, x, branch, condition}, 24);
        const int want = kSupported.count({x, branch, condition}) != 0 ? cudaSuccess : cudaErrorInvalidValue;
        CHECK(tables.forward() == want);
        CHECK(tables.backward() == want);
      }
}

TEST_CASE("gated_add: nothing to do") {
  const std::uint64_t before = counts().blocks;
  for (const auto& [N, T, D] : {std::tuple(0, 4, 8), std::tuple(2, 0, 8), std::tuple(2, 4, 0)}) {
    Tables tables({N, T, D}, 48);
    CHECK(tables.forward() == cudaSuccess);
    CHECK(tables.backward() == cudaSuccess);
  }
  CHECK(counts().blocks == before);
}

TEST_CASE("gated_add: more than 2^31 elements, of rows and of gates") {
  for (const bool samples : {false, true})
    for (const std::int64_t D : {1152, 1151}) {
      CAPTURE(samples, D);
      set_schedule({});
      Tables few({1, samples ? 1 : kChunkRows, D, Type::bf16, Type::bf16, Type::bf16}, 6 * D);
      REQUIRE(few.forward() == cudaSuccess);
      REQUIRE(few.backward() == cudaSuccess);
      GatedAdd its = few.its;
      if (samples)
        its.N = (std::int64_t{1} << 31) / D + 2;
      else
        its.T = ((std::int64_t{1} << 31) / D / kChunkRows + 2) * kChunkRows;
      Tables many(its, few.stride, 0, &few);
      run_last_blocks(1);
      REQUIRE(many.forward() == cudaSuccess);
      CHECK(same_end(many.y, few.y, 4));
      REQUIRE(many.backward() == cudaSuccess);
      CHECK(same_end(many.dbranch, few.dbranch, 4));
      CHECK(same_end(many.partial, few.partial, 4));
      CHECK(same_end(many.dgate, few.dgate, 4));
    }
}

TEST_CASE("gated_add: all accesses were checked") {
  CHECK(counts().accesses > 1000000);
}
