// The page's parts; tests/integration/reports/report_page_test.py reads that of a run as XML, number by
// number.
#include "toolkit/report/page.h"

#include "support/catch.h"

using namespace dtk;

namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string step_line(int64_t step, const std::string& loss, const std::string& more = "") {
  return "{\"event\":\"step\",\"step\":" + std::to_string(step) + ",\"loss\":" + loss +
         ",\"lr\":0.001,\"gradient_norm\":2.0,\"images_per_second\":32.0,\"seconds\":4000.0" + more + "}\n";
}

RunReport small() {
  RunReport report;
  report.folder = "runs/mine/";
  report.state = "finished at step 10";
  report.history = RunHistory("{\"event\":\"start\",\"step\":0,\"time\":1700000000}\n" + step_line(5, "0.5") +
                              step_line(10, "0.25"));
  return report;
}

}  // namespace

TEST_CASE("the speed of a report is that of all its steps, however densely they were logged") {
  RunReport report = small();
  const auto line = [](int step, int images_per_second) {
    std::string text = step_line(step, "0.5");
    const std::string old = "\"images_per_second\":32.0";
    return text.replace(text.find(old), old.size(),
                        "\"images_per_second\":" + std::to_string(images_per_second));
  };
  // With one image a step: 1 at 8 a second and 2 at 16 are 3 images in a quarter of a second.
  report.history =
      RunHistory("{\"event\":\"start\",\"step\":0,\"time\":1700000000}\n" + line(1, 8) + line(3, 16));
  CHECK(has(report_html(report), "<data id=\"speed\" value=\"12\">12</data>"));
}

TEST_CASE("a report begins with what the run came to") {
  const std::string page = report_html(small());
  CHECK(has(page, "<title>mine - dit-train</title>"));
  CHECK(has(page, "<dt>folder</dt><dd>runs/mine/</dd>"));
  CHECK(has(page, "<dt>state</dt><dd>finished at step 10</dd>"));
  CHECK(has(page, "<dt>started</dt><dd>2023-11-14 22:13 UTC</dd>"));
  CHECK(has(page, "<data id=\"steps\" value=\"10\">10</data><small>1 h 06 min of training</small>"));
  CHECK(has(page, "<data id=\"loss\" value=\"0.25\">0.2500</data>"));
  CHECK(has(page, "<data id=\"speed\" value=\"32\">32</data>"));
  CHECK_FALSE(has(page, "id=\"mfu\""));
  CHECK_FALSE(has(page, "id=\"validation\""));
  CHECK(has(page, "Not measured: memory.ledger = false."));
  CHECK_FALSE(has(page, "<script"));
  CHECK_FALSE(has(page, "</dl><p class=\"note\""));
}

TEST_CASE("a report of a resumed run says what changed, who trained, and whose the peak is") {
  RunReport report = small();
  report.memory.emplace();
  report.memory->phases = {{"forward", {}}};
  const std::string first = "{\"event\":\"start\",\"step\":0,\"time\":1700000000}\n" + step_line(10, "0.5");
  report.history = RunHistory(first);
  CHECK(has(report_html(report), "<small>tensors, in phase forward</small>"));
  // The first resume had nothing to train.
  report.history = RunHistory(first +
                              "{\"event\":\"resume\",\"step\":10}\n{\"event\":\"resume\",\"step\":10,"
                              "\"changes\":\"train.keep_checkpoints = 3 (was 2)\"}\n" +
                              step_line(20, "0.25"));
  const std::string page = report_html(report);
  CHECK(has(page, "<dt>started</dt><dd>2023-11-14 22:13 UTC, resumed once, last at step 10</dd>"));
  CHECK(has(page, " of training in 2 processes</small>"));
  CHECK(has(page, "After step 10 the run went on with train.keep_checkpoints = 3 (was 2)."));
  CHECK_FALSE(has(page, "class=\"mark\""));  // the weights do not depend on it
  CHECK(has(page, "<small>tensors, in phase forward, since the run was resumed at step 10</small>"));
}

TEST_CASE("a report says what its plan counted as 0") {
  RunReport report = small();
  report.memory.emplace();
  report.memory->phases = {{"forward", {}}};
  const std::string line = "The line across a bar is what was planned before the run began";
  CHECK_FALSE(has(report_html(report), line));
  report.planned = report.memory;
  CHECK(has(report_html(report), line + ".</p>"));
  report.not_planned = "scratch of 6 operators";
  CHECK(has(report_html(report), line + "; not known then, and counted as 0: scratch of 6 operators.</p>"));
}

TEST_CASE("a report says what is amiss with the data") {
  RunReport report = small();
  report.data_note = "No samples: class 4 < 5.";
  CHECK(has(report_html(report), "</dl><p class=\"note\">No samples: class 4 &lt; 5.</p>"));
}

TEST_CASE("a report of a run that logged nothing says so") {
  RunReport report;
  report.folder = "a";
  CHECK(has(report_html(report), "<p>No step was logged.</p>"));
}

TEST_CASE("validation, MFU and torn lines are shown where there are any") {
  RunReport report = small();
  report.peak_flops = 312e12;
  report.history = RunHistory(step_line(1, "0.5", ",\"mfu\":0.4") +
                              "{\"event\":\"validate\",\"step\":1,\"loss\":0.75,\"ego_lateral\":0.5}\n"
                              "{\"event\"\n");
  const std::string page = report_html(report);
  CHECK(has(page, "<data id=\"validation\" value=\"0.75\">0.7500</data><small>at step 1</small>"));
  CHECK(
      has(page,
          "<data id=\"mfu\" value=\"0.40000000000000002\">40 %</data><small>of 312 TFLOP/s, median</small>"));
  CHECK(has(page, "data-chart=\"mfu\""));
  CHECK(has(page, "class=\"dots\" data-points=\"1\""));
  CHECK(has(page, "data-chart=\"ego_lateral\""));
  CHECK(has(page, "validation: ego_lateral"));
  CHECK(has(page, "1 lines of log.jsonl could not be read"));
}

TEST_CASE("a long loss curve is smoothed, a short one is not") {
  RunReport report = small();
  CHECK_FALSE(has(report_html(report), "smoothed"));
  std::string log;
  for (int i = 1; i <= 120; ++i) log += step_line(i, "0.5");
  report.history = RunHistory(log);
  const std::string page = report_html(report);
  CHECK(has(page, "class=\"thin\" data-points=\"120\""));
  CHECK(has(page, "class=\"bold\" data-points=\"120\""));
  CHECK(has(page, "Smoothed: mean over 13 of 120 logged values, fewer at the ends."));
}

TEST_CASE("smoothing keeps the ends and a straight line") {
  CHECK(smoothed({}, 5).empty());
  CHECK(smoothed({3, 5}, 1) == std::vector<double>{3, 5});
  CHECK(smoothed({1, 2, 3, 4, 5, 6}, 2) == std::vector<double>{1, 2, 3, 4, 5, 6});
  CHECK(smoothed({0, 0, 15, 0, 0, 7}, 2) == std::vector<double>{0, 5, 3, 22.0 / 5, 7.0 / 3, 7});
}

TEST_CASE("whatever the user wrote stays text") {
  RunReport report = small();
  const std::string evil = "<script>alert(\"1\")</script>&'";
  const std::string safe = "&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;&amp;&#39;";
  report.folder = "runs/" + evil;
  report.data = report.model = report.device = report.samples_note = evil;
  report.config = {{evil, evil, evil, evil}, {evil, evil, "", evil}};
  const std::string page = report_html(report);
  CHECK_FALSE(has(page, "<script"));
  CHECK_FALSE(has(page, evil));
  for (const std::string field : {"data", "model", "device"}) {
    CHECK(has(page, "<dt>" + field + "</dt><dd>" + safe + "</dd>"));
  }
  CHECK(has(page, "<th colspan=\"3\">[" + safe + "]</th>"));
  CHECK(has(page, "<td colspan=\"3\" class=\"unset\"># " + safe + "</td>"));
  CHECK(has(page, "<th scope=\"row\">" + safe + "</th><td>" + safe + "</td><td class=\"origin\">" + safe +
                      "</td>"));
}

TEST_CASE("samples are in the page, as base64") {
  RunReport report = small();
  report.samples = {
      {5, "M", 100}, {1000, "Ma", 20}, {2000, "Man", 4000}, {3000, std::string("\xff\xff\xff\0", 4), 90}};
  const std::string page = report_html(report);
  CHECK(has(page,
            "alt=\"samples at step 5\" style=\"--width:800px\" src=\"data:image/png;base64,TQ==\"/>"
            "<figcaption>step 5<"));
  CHECK(
      has(page, "alt=\"samples at step 1,000\" style=\"--width:160px\" src=\"data:image/png;base64,TWE=\""));
  CHECK(has(page, "--width:4000px\" src=\"data:image/png;base64,TWFu\""));
  CHECK(has(page,
            "<div class=\"latest\"><figure><img alt=\"samples at step 3,000\" style=\"--width:720px\" "
            "src=\"data:image/png;base64,////AA==\""));
  CHECK(page.find("<h2>Samples</h2>") < page.find("<h2>Training</h2>"));
}
