#include "toolkit/report/history.h"

#include <algorithm>
#include <utility>

#include "toolkit/core/text.h"
#include "toolkit/io/json.h"
#include "toolkit/report/log.h"

namespace dtk {
namespace {

using Json = nlohmann::json;

int64_t step_in(const Json& line) {
  const auto step = whole_number(line.at("step"));
  if (!step) throw Json::other_error::create(0, "no step", &line);
  return *step;
}

LoggedStep logged_step(const Json& line) {
  LoggedStep step;
  step.step = step_in(line);
  step.loss = line.at("loss");
  step.learning_rate = line.at("lr");
  step.gradient_norm = line.at("gradient_norm");
  step.images_per_second = line.at("images_per_second");
  step.seconds = line.at("seconds");
  if (line.contains("process_bytes")) step.process_bytes = whole_number(line["process_bytes"]);
  if (line.contains("counted_bytes")) step.counted_bytes = whole_number(line["counted_bytes"]);
  if (line.contains("mfu")) step.mfu = line["mfu"].get<double>();
  return step;
}

LoggedValidation logged_validation(const Json& line) {
  LoggedValidation validation = {step_in(line), line.at("loss")};
  for (const auto& [name, value] : line.items()) {
    if (value.is_number() && name != "step" && name != "loss") validation.scores[name] = value;
  }
  return validation;
}

}  // namespace

RunHistory::RunHistory(const std::string& log) {
  for (const std::string& line : split(log, '\n')) add(line);
}

void RunHistory::add(std::string_view line) try {
  if (line.empty()) return;
  const Json json = parse_json(line);
  const auto event = policies::parse_enum<Logged>(json.at("event").get<std::string>());
  if (event == Logged::start || event == Logged::resume) {
    starts_.push_back({step_in(json), event == Logged::resume, /*trained=*/false, json.value("time", 0.0)});
    const auto is_later = [this](const auto& entry) { return entry.step > starts_.back().step; };
    std::erase_if(steps_, is_later);
    std::erase_if(validations_, is_later);
    std::erase_if(samples_, is_later);
    std::erase_if(escalations_, is_later);
    std::erase_if(changes_, [this](const auto& change) { return change.step >= starts_.back().step; });
    for (const auto& [name, of_result] :
         {std::pair("changes_of_result", true), std::pair("changes", false)}) {
      if (json.contains(name)) changes_.push_back({step_in(json), json[name].get<std::string>(), of_result});
    }
    std::erase_if(skipped_, [this](int64_t step) { return step > starts_.back().step; });
  } else if (event == Logged::step) {
    steps_.push_back(logged_step(json));
    if (!starts_.empty()) starts_.back().trained = true;
  } else if (event == Logged::skipped) {
    skipped_.push_back(step_in(json));
    if (!starts_.empty()) starts_.back().trained = true;
  } else if (event == Logged::escalated) {
    LoggedEscalation escalation{step_in(json), json.at("set")};
    if (json.contains("planned_bytes")) escalation.planned_bytes = whole_number(json["planned_bytes"]);
    if (json.contains("room_bytes")) escalation.room_bytes = whole_number(json["room_bytes"]);
    escalations_.push_back(std::move(escalation));
  } else if (event == Logged::validate) {
    validations_.push_back(logged_validation(json));
  } else if (event == Logged::sample) {
    samples_.push_back({step_in(json), json.at("path")});
  }
} catch (const Json::exception&) {
  ++unreadable_;
}

}  // namespace dtk
