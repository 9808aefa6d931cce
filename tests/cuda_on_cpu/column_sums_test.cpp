#include "models/ops/cuda/column_sums.h"

#include "cuda_on_cpu/kernel_values.h"
#include "support/catch.h"

namespace {

using namespace cuda_on_cpu;
using namespace dtk::models::cuda;

Summary summary;

void check(std::int64_t N, std::int64_t chunk_count, std::int64_t planes, std::int64_t D, Type type) {
  CAPTURE(N, chunk_count, planes, D, name_of(type));
  std::string bits;
  for (const Schedule& schedule : kSchedules) {
    set_schedule(schedule);
    const Values partial("partial", Type::fp32, random_values(size(N, chunk_count, planes * D), 1, 0, 1));
    const Values first("first", type, size(N, D)), second("second", type, size(N, D));
    REQUIRE(column_sums({N, chunk_count, D, type}, partial.floats(), first.data(),
                        planes == 2 ? second.data() : nullptr, nullptr) == cudaSuccess);
    Wanted sums[2] = {Wanted(size(N, D)), Wanted(size(N, D))};
    for (std::size_t i = 0; i < partial.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i), plane = at / D % planes,
                 n = at / D / planes / chunk_count;
      sums[plane].add(size(n, D) + size(at % D, 1), partial[i]);
    }
    CHECK(summary.take("sum", first, sums[0]) <= 1);
    if (planes == 2) CHECK(summary.take("sum", second, sums[1]) <= 1);
    if (bits.empty()) bits = first.bits() + second.bits();
    CHECK((bits == first.bits() + second.bits()));
  }
}

}  // namespace

TEST_CASE("column_sums: shapes and types") {
  for (const Type type : kTypes)
    for (const std::int64_t planes : {1, 2})
      for (const auto& [N, chunk_count, D] : {std::tuple(1, 1, 1), std::tuple(3, 7, 33), std::tuple(2, 8, 64),
                                              std::tuple(1, 9, 31), std::tuple(2, 67, 40)})
        check(N, chunk_count, planes, D, type);
}

TEST_CASE("column_sums: more than 2^31 elements") {
  constexpr std::int64_t kD = 1152, kN = (std::int64_t{1} << 31) / (2 * kD) + 2;
  const Values partial("partial", Type::fp32, size(kN, 2 * kD), true);
  partial.floats()[partial.size() - 1] = 3;
  const Values first("first", Type::fp32, size(kN, kD)), second("second", Type::fp32, size(kN, kD));
  run_last_blocks(1);
  REQUIRE(column_sums({kN, 1, kD, Type::fp32}, partial.floats(), first.data(), second.data(), nullptr) ==
          cudaSuccess);
  CHECK(second[second.size() - 1] == 3);
  CHECK(second[second.size() - 2] == 0);
}

TEST_CASE("column_sums: all accesses were checked") {
  CHECK(counts().accesses > 10000);
}
