#include "toolkit/report/history.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "toolkit/core/text.h"
#include "toolkit/report/log.h"

namespace dtk {
namespace {

using Json = nlohmann::json;

LoggedStep logged_step(const Json& line) {
  LoggedStep step;
  step.step = line.at("step");
  step.loss = line.at("loss");
  step.learning_rate = line.at("lr");
  step.gradient_norm = line.at("gradient_norm");
  step.images_per_second = line.at("images_per_second");
  step.seconds = line.at("seconds");
  if (line.contains("mfu")) step.mfu = line["mfu"].get<double>();
  return step;
}

LoggedValidation logged_validation(const Json& line) {
  LoggedValidation validation = {line.at("step"), line.at("loss")};
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
  const Json json = Json::parse(line);
  const auto event = policies::parse_enum<Logged>(json.at("event").get<std::string>());
  if (event == Logged::start || event == Logged::resume) {
    starts_.push_back({json.at("step"), event == Logged::resume, json.value("time", 0.0)});
    const auto is_later = [this](const auto& entry) { return entry.step > starts_.back().step; };
    std::erase_if(steps_, is_later);
    std::erase_if(validations_, is_later);
    std::erase_if(samples_, is_later);
  } else if (event == Logged::step) {
    steps_.push_back(logged_step(json));
  } else if (event == Logged::validate) {
    validations_.push_back(logged_validation(json));
  } else if (event == Logged::sample) {
    samples_.push_back({json.at("step"), json.at("path")});
  }
} catch (const Json::exception&) {
  ++unreadable_;
}

}  // namespace dtk
