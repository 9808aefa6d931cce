// Averages by pieces: the bits of whole tensors, however they are cut.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <dtk/policies/internal/host_ema.h>
#include <dtk/policies/memory_ledger.h>

#include "support/catch.h"
#include "support/device/delayed_staging_copies.h"

using namespace dtk::policies;
using dtk::test::DelayedStagingCopies;
using std::chrono::microseconds;

TEST_CASE("host EMA: slices give the bits of LibTorch's update of the whole") {
  at::NoGradGuard no_grad;
  const int64_t slot = GENERATE(4, 64, 1024, int64_t{1} << 25);
  const at::Tensor a = at::randn({37, 29}), b = at::randn({5});
  at::Tensor average_a = at::randn({37, 29}), average_b = at::randn({5});
  at::Tensor expected_a = average_a.clone(), expected_b = average_b.clone();
  HostEma average({a, b}, {average_a, average_b}, std::make_unique<DelayedStagingCopies>(microseconds(0)),
                  /*pinned=*/false, slot);
  for (const double decay : {0.1, 0.45, 0.55, 0.9, 0.9999}) {
    average.wait_copied();
    a.normal_();
    b.normal_();
    average.post(decay);
    at::_foreach_lerp_({expected_a, expected_b}, {a, b}, 1.0 - decay);
  }
  average.flush();
  CHECK(at::equal(average_a, expected_a));
  CHECK(at::equal(average_b, expected_b));
  CHECK(average.updates() == 5);
}

TEST_CASE("host EMA: slots are powers of two, at most 32 MiB, and no more than there are pieces") {
  const auto slot_bytes = [](std::vector<int64_t> sizes) {
    std::vector<at::Tensor> weights, averages;
    for (const int64_t size : sizes)
      weights.push_back(at::empty({size})), averages.push_back(at::empty({size}));
    return HostEma(weights, averages, std::make_unique<DelayedStagingCopies>(microseconds(0)), false)
        .slot_bytes();
  };
  CHECK(slot_bytes({100}) == 1 * 4 * 128);
  CHECK(slot_bytes({100, 3}) == 2 * 4 * 128);
  CHECK(slot_bytes({64, 64, 64, 64}) == 3 * 4 * 64);
  CHECK(slot_bytes({9'000'000}) == 2 * (int64_t{32} << 20));
  CHECK(slot_bytes({0}) == 4);
}

TEST_CASE("host EMA: the slots are in the host's books only where the CPU stands for the device") {
  CountingAllocatorGuard guard;
  const auto device = GENERATE(at::kCPU, at::kMeta);  // Meta: any device with memory of its own
  CAPTURE(device);
  const at::Tensor weights = at::empty({64}, at::device(device)), averages = at::empty({64});
  const int64_t cpu = cpu_accounts().live_bytes(), host = host_accounts().live_bytes();
  const HostEma average({weights}, {averages}, std::make_unique<DelayedStagingCopies>(microseconds(0)),
                        /*pinned=*/false);
  CHECK(cpu_accounts().live_bytes() - cpu == (device == at::kCPU ? 0 : average.slot_bytes()));
  CHECK(host_accounts().live_bytes() - host == (device == at::kCPU ? average.slot_bytes() : 0));
}

TEST_CASE("host EMA: a full ring exposes the wait for the update") {
  at::NoGradGuard no_grad;
  const at::Tensor weights = at::zeros({64});
  HostEma average({weights}, {at::zeros({64})}, std::make_unique<DelayedStagingCopies>(microseconds(2000)),
                  /*pinned=*/false, /*largest_slot=*/16);
  average.post(0.5);  // 16 pieces in 3 slots, each copy takes 1 ms in the mean
  average.wait_copied();
  CHECK(average.ring().exposed_seconds() > 0.002);
}
