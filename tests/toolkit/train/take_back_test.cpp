// memory.on_out_of_memory = "escalate": a step that was refused memory leaves nothing behind, whichever of
// its allocations was refused.
#include <dtk/policies/memory_ledger.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/runs/failing_allocator.h"
#include "support/runs/trainer_state.h"
#include "support/same_bits.h"

namespace dtk {
namespace {

struct Case {
  std::string name;
  RunConfig config;
  int64_t steps = 3;  // before the one that is refused memory
};

std::vector<Case> cases() {
  RunConfig plain = test::tiny_config();
  plain.memory.on_out_of_memory = OnOutOfMemory::escalate;
  dit::options_of(plain).model.depth = 1;
  plain.policies.precision.cpu = policies::CpuPrecision::fp32;
  std::vector<Case> all = {{"plain", plain}};
  all.push_back({"the first step", plain, 0});
  all.push_back({"the last and shorter batch of an epoch", plain, 2});
  all.back().config.data.drop_last = false;
  all.back().config.data.batch = 24;
  all.push_back({"steps that may be skipped", plain});
  all.back().config.train.on_not_finite = NotFinite::skip;
  all.back().config.train.log_every = 1;  // room for one flag: it grows
  all.push_back({"offloaded, unclipped, in parts", plain});
  RunConfig& other = all.back().config;
  other.policies.checkpoint.keep = std::vector<std::string>{"offload"};
  other.policies.checkpoint.offload_min_bytes = {0};
  other.optimizer.clip = 0;
  other.memory.split = 2;
  all.push_back({"bf16, an average every second step", plain});
  all.back().config.policies.precision.enabled = policies::Enabled::on;
  all.back().config.policies.ema.every = 2;
  return all;
}

struct Snapshot {
  std::vector<at::Tensor> tensors;
  TrainingState state;

  explicit Snapshot(const Trainer& trainer) : state(trainer.state()) {
    for (const NamedTensor& entry : test::everything(trainer)) tensors.push_back(entry.tensor.clone());
  }
  bool equals(const Snapshot& other) const {
    bool equal = tensors.size() == other.tensors.size() && state.step == other.state.step &&
                 state.samples == other.state.samples;
    for (size_t i = 0; equal && i < tensors.size(); ++i)
      equal = test::same_bits(tensors[i], other.tensors[i]);
    return equal;
  }
};

}  // namespace

TEST_CASE(
    "a refused step: whichever allocation is refused, all is as it was, and the step can be run again") {
  for (const Case& one : cases()) {
    INFO(one.name);
    test::SteppingClock clock;
    const policies::CountingAllocatorGuard counting;
    test::FailingAllocator allocator;
    const auto undisturbed = test::make_trainer(one.config, clock);
    auto trainer = test::make_trainer(one.config, clock);
    test::run(*undisturbed, one.steps);
    test::run(*trainer, one.steps);
    const Snapshot before(*trainer);
    allocator.refuse(0);
    undisturbed->step();
    const int64_t allocations = allocator.count();
    REQUIRE(allocations > 100);
    CHECK_FALSE(Snapshot(*undisturbed).equals(before));
    int64_t exempt = 0;
    for (int64_t number = 1; number <= allocations; ++number) {
      CAPTURE(number);
      allocator.refuse(number);
      try {
        trainer->step();
        allocator.refuse(0);
        // It was exempt, as what a destructor needs: nothing was refused.
        test::check_equal(*trainer, *undisturbed);
        trainer = test::make_trainer(one.config, clock);
        test::run(*trainer, one.steps);
        ++exempt;
      } catch (const c10::OutOfMemoryError&) {
        allocator.refuse(0);
        CHECK(trainer->take_back_step());
        CHECK(Snapshot(*trainer).equals(before));
      }
    }
    CHECK(exempt < 20);
    trainer->step();
    test::check_equal(*trainer, *undisturbed);
    trainer->step();
    undisturbed->step();
    test::check_equal(*trainer, *undisturbed);
    CHECK(trainer->read_scalars_sync().loss == undisturbed->read_scalars_sync().loss);
  }
}

TEST_CASE("a refused step: the loader's thread is refused memory, too") {
  /// The tiny data; sample reads from the 40th on may be refused memory, once.
  class Refused final : public ImageSource {
   public:
    Refused() : ImageSource({.size = 64, .channels = 1, .height = 8, .width = 8, .classes = 4}) {}
    std::string description() const override { return "64 made up"; }
    int64_t read_image(int64_t index, float* values) const override {
      if (++reads_ == 40) C10_THROW_ERROR(OutOfMemoryError, "the loader is refused memory");
      return inner_->read_image(index, values);
    }

   private:
    const std::shared_ptr<const ImageSource> inner_ = test::tiny_data();
    mutable std::atomic<int64_t> reads_ = 0;
  };
  test::SteppingClock clock;
  const RunConfig config = cases().front().config;
  const auto undisturbed = test::make_trainer(config, clock);
  Trainer trainer(config, at::kCPU, std::make_shared<Refused>(), clock);
  int64_t refused = 0;
  while (trainer.steps() < 8) {
    try {
      trainer.step();
    } catch (const c10::OutOfMemoryError&) {
      ++refused;
      CHECK(trainer.take_back_step());
    }
  }
  CHECK(refused == 1);
  test::run(*undisturbed, 8);
  test::check_equal(trainer, *undisturbed);
}

TEST_CASE("a refused step: a complete one stays, and without escalation none can be taken back") {
  test::SteppingClock clock;
  RunConfig config = test::tiny_config();
  CHECK_THROWS_WITH(test::make_trainer(config, clock)->take_back_step(),
                    "no step can be taken back: memory.on_out_of_memory is \"stop\"");
  config.memory.on_out_of_memory = OnOutOfMemory::escalate;
  const auto trainer = test::make_trainer(config, clock);
  trainer->step();
  const Snapshot after(*trainer);
  CHECK_FALSE(trainer->take_back_step());
  CHECK(Snapshot(*trainer).equals(after));
}

TEST_CASE("a micro-batch in parts trains as the whole does, to the rounding of sums") {
  test::SteppingClock clock;
  RunConfig config = test::tiny_config(GENERATE("rectified_flow", "epsilon", "v"));
  dit::options_of(config).model.mlp_dropout = 0;  // masks are drawn for each part anew
  config.policies.precision.cpu = policies::CpuPrecision::fp32;
  const auto whole = test::make_trainer(config, clock);
  config.memory.split = GENERATE(2, 3, 4);  // of the 4 samples: 2 + 2, 2 + 2, 1 + 1 + 1 + 1
  const auto parts = test::make_trainer(config, clock);
  whole->step();
  parts->step();
  CHECK(whole->state().samples == parts->state().samples);
  const StepScalars a = whole->read_scalars_sync(), b = parts->read_scalars_sync();
  CHECK(a.loss == Approx(b.loss).epsilon(1e-6));
  CHECK(a.gradient_norm == Approx(b.gradient_norm).epsilon(1e-5));
}

}  // namespace dtk
