// What must work works, and what must be found is found, by its message.
#include <numeric>

#include "cuda_on_cpu/cuda_on_cpu.h"
#include "cuda_on_cpu/emulator_kernels.h"
#include "support/catch.h"

namespace {

using namespace cuda_on_cpu;
using namespace emulator_test;

std::string failure_of(const std::function<int()>& launch) {
  try {
    launch();
  } catch (const Failure& failure) {
    return failure.what();
  }
  return "";
}

bool begins(const std::string& text, const std::string& with) {
  return text.rfind(with, 0) == 0;
}
bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Runs a section under each order.
void set_order() {
  const Order order = GENERATE(Order::ascending, Order::descending, Order::shuffled);
  set_schedule({order, order, 7});
}

}  // namespace

TEST_CASE("shuffles") {
  set_order();
  Buffer<int> out("out", 4 * 64);
  REQUIRE(shuffles(out.data(), 3, 64) == cudaSuccess);
  for (int i = 0; i < 64; ++i) {
    const int lane = i % 32;
    CHECK(out.data()[i] == 3);
    CHECK(out.data()[64 + i] == (lane < 3 ? lane : lane - 3));
    CHECK(out.data()[128 + i] == (lane > 28 ? lane : lane + 3));
    CHECK(out.data()[192 + i] == (lane ^ 3));
  }
  CHECK(has(failure_of([&] { return shuffles(out.data(), 3, 48); }), "the block has no lane 16"));
  CHECK(has(failure_of([&] { return shuffles(out.data(), 35, 64); }), "reads lane"));
}

TEST_CASE("masks of half a warp, and wrong ones") {
  set_order();
  Buffer<int> out("out", 32);
  REQUIRE(half_masks(out.data()) == cudaSuccess);
  CHECK(out.data()[3] == 120);
  CHECK(out.data()[20] == 40);
  CHECK(has(failure_of([&] { return bad_mask(out.data(), 0x7fffffffU); }),
            "lane 30 reads lane 31, which the mask lacks"));
  CHECK(has(failure_of([&] { return bad_mask(out.data(), 0xffffffffU); }), "gone is lane 31"));
  CHECK(has(failure_of([&] { return bad_mask(out.data(), 0xffffU); }), "the mask lacks the caller"));
}

TEST_CASE("barriers") {
  set_order();
  std::vector<int> numbers(80);
  std::iota(numbers.begin(), numbers.end(), 0);
  Buffer<int> in("in", std::span<const int>(numbers).first(64)), out("out", 80);
  REQUIRE(reverse(in.data(), out.data(), 64, true) == cudaSuccess);
  for (int i = 0; i < 64; ++i) CHECK(out.data()[i] == 63 - i);
  const std::string without = failure_of([&] { return reverse(in.data(), out.data(), 64, false); });
  CHECK((begins(without, "unwritten memory: read of 4 bytes") || begins(without, "data race")));
  CHECK(has(without, "static shared memory"));
  CHECK(begins(failure_of([&] { return reverse(in.data(), out.data(), 65, true); }),
               "out of bounds: read of 4 bytes at byte 256 of in (256 bytes)"));

  Buffer<int> few("few", 64);
  CHECK(begins(failure_of([&] { return early_return(few.data()); }), "barrier at "));
  CHECK(begins(failure_of([&] { return two_barriers(few.data()); }), "two barriers, "));
  const std::string stuck = failure_of([&] { return barrier_or_shuffle(few.data()); });
  CHECK(begins(stuck, "deadlock in block (0): 16 at barrier "));
  CHECK(has(stuck, " 16 in warp operation "));
}

TEST_CASE("__syncwarp orders memory, a shuffle does not") {
  set_order();
  Buffer<int> out("out", 32);
  REQUIRE(neighbours(out.data(), true) == cudaSuccess);
  CHECK(out.data()[5] == 4);
  CHECK(begins(failure_of([&] { return neighbours(out.data(), false); }), "data race"));
}

TEST_CASE("blocks") {
  set_order();
  const std::vector<float> ones(1000, 1.0F), zero(1, 0.0F);
  Buffer<float> in("in", ones), sum("sum", zero);
  REQUIRE(sum_by_atomics(sum.data(), in.data(), 1000) == cudaSuccess);
  CHECK(sum.data()[0] == 1000.0F);

  const std::vector<int> none(1, 0);
  Buffer<int> place("place", none);
  CHECK(same_place(place.data(), 3, true) == cudaSuccess);
  CHECK(same_place(place.data(), 1, false) == cudaSuccess);
  const std::string race = failure_of([&] { return same_place(place.data(), 3, false); });
  CHECK(begins(race, "data race with thread 0 of another block: write of 4 bytes at byte 0 of place"));
}

TEST_CASE("unwritten memory") {
  set_order();
  Buffer<float> out("out", 64);
  CHECK(begins(failure_of([&] { return unset_shared(out.data()); }), "unwritten memory: read of 4 bytes"));
  Buffer<int> values("values", 3);
  CHECK(begins(failure_of([&] { return add_one(values.data(), 3); }), "unwritten memory"));
  const std::vector<int> given(3, 5);
  Buffer<int> written("written", given);
  CHECK(add_one(written.data(), 3) == cudaSuccess);
  CHECK(written.data()[2] == 6);
  CHECK(begins(failure_of([&] { return add_one(written.data(), 4); }), "out of bounds"));
}

TEST_CASE("dynamic shared memory") {
  set_order();
  Buffer<float> out("out", 1);
  CHECK(dynamic_row(out.data(), 49152, 12288) == cudaSuccess);
  CHECK(out.data()[0] == 12287.0F);
  CHECK(dynamic_row(out.data(), 49156, 12288) == cudaErrorInvalidValue);
  CHECK(begins(failure_of([&] { return dynamic_row(out.data(), 4096, 1025); }),
               "out of bounds: write of 4 bytes at byte 4096 of dynamic shared memory (4096 bytes)"));
}

TEST_CASE("misaligned pairs") {
  const std::vector<float> four(4, 1.0F);
  Buffer<float> in("in", four), out("out", 1);
  CHECK(read_pairs(in.data(), out.data(), 2) == cudaSuccess);
  CHECK(begins(failure_of([&] { return read_pairs(in.data(), out.data(), 1); }), "misaligned"));
  CHECK(begins(failure_of([&] { return read_pairs(in.data(), out.data(), 3); }), "out of bounds"));
}

TEST_CASE("grids and blocks of three dimensions, and which are refused") {
  set_order();
  Buffer<int> out("out", 1000);
  REQUIRE(number(out.data(), 1000, dim3(2, 2, 3), dim3(4, 2, 2)) == cudaSuccess);
  for (int i = 0; i < 1000; ++i) CHECK(out.data()[i] == i);
  CHECK(number(out.data(), 1000, 1, 1025) == cudaErrorInvalidConfiguration);
  CHECK(number(out.data(), 1000, 0, 32) == cudaErrorInvalidConfiguration);
  CHECK(number(out.data(), 1000, dim3(1, 65536), 32) == cudaErrorInvalidConfiguration);
}

TEST_CASE("the last blocks of many, in memory that nobody has") {
  Buffer<int> out("out", std::size_t{1} << 33);
  Schedule schedule;
  schedule.last_blocks = 2;
  set_schedule(schedule);
  const std::uint64_t before = counts().blocks;
  CHECK(number(out.data(), 1000, 100, 10) == cudaSuccess);
  CHECK(counts().blocks == before + 2);
  CHECK(out.data()[979] == 0);
  CHECK(out.data()[980] == 980);
  CHECK(out.data()[999] == 999);
  CHECK(number(out.data(), 10, 1, 10) == cudaSuccess);
  CHECK(counts().blocks == before + 3);
  set_schedule({});
}

TEST_CASE("accesses are checked") {
  CHECK(counts().accesses > 0);
}
