// judge-answers: how many answers are the true ones, by kind of question, beside the commonest answer of
// each; and a page of some with their pictures.
#include <algorithm>
#include <cstdio>
#include <cxxopts.hpp>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "support/arguments.h"
#include "toolkit/core/errors.h"
#include "toolkit/io/base64.h"
#include "toolkit/io/file_system.h"
#include "toolkit/io/json.h"
#include "toolkit/report/line_chart.h"

namespace {

using Json = nlohmann::json;

struct Kind {
  int64_t asked = 0, right = 0;
  std::map<std::string, int64_t> truths;
  int64_t commonest() const {
    return std::max_element(truths.begin(), truths.end(),
                            [](const auto& a, const auto& b) { return a.second < b.second; })
        ->second;
  }
};

Json list_in(const std::string& file) {
  constexpr uint64_t max_bytes = uint64_t{1} << 30;
  constexpr int max_depth = 8;
  const char* const advice = "; name a list that draw-dialogues or dit-sample --ask has written";
  if (!dtk::posix_file_system().exists(file)) throw dtk::DataError(file + ": there is no such file" + advice);
  try {
    Json list = dtk::parse_strict_json(dtk::posix_file_system().read(file, max_bytes), file, max_depth);
    if (list.is_array() && !list.empty()) return list;
  } catch (const dtk::FileError& error) {
    throw dtk::DataError(error.what() + std::string(advice));
  }
  throw dtk::DataError(file + ": no list" + advice);
}

std::string asked_in(const Json& dialogue) {
  const Json& turns = dialogue.at("conversations");
  const std::string question = turns.at(turns.size() - 2).at("value");
  return question.substr(question.find('\n') + 1);  // behind <image>
}

// Twelve pictures, the first that are asked about in each kind by turns; the page opens anywhere.
std::string page_of(const Json& truth, const Json& answers, const std::filesystem::path& folder) {
  constexpr size_t count = 12;
  std::string page =
      "<!doctype html><meta charset=utf-8><title>Questions and answers</title><style>"
      "body{font:14px sans-serif;display:grid;grid-template-columns:repeat(4,180px);gap:14px;margin:14px}"
      "figure{margin:0}img{width:168px;image-rendering:pixelated;display:block;margin-bottom:6px}"
      ".right{color:#0a6b2d}.wrong{color:#b00020}</style>\n";
  std::set<std::string> shown, kinds;
  for (const Json& one : truth) kinds.insert(one.value("kind", ""));
  std::string due = kinds.empty() ? "" : *kinds.begin();
  for (size_t i = 0, shows = 0; i < truth.size() && shows < count; ++i) {
    const std::string picture = truth[i].value("image", ""), kind = truth[i].value("kind", "");
    if (picture.empty() || kind != due || !shown.insert(picture).second) continue;
    const auto next = kinds.upper_bound(due);
    due = next == kinds.end() ? *kinds.begin() : *next;
    ++shows;
    const std::string bytes = dtk::posix_file_system().read(folder / picture, uint64_t{1} << 24);
    const std::string wanted = truth[i].at("conversations").back().at("value"),
                      given = answers[i].at("answer");
    const bool is_right = given == wanted;
    page += "<figure><img src=\"data:image/png;base64," + dtk::base64(bytes) + "\"><figcaption>" +
            dtk::html_escaped(asked_in(truth[i])) + "<br><b class=" + (is_right ? "right" : "wrong") + ">" +
            dtk::html_escaped(given) + "</b>" + (is_right ? "" : "<br>" + dtk::html_escaped(wanted)) +
            "</figcaption></figure>\n";
  }
  return page;
}

double percent(int64_t part, int64_t all) {
  return 100.0 * static_cast<double>(part) / static_cast<double>(all);
}

void run(int argc, char** argv) {
  cxxopts::Options options("judge-answers", "How many answers are the true ones, by kind of question");
  options.add_options()("truth", "list of dialogues with answers, as draw-dialogues writes it",
                        cxxopts::value<std::string>())(
      "answers", "what dit-sample --ask wrote of the same dialogues", cxxopts::value<std::string>())(
      "json", "as one JSON object")("page", "HTML to write: twelve of them with their pictures",
                                    cxxopts::value<std::string>())("help", "this text");
  const cxxopts::ParseResult given = ::examples::parsed(options, argc, argv);
  if (given.count("help") > 0) {
    std::printf("%s", options.help().c_str());
    return;
  }
  for (const char* const name : {"truth", "answers"}) {
    if (given.count(name) == 0) throw dtk::ConfigError(std::string("--") + name + " is missing; see --help");
  }
  const std::string truth_file = given["truth"].as<std::string>(), file = given["answers"].as<std::string>();
  const Json truth = list_in(truth_file), answers = list_in(file);
  if (truth.size() != answers.size()) {
    throw dtk::DataError(file + ": " + std::to_string(answers.size()) + " answers, and " + truth_file +
                         " has " + std::to_string(truth.size()) + " dialogues");
  }
  std::map<std::string, Kind> kinds;
  for (size_t i = 0; i < truth.size(); ++i) {
    if (truth[i].at("id") != answers[i].at("id"))
      throw dtk::DataError(file + ": answer " + std::to_string(i) + " is of another dialogue than in " +
                           truth_file);
    const Json& turns = truth[i].at("conversations");
    if (turns.size() < 2 || turns.back().value("from", "") != "gpt") {
      throw dtk::DataError(
          truth_file + ": dialogue " + std::to_string(i) +
          " has no answer to judge by; name the list with answers, without _asked or _other");
    }
    const std::string wanted = turns.back().at("value");
    Kind& kind = kinds[truth[i].value("language", "") + " " + truth[i].value("kind", "")];
    ++kind.asked;
    kind.right += answers[i].at("answer") == wanted ? 1 : 0;
    ++kind.truths[wanted];
  }
  if (given.count("page") > 0) {
    dtk::write_file_atomically(dtk::posix_file_system(), given["page"].as<std::string>(),
                               page_of(truth, answers, std::filesystem::path(truth_file).parent_path()));
  }
  if (given.count("json") > 0) {
    nlohmann::ordered_json json;
    for (const auto& [name, kind] : kinds)
      json[name] = {{"asked", kind.asked},
                    {"right", percent(kind.right, kind.asked)},
                    {"commonest", percent(kind.commonest(), kind.asked)}};
    std::printf("%s\n", json.dump(1).c_str());
    return;
  }
  std::printf("%-18s %6s %8s %20s\n", "kind", "asked", "right", "commonest answer");
  for (const auto& [name, kind] : kinds) {
    std::printf("%-18s %6lld %6.1f %% %18.1f %%\n", name.c_str(), static_cast<long long>(kind.asked),
                percent(kind.right, kind.asked), percent(kind.commonest(), kind.asked));
  }
}

}  // namespace

int main(int argc, char** argv) {
  return ::examples::exit_code_of("judge-answers", [&] {
    try {
      run(argc, argv);
    } catch (const Json::exception& error) {
      throw dtk::DataError("--truth or --answers is not as draw-dialogues and dit-sample --ask write it: " +
                           std::string(error.what()));
    }
  });
}
