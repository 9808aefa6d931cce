// The books of the memory ledger, on blocks made by hand.
#include <dtk/policies/memory_accounts.h>

#include <map>
#include <random>

#include "support/catch.h"
#include "support/device/replay.h"

using namespace dtk::policies;

namespace {

const OwnerId kOp = owner_id(Category::temporaries, "aten::mm");
const OwnerId kWeights = owner_id(Category::parameters, "blocks.0");
const OwnerId kSavedBlock = owner_id(Category::saved, "blocks.0");

int64_t phase_peak(const MemoryAccounts& accounts, const std::string& name) {
  for (const PhasePeak& phase : accounts.phases()) {
    if (phase.name == name) return phase.peak.bytes;
  }
  return -1;
}

}  // namespace

TEST_CASE("every byte has one owner and the sums follow births, transfers and deaths") {
  MemoryAccounts accounts;
  MemoryBlock a, b;
  accounts.birth(&a, 100, kOp);
  accounts.birth(&b, 40, kWeights);
  CHECK(accounts.live_bytes() == 140);
  CHECK(accounts.live().of(Category::temporaries) == 100);
  CHECK(accounts.live().of(Category::parameters) == 40);
  accounts.assign(&a, kWeights);
  CHECK(accounts.live().of(Category::temporaries) == 0);
  CHECK(accounts.live().items().at(Category::parameters).at("blocks.0") == 140);
  accounts.death(&b);
  accounts.death(&a);
  CHECK(accounts.live_bytes() == 0);
  CHECK(accounts.live().items().empty());
}

TEST_CASE("a temporary that autograd holds is saved until it is released; a parameter stays a parameter") {
  MemoryAccounts accounts;
  MemoryBlock activation, weight;
  accounts.birth(&activation, 100, kOp);
  accounts.birth(&weight, 40, kWeights);
  accounts.hold(&activation, kSavedBlock);
  accounts.hold(&activation, owner_id(Category::saved, "blocks.1"));  // held twice: the first holder's
  accounts.hold(&weight, kSavedBlock);
  CHECK(accounts.live().of(Category::saved) == 100);
  CHECK(accounts.live().of(Category::parameters) == 40);
  accounts.release(&activation);
  CHECK(accounts.live().items().at(Category::saved).at("blocks.0") == 100);
  accounts.release(&activation);
  CHECK(accounts.live().of(Category::saved) == 0);
  CHECK(accounts.live().of(Category::temporaries) == 100);
  accounts.release(&weight);
  accounts.death(&weight);
  accounts.death(&activation);
}

TEST_CASE("what is saved is told apart by the operator that made it, under one label") {
  MemoryAccounts accounts;
  MemoryBlock product, sum;
  accounts.birth(&product, 100, kOp);
  accounts.birth(&sum, 30, owner_id(Category::temporaries, "aten::add"));
  accounts.hold(&product, kSavedBlock);
  accounts.hold(&sum, kSavedBlock);
  CHECK(accounts.live().items().at(Category::saved).at("blocks.0") == 130);
  CHECK(accounts.live().by_operator(Category::saved) ==
        std::map<std::string, int64_t>{{"aten::mm", 100}, {"aten::add", 30}});
  CHECK(accounts.walk().by_operator(Category::saved) == accounts.live().by_operator(Category::saved));
  accounts.release(&product);
  CHECK(accounts.live().by_operator(Category::saved) == std::map<std::string, int64_t>{{"aten::add", 30}});
  accounts.death(&product);
  accounts.death(&sum);
}

TEST_CASE("a phase keeps the sums at its highest total, not those at its end") {
  MemoryAccounts accounts;
  MemoryBlock a, b, c;
  accounts.birth(&a, 10, kWeights);
  accounts.enter_phase("forward");
  accounts.birth(&b, 100, kOp);
  accounts.assign(&b, kWeights);  // still at the peak: the later owner counts
  accounts.death(&b);
  accounts.birth(&c, 99, kOp);
  accounts.enter_phase("backward");
  accounts.death(&c);
  const auto phases = accounts.phases();
  REQUIRE(phases.size() == 3);
  CHECK(phases[1].name == "forward");
  CHECK(phases[1].peak.bytes == 110);
  CHECK(phases[1].peak.of(Category::parameters) == 110);
  CHECK(phases[1].peak.of(Category::temporaries) == 0);
  CHECK(phase_peak(accounts, "backward") == 109);  // what it started with
  CHECK(highest(phases).name == "forward");
  accounts.enter_phase("forward");  // entered again: merged, and lower, so nothing changes
  CHECK(phase_peak(accounts, "forward") == 110);
  accounts.death(&a);
}

TEST_CASE("what is temporary between steps becomes other, under its operator's name") {
  MemoryAccounts accounts;
  MemoryBlock leaked, owned;
  accounts.birth(&leaked, 7, kOp);
  accounts.birth(&owned, 5, kWeights);
  CHECK(accounts.disown_temporaries() == 7);
  CHECK(accounts.live().items().at(Category::other).at("aten::mm") == 7);
  CHECK(accounts.live().of(Category::parameters) == 5);
  CHECK(accounts.disown_temporaries() == 0);
  accounts.death(&leaked);
  CHECK(accounts.live().of(Category::other) == 0);
  accounts.death(&owned);
}

TEST_CASE("a temporary that dies in the call it was born in was scratch, also at the peak noted before") {
  MemoryAccounts accounts;
  accounts.enter_phase("forward");
  MemoryBlock output, scratch, small;
  accounts.birth(&output, 10, kOp, 1);
  accounts.birth(&scratch, 100, kOp, 1);
  accounts.birth(&small, 5, kOp, 1);
  accounts.death(&small, /*within_operation=*/true);  // the peak of 115 is noted here
  accounts.death(&scratch, /*within_operation=*/true);
  const PhasePeak peak = highest(accounts.phases());
  CHECK(peak.peak.bytes == 115);
  CHECK(peak.peak.of(Category::scratch) == 105);
  CHECK(peak.peak.of(Category::temporaries) == 10);
  accounts.death(&output);
  CHECK(accounts.live().items().empty());
}

TEST_CASE("replaying the event log gives the same sums at every phase's peak") {
  MemoryAccounts accounts;
  std::mt19937 random(7);
  std::vector<std::unique_ptr<MemoryBlock>> live;
  std::vector<int> holds;
  const OwnerId owners[] = {kOp, kWeights, kSavedBlock, owner_id(Category::temporaries, "aten::add")};
  const MemorySums start = accounts.start_event_log();
  const char* names[] = {"forward", "backward", "optimizer"};
  for (int i = 0; i < 5000; ++i) {
    const size_t index = live.empty() ? 0 : random() % live.size();
    switch (live.empty() ? 0 : random() % 8) {
      case 0:
      case 1:
      case 2:
        live.push_back(std::make_unique<MemoryBlock>());
        holds.push_back(0);
        accounts.birth(live.back().get(), 1 + random() % 1000, owners[random() % 2 * 3], /*operation=*/1);
        break;
      case 3:
      case 4:
        while (holds[index] > 0) accounts.release(live[index].get()), --holds[index];
        accounts.death(live[index].get(), /*within_operation=*/random() % 3 == 0);
        live.erase(live.begin() + static_cast<std::ptrdiff_t>(index));
        holds.erase(holds.begin() + static_cast<std::ptrdiff_t>(index));
        break;
      case 5:
        accounts.hold(live[index].get(), kSavedBlock), ++holds[index];
        break;
      case 6:
        accounts.assign(live[index].get(), owners[random() % 2]);
        break;
      case 7:
        accounts.enter_phase(names[random() % 3]);
        break;
    }
    REQUIRE(accounts.walk().by_owner == accounts.live().by_owner);
  }
  const auto peaks = dtk::test::replay(start, 0, accounts.stop_event_log());
  const auto phases = accounts.phases();
  const auto phase_names = accounts.phase_names();
  REQUIRE(phases.size() == phase_names.size());
  REQUIRE(phases.size() == 4);
  for (size_t i = 0; i < phases.size(); ++i) {
    INFO(phases[i].name);
    REQUIRE(peaks.count(i) == 1);
    CHECK(peaks.at(i).bytes == phases[i].peak.bytes);
    CHECK(peaks.at(i).items() == phases[i].peak.items());
    int64_t sum = 0;
    for (const auto& [category, labels] : phases[i].peak.items()) sum += phases[i].peak.of(category);
    CHECK(sum == phases[i].peak.bytes);
  }
  for (size_t i = 0; i < live.size(); ++i) {
    while (holds[i] > 0) accounts.release(live[i].get()), --holds[i];
    accounts.death(live[i].get());
  }
}

TEST_CASE("a block that is not alive is refused") {
  MemoryAccounts accounts;
  MemoryBlock block;
  CHECK_THROWS_WITH(accounts.death(&block), "memory ledger: not a live block of the counting allocator");
  accounts.birth(&block, 1, kOp);
  accounts.death(&block);
  CHECK_THROWS_WITH(accounts.assign(&block, kOp),
                    "memory ledger: not a live block of the counting allocator");
}
