// The simulated device refuses work that a real one would do in the wrong order, without a word. What it
// cannot prove: that the right order gives the right values.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dtk/planner/plan_error.h>
#include <dtk/policies/internal/async_copies.h>
#include <dtk/policies/simulation.h>

#include "support/catch.h"
#include "support/device/devices.h"
#include "support/device/test_device.h"

using dtk::planner::PlanError;
using dtk::policies::HostCopyScope;
using dtk::policies::make_device_staging_copies;
using dtk::policies::StagingCopies;

namespace {

using dtk::test::kCuda;
constexpr int64_t kFloats = 64;
constexpr size_t kBytes = kFloats * sizeof(float);

// Weights on the device, a page-locked slot, and the engine that copies from one to the other.
struct Copies {
  at::Tensor weights = at::ones({kFloats}, kCuda);
  at::Tensor slot = at::empty({kFloats}, at::TensorOptions().pinned_memory(true));
  std::unique_ptr<StagingCopies> engine = make_device_staging_copies(kCuda);

  void begin() { engine->begin(0, weights.const_data_ptr(), slot.mutable_data_ptr(), kBytes); }
};

template <class Action>
std::string refusal(Action&& action) {
  try {
    action();
  } catch (const PlanError& error) {
    std::string text = error.what();
    const size_t place = text.find(" outside of all modules, in phase ");
    if (place == std::string::npos) return text;
    return text.erase(place, text.find(':', place) - place);  // the phase is that of an earlier test
  }
  return "accepted";
}

std::string without_numbers(std::string text) {
  for (size_t at = text.find("stream "); at != std::string::npos; at = text.find("stream ", at + 1)) {
    size_t end = at + 7;
    while (end < text.size() && text[end] >= '0' && text[end] <= '9') ++end;
    if (text.substr(at, end - at) != "stream 0") text.replace(at, end - at, "stream S");
  }
  return text;
}

}  // namespace

TEST_CASE("the staging copies' own order is accepted: mark, copy, wait, hold back, write") {
  Copies copies;
  for (int step = 0; step < 3; ++step) {
    copies.weights.add_(1);
    copies.engine->mark();
    copies.begin();
    copies.engine->wait(0);
    copies.slot.mul_(2);
    copies.engine->hold_back();
  }
  SUCCEED("no order was refused");
}

TEST_CASE("a copy on a side stream that does not wait for the write of what it copies is refused") {
  Copies copies;
  copies.engine->mark();
  copies.weights.add_(1);  // after the mark
  CHECK(without_numbers(refusal([&] { copies.begin(); })) ==
        "aten::copy_: stream S reads 256 bytes that stream 0 wrote, without waiting "
        "for "
        "that; record an event on stream 0 behind it and let stream S wait for the event before "
        "(c10::Event::record, then block)");
}

TEST_CASE("weights that are written while a side stream may still copy them are refused") {
  Copies copies;
  copies.engine->mark();
  copies.begin();
  CHECK(without_numbers(refusal([&] { copies.weights.add_(1); })) ==
        "aten::add: stream 0 writes 256 bytes that stream S reads, without waiting "
        "for "
        "that; record an event on stream S behind it and let stream 0 wait for the event before "
        "(c10::Event::record, then block)");
  copies.engine->hold_back();
  copies.weights.add_(1);
}

TEST_CASE("a slot that the host uses before its copy has arrived is refused") {
  Copies copies;
  copies.engine->mark();
  copies.begin();
  CHECK(without_numbers(refusal([&] { copies.slot.mul_(2); })) ==
        "aten::mul: the host uses 256 bytes that stream S writes, without waiting "
        "for "
        "that; record an event on stream S behind it and let the host wait for the event before "
        "(c10::Event::record, then synchronize)");
  copies.engine->wait(0);
  copies.slot.mul_(2);
}

TEST_CASE("a copy of memory that is freed by then is refused") {
  Copies copies;
  const void* const from = copies.weights.const_data_ptr();
  copies.engine->mark();
  copies.weights.reset();
  CHECK(refusal([&] { copies.engine->begin(0, from, copies.slot.mutable_data_ptr(), kBytes); }) ==
        "a tensor made of a pointer: no storage of the device is alive at its "
        "address; "
        "what it was made of must outlive it");
}

TEST_CASE("memory that is freed while a side stream may still copy it is refused at the next work") {
  Copies copies;
  copies.engine->mark();
  copies.begin();
  const at::Tensor other = at::ones({1}, kCuda);
  copies.weights.reset();
  const auto work = [&] { (void)at::add(other, 1); };
  CHECK(without_numbers(refusal(work)) ==
        "256 bytes of stream 0 were freed while stream S reads them, so other work may have them by then; "
        "record an event on stream S behind it and let stream 0 wait for the event before they are freed "
        "(c10::Event::record, then block)");
  CHECK(refusal(work) == "accepted");  // said once
  copies.weights = at::ones({kFloats}, kCuda);
  copies.engine->mark();
  copies.begin();
  copies.engine->hold_back();
  copies.weights.reset();
  CHECK(refusal(work) == "accepted");
}

TEST_CASE("an event that was never recorded cannot be waited for") {
  const c10::impl::VirtualGuardImpl guard(c10::kCUDA);
  CHECK(refusal([&] { guard.block(nullptr, guard.getStream(kCuda)); }) ==
        "a stream's wait: an event that was never recorded");
  CHECK(refusal([&] { guard.synchronizeEvent(nullptr); }) ==
        "the host's wait: an event that was never recorded");
}

TEST_CASE("what one stream waited for, those that wait for it have waited for too") {
  const c10::impl::VirtualGuardImpl guard(c10::kCUDA);
  const c10::Stream first = guard.getNewStream(kCuda), second = guard.getNewStream(kCuda);
  at::Tensor x = at::ones({4}, kCuda);
  x.add_(1);  // on stream 0
  c10::Event on_default(c10::kCUDA), on_first(c10::kCUDA);
  on_default.record(guard.getStream(kCuda));
  on_default.block(first);
  on_first.record(first);
  {
    const c10::StreamGuard within(second);
    CHECK(refusal([&] { x.add_(1); }) != "accepted");
    on_first.block(second);
    CHECK(refusal([&] { x.add_(1); }) == "accepted");
  }
  CHECK(refusal([&] { x.add_(1); }) != "accepted");  // stream 0 has not waited for the second
  guard.synchronizeStream(second);
  CHECK(refusal([&] { x.add_(1); }) == "accepted");
}
