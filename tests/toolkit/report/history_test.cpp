#include "toolkit/report/history.h"

#include "support/catch.h"
#include "support/files/memory_file_system.h"
#include "toolkit/report/log.h"

using namespace dtk;

namespace {

std::string step_line(int step, double loss) {
  return "{\"event\":\"step\",\"step\":" + std::to_string(step) + ",\"loss\":" + std::to_string(loss) +
         ",\"lr\":0.5,\"gradient_norm\":2.0,\"images_per_second\":30.0,\"seconds\":4.0}\n";
}

std::vector<int64_t> logged_up_to(int64_t last, int64_t every) {
  std::vector<int64_t> steps;
  for (int64_t step = 1; step <= last; ++step) {
    if (is_log_step(step, every)) steps.push_back(step);
  }
  return steps;
}

std::vector<int64_t> steps_of(const RunHistory& history) {
  std::vector<int64_t> steps;
  for (const LoggedStep& step : history.steps()) steps.push_back(step.step);
  return steps;
}

}  // namespace

TEST_CASE("a history has what the log says") {
  const RunHistory history("{\"event\":\"start\",\"step\":0,\"time\":1700000000.5}\n" + step_line(5, 0.25) +
                           "{\"event\":\"validate\",\"step\":5,\"loss\":0.75,\"ego_lateral\":0.5}\n"
                           "{\"event\":\"sample\","
                           "\"step\":5,\"path\":\"a.png\"}\n"
                           "{\"event\":\"something new\"}\n\n");
  REQUIRE(history.starts().size() == 1);
  CHECK(history.starts()[0].unix_seconds == 1700000000.5);
  CHECK_FALSE(history.starts()[0].resumed);
  REQUIRE(history.steps().size() == 1);
  const LoggedStep& step = history.steps()[0];
  CHECK((step.step == 5 && step.loss == 0.25 && step.learning_rate == 0.5 && step.gradient_norm == 2 &&
         step.images_per_second == 30 && step.seconds == 4 && !step.mfu));
  REQUIRE(history.validations().size() == 1);
  CHECK(history.validations()[0].loss == 0.75);
  CHECK(history.validations()[0].scores == std::map<std::string, double>{{"ego_lateral", 0.5}});
  REQUIRE(history.samples().size() == 1);
  CHECK(history.samples()[0].path == "a.png");
  CHECK(history.unreadable_lines() == 0);
}

TEST_CASE("a resume takes back the steps that are trained again") {
  RunHistory history(step_line(5, 1) + step_line(10, 1) + step_line(15, 1) +
                     "{\"event\":\"validate\",\"step\":15,\"loss\":1}\n"
                     "{\"event\":\"sample\",\"step\":15,\"path\":\"a.png\"}\n"
                     "{\"event\":\"resume\",\"step\":10}\n" +
                     step_line(12, 2));
  CHECK(steps_of(history) == std::vector<int64_t>{5, 10, 12});
  CHECK(history.validations().empty());
  CHECK(history.samples().empty());
  REQUIRE(history.starts().size() == 1);
  CHECK(history.starts()[0].resumed);
}

TEST_CASE("a history has what resumes changed, and which processes trained") {
  const std::string resume = "{\"event\":\"resume\",\"step\":5,\"changes\":\"a = 2 (was 1)\"";
  const RunHistory history("{\"event\":\"start\",\"step\":0}\n" + step_line(5, 1) + resume + "}\n" + resume +
                           ",\"changes_of_result\":\"b = 4 (was 3)\"}\n" + step_line(10, 1));
  REQUIRE(history.starts().size() == 3);
  CHECK(history.starts()[0].trained);
  CHECK_FALSE(history.starts()[1].trained);
  CHECK(history.starts()[2].trained);
  REQUIRE(history.changes().size() == 2);  // those of the first resume are said again by the second
  CHECK((history.changes()[0].of_result && history.changes()[0].text == "b = 4 (was 3)"));
  CHECK((!history.changes()[1].of_result && history.changes()[1].text == "a = 2 (was 1)"));
}

TEST_CASE("lines that a crash has torn are counted and left out") {
  test::MemoryFileSystem files;
  const std::string torn = step_line(10, 1).substr(0, 20);
  write_file_atomically(files, "log.jsonl", step_line(5, 1) + torn);
  RunLog log(files, "log.jsonl");
  CHECK(log.write(Logged::checkpoint, {{"step", int64_t{10}}}) == "{\"event\":\"checkpoint\",\"step\":10}");
  CHECK(files.read("log.jsonl") == step_line(5, 1) + torn + "\n{\"event\":\"checkpoint\",\"step\":10}\n");
  const RunHistory history(files.read("log.jsonl"));
  CHECK(steps_of(history) == std::vector<int64_t>{5});
  CHECK(history.unreadable_lines() == 1);
  CHECK(RunHistory("{\"event\":\"step\",\"step\":\"five\"}\n[]\n").unreadable_lines() == 2);
}

TEST_CASE("a log that ends with its line, or does not exist, gets no empty line") {
  test::MemoryFileSystem files;
  RunLog(files, "log.jsonl").write(Logged::end, {});
  RunLog(files, "log.jsonl").write(Logged::end, {});
  CHECK(files.read("log.jsonl") == "{\"event\":\"end\"}\n{\"event\":\"end\"}\n");
}

TEST_CASE("log steps: dense at the beginning, then every so many") {
  using Steps = std::vector<int64_t>;
  CHECK(logged_up_to(170, 50) == Steps{1, 2, 5, 10, 20, 50, 100, 150});
  CHECK(logged_up_to(36, 12) == Steps{1, 2, 5, 10, 12, 24, 36});
  CHECK(logged_up_to(900, 300) == Steps{1, 2, 5, 10, 20, 50, 100, 200, 300, 600, 900});
  CHECK(logged_up_to(4, 1) == Steps{1, 2, 3, 4});
  CHECK(logged_up_to(7, 3) == Steps{1, 2, 3, 6});
}

TEST_CASE("the log takes names that are no UTF-8, and steps that are none are passed over") {
  dtk::test::MemoryFileSystem files;
  RunLog log(files, "log.jsonl");
  CHECK(log.write(Logged::start, {{"step", int64_t{0}}, {"skipped_first", std::string("caf\xe9.png")}}) ==
        "{\"event\":\"start\",\"step\":0,\"skipped_first\":\"caf\xef\xbf\xbd.png\"}");
  const RunHistory history("{\"event\":\"start\",\"step\":1e300}\n{\"event\":\"start\",\"step\":2.5}\n");
  CHECK(history.unreadable_lines() == 2);
}

TEST_CASE("a history has what a run that was refused memory went on with, unless a resume takes it back") {
  const std::string escalated =
      "{\"event\":\"escalated\",\"step\":4,\"set\":\"memory.split = "
      "2\",\"planned_bytes\":100,\"room_bytes\":120}\n"
      "{\"event\":\"resume\",\"step\":4}\n"
      "{\"event\":\"escalated\",\"step\":9,\"set\":\"memory.split = 4\",\"planned_bytes\":1e300}\n";
  const RunHistory history(escalated);
  REQUIRE(history.escalations().size() == 2);
  CHECK(history.escalations()[0].step == 4);
  CHECK(history.escalations()[0].set == "memory.split = 2");
  CHECK(history.escalations()[0].planned_bytes == 100);
  CHECK(history.escalations()[0].room_bytes == 120);
  CHECK_FALSE(history.escalations()[1].planned_bytes);  // no whole number
  CHECK_FALSE(history.escalations()[1].room_bytes);
  CHECK(RunHistory(escalated + "{\"event\":\"resume\",\"step\":8}\n").escalations().size() == 1);
}
