#include "toolkit/report/line_chart.h"

#include <cmath>

#include "support/catch.h"
#include "toolkit/core/numbers.h"

using namespace dtk;
using Labels = std::vector<std::string>;

namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

std::string attribute(const std::string& text, const std::string& before) {
  const size_t begin = text.find(before);
  REQUIRE(begin != std::string::npos);
  return text.substr(begin + before.size(), text.find('"', begin + before.size()) - begin - before.size());
}

}  // namespace

TEST_CASE("ticks are round, cover the range and are as many as fit") {
  CHECK(round_ticks(0, 1, 6) == std::vector<double>{0, 0.2, 0.4, 0.6, 0.8, 1.0});
  CHECK(round_ticks(0.21, 0.98, 6) == std::vector<double>{0.2, 0.4, 0.6, 0.8, 1.0});
  CHECK(round_ticks(0, 4970, 6) == std::vector<double>{0, 1000, 2000, 3000, 4000, 5000});
  CHECK(round_ticks(-3, 3, 6) == std::vector<double>{-4, -2, 0, 2, 4});
  for (const double high : {1e-9, 0.3, 7.0, 12345.678, 9e15}) {
    for (const int most : {2, 3, 6, 11}) {
      const auto ticks = round_ticks(0, high, most);
      INFO(high << " " << most);
      CHECK(ticks.size() <= static_cast<size_t>(most));
      CHECK(ticks.size() >= 2);
      CHECK(ticks.front() == 0);
      CHECK(ticks.back() >= high);
      CHECK(ticks[ticks.size() - 2] < high);
    }
  }
}

TEST_CASE("labels have no more digits than tell the ticks apart") {
  CHECK(tick_labels({0, 0.2, 0.4}) == Labels{"0", "0.2", "0.4"});
  CHECK(tick_labels({0.95, 1.0, 1.05}) == Labels{"0.95", "1.00", "1.05"});
  CHECK(tick_labels({0, 10000, 20000}) == Labels{"0", "10,000", "20,000"});
  CHECK(tick_labels({-4, -2, 0, 2}) == Labels{"-4", "-2", "0", "2"});
  CHECK(tick_labels({0, 2e-4, 4e-4}) == Labels{"0", "2e-4", "4e-4"});
  CHECK(tick_labels({0, 5e-4, 1e-3}) == Labels{"0", "0.5e-3", "1.0e-3"});
}

TEST_CASE("numbers of bytes have separators") {
  CHECK(with_separators(0) == "0");
  CHECK(with_separators(999) == "999");
  CHECK(with_separators(1000) == "1,000");
  CHECK(with_separators(-1234567) == "-1,234,567");
}

TEST_CASE("nothing in a text is taken for HTML") {
  CHECK(html_escaped("<b a=\"1\" c='2'>&\n") == "&lt;b a=&quot;1&quot; c=&#39;2&#39;&gt;&amp;\n");
  CHECK(html_escaped(std::string("\x01\x1b\x7f", 3)) == "\uFFFD\uFFFD\uFFFD");
  CHECK(html_escaped("garments, größer") == "garments, größer");
}

TEST_CASE("a chart without points is nothing") {
  CHECK(line_chart({.id = "a", .title = "a", .curves = {{"empty"}}}) == "");
}

TEST_CASE("a curve runs through its points") {
  const std::string chart =
      line_chart({.id = "loss", .title = "loss", .curves = {{"loss", {{0, 0.2}, {50, 1.0}, {100, 0.6}}}}});
  CHECK(attribute(chart, "class=\"bold\" data-points=\"3\" d=\"") == "M0 1000L500 0L1000 500");
  CHECK(attribute(chart, "class=\"grid\" d=\"") == "M0 1000H1000M0 750H1000M0 500H1000M0 250H1000M0 0H1000");
  CHECK(count(chart, "<rect class=\"hover\"") == 3);
  CHECK(chart.find("<title>step 50: 1</title>") != std::string::npos);
  CHECK(chart.find("<span style=\"left:20%\">20</span>") != std::string::npos);
  CHECK(chart.find("legend") == std::string::npos);
}

TEST_CASE("a value that does not change lies in the middle, a single point has an axis") {
  const std::string flat = line_chart({.id = "a", .title = "a", .curves = {{"a", {{1, 0.5}, {2, 0.5}}}}});
  CHECK(attribute(flat, "data-points=\"2\" d=\"") == "M0 500L1000 500");
  const std::string zero = line_chart({.id = "a", .title = "a", .curves = {{"a", {{7, 0}}}}});
  CHECK(attribute(zero, "data-points=\"1\" d=\"") == "M500 500");
  CHECK(zero.find(">7</span>") != std::string::npos);
}

TEST_CASE("values far apart get a logarithmic axis, unless it is to begin at zero") {
  Curve curve{"a", {{0, 0.01}, {1, 0.1}, {2, 1.0}}};
  const std::string chart = line_chart({.id = "a", .title = "a", .curves = {curve}});
  CHECK(attribute(chart, "data-scale=\"") == "logarithmic");
  CHECK(attribute(chart, "data-points=\"3\" d=\"") == "M0 1000L500 500L1000 0");
  CHECK(attribute(line_chart({.id = "a", .title = "a", .y_axis = YAxis::from_zero, .curves = {curve}}),
                  "data-scale=\"") == "linear");
  curve.points[0].second = 0;
  CHECK(attribute(line_chart({.id = "a", .title = "a", .curves = {curve}}), "data-scale=\"") == "linear");
}

TEST_CASE("an axis that is to be logarithmic is so for near values too, with ticks between them") {
  const auto chart = [](double low, double high) {
    return line_chart({.id = "a",
                       .title = "a",
                       .y_axis = YAxis::logarithmic,
                       .curves = {{"a", {{0, low}, {1, std::sqrt(low * high)}, {2, high}}}}});
  };
  const std::string near = chart(1, 1.44);
  CHECK(attribute(near, "data-scale=\"") == "logarithmic");
  CHECK(attribute(near, "data-points=\"3\" d=\"") == "M0 1000L500 550.34L1000 100.68");  // of 1 to 1.5
  for (const std::string tick : {">1.0<", ">1.1<", ">1.4<", ">1.5<"})
    CHECK(near.find(tick) != std::string::npos);
  const std::string wide = chart(0.16, 0.8);  // ticks from 0.15 to 0.8
  CHECK(attribute(wide, "data-points=\"3\" d=\"") == "M0 961.45L500 480.72L1000 0");
  CHECK(wide.find(">0.15<") != std::string::npos);
  CHECK(attribute(chart(0, 1), "data-scale=\"") == "linear");
  CHECK(attribute(chart(2, 2), "data-scale=\"") == "linear");
}

TEST_CASE("a long curve keeps its peaks") {
  Curve curve{"a"};
  for (int i = 0; i < 100000; ++i) curve.points.emplace_back(i, i == 77777 ? 10.0 : i % 2);
  const std::string chart = line_chart({.id = "a", .title = "a", .curves = {curve}});
  const std::string path = attribute(chart, "data-points=\"100000\" d=\"");
  CHECK(count(path, "L") < 1000);
  CHECK(path.find("L777.78 0L") != std::string::npos);
  CHECK(count(path, " 900L") >= 398);   // the lows of 0 and 1 alternate ...
  CHECK(count(path, " 1000L") >= 398);  // ... and both stay
}

TEST_CASE("curves have names where there are several, and names are escaped") {
  const std::string chart = line_chart({.id = "a",
                                        .title = "a < b",
                                        .note = "<i>",
                                        .curves = {{"raw & thin", {{0, 1}}, Curve::Look::thin},
                                                   {"dots", {{0, 2}, {5, 3}}, Curve::Look::dots}}});
  CHECK(chart.find("<span class=\"key thin\">raw &amp; thin</span>") != std::string::npos);
  CHECK(chart.find("<b>a &lt; b</b>") != std::string::npos);
  CHECK(chart.find("<p class=\"note\">&lt;i&gt;</p>") != std::string::npos);
  CHECK(count(attribute(chart, "class=\"dots\" data-points=\"2\" d=\""), "h0") == 2);
}
