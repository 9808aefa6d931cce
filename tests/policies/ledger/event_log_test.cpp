// What a log says of storages that outlive their operator, on blocks made by hand.
#include <dtk/policies/internal/event_log.h>

#include "support/catch.h"

using namespace dtk::policies;

namespace {

const OwnerId kMm = owner_id(Category::temporaries, "aten::mm");
const OwnerId kSaved = owner_id(Category::saved, "blocks.0");

struct Log {
  Log() {
    accounts.reset_phases("build");
    accounts.start_event_log();
  }
  std::vector<LoggedPhase> kept() { return event_log(accounts.stop_event_log(), accounts.phase_names()); }
  MemoryAccounts accounts;
};

}  // namespace

TEST_CASE("scratch moves neither the peak nor its instant") {
  Log log;
  MemoryBlock kept, scratch, later;
  log.accounts.birth(&kept, 100, kMm, 1);
  log.accounts.birth(&scratch, 1000, kMm, 1);  // the instant of the peak with scratch
  log.accounts.death(&scratch, /*within_operation=*/true);
  log.accounts.birth(&later, 50, kSaved);
  log.accounts.death(&later);
  log.accounts.death(&kept);
  const std::vector<LoggedPhase> phases = log.kept();
  REQUIRE(phases.size() == 1);
  CHECK(phases[0].name == "build");
  CHECK(phases[0].kept.bytes == 150);
  CHECK(phases[0].kept.of(Category::temporaries) == 100);
  CHECK(phases[0].kept.of(Category::saved) == 50);
  CHECK(phases[0].scratch == 1000);
  CHECK(phases[0].with_scratch == 1100);
  CHECK(phases[0].scratch_of.at("aten::mm") == 1000);
  CHECK(phases[0].born.at({Category::temporaries, "aten::mm"}) == Births{1, 100});
  CHECK(phases[0].born.at({Category::saved, "blocks.0"}) == Births{1, 50});
}

TEST_CASE("a peak has the owners of the last moment before it falls") {
  Log log;
  MemoryBlock a, b;
  log.accounts.birth(&a, 100, kMm);
  log.accounts.birth(&b, 10, kMm);
  log.accounts.hold(&a, kSaved);
  log.accounts.death(&b);
  log.accounts.release(&a);
  log.accounts.death(&a);
  const std::vector<LoggedPhase> phases = log.kept();
  REQUIRE(phases.size() == 1);
  CHECK(phases[0].kept.of(Category::saved) == 100);
  CHECK(phases[0].kept.of(Category::temporaries) == 10);
}

TEST_CASE(
    "a phase begins with what is alive; phases that were forgotten and what was born in them are not "
    "counted") {
  Log log;
  MemoryBlock forgotten, a, b;
  log.accounts.enter_phase("probe");
  log.accounts.birth(&forgotten, 7, kMm);
  log.accounts.reset_phases("build");
  log.accounts.birth(&a, 100, kMm);
  log.accounts.enter_phase("forward");
  log.accounts.birth(&b, 10, kMm);
  log.accounts.death(&b);
  log.accounts.enter_phase("build");
  log.accounts.death(&a);
  const std::vector<LoggedPhase> phases = log.kept();
  REQUIRE(phases.size() == 2);
  CHECK(phases[0].name == "build");
  CHECK(phases[0].kept.bytes == 100);
  CHECK(phases[0].born.at({Category::temporaries, "aten::mm"}) == Births{1, 100});
  CHECK(phases[1].name == "forward");
  CHECK(phases[1].kept.bytes == 110);
  log.accounts.death(&forgotten);
}
