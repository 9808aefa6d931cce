#include "toolkit/distributed/agreement.h"

#include <dtk/policies/advice.h>

#include <nlohmann/json.hpp>

#include "toolkit/config/rules.h"
#include "toolkit/config/toml_text.h"
#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"

namespace dtk {
namespace {

using Json = nlohmann::json;
using policies::advise;

[[noreturn]] void refuse(const LoadedConfig& loaded, const std::string& key, const std::string& why) {
  throw ConfigError(location_of(loaded, key) + setting_of(loaded.config, key) + ": " + why);
}

// "1, 2, 3, 6 and 12"
std::string divisors_of(int64_t number) {
  std::string text;
  for (int64_t divisor = 1; divisor <= number; ++divisor) {
    if (number % divisor == 0) text += fmt::format("{}{}", text.empty() ? "" : ", ", divisor);
  }
  return text;
}

Json start_of(const Ranks& ranks, const LoadedConfig& loaded, c10::Device device,
              const std::string& program) {
  Json keys = Json::array();
  for (const ConfigRow& row : config_rows(loaded)) keys.push_back({row.table + "." + row.name, row.value});
  return {{"name", ranks.name()},
          {"facts", {{"program", program}, {"device", c10::DeviceTypeName(device.type(), true)}}},
          {"keys", keys}};
}

}  // namespace

void share_out(LoadedConfig& loaded, int64_t ranks) {
  if (ranks == 1) return;
  loaded.ranks = ranks;
  RunConfig& config = loaded.config;
  const auto origin = loaded.origins.find("train.accumulate");
  if (origin == loaded.origins.end() || origin->second.source == Origin::Source::by_default) {
    config.train.accumulate = ranks;
    loaded.origins["train.accumulate"] = {Origin::Source::by_default, "one micro-batch a rank"};
    if (config.data.batch % ranks != 0) {
      refuse(loaded, "data.batch",
             fmt::format("{} ranks do not divide it; {}", ranks,
                         advise("data.batch", std::to_string((config.data.batch / ranks + 1) * ranks))));
    }
  }
  const int64_t accumulate = config.train.accumulate;
  if (accumulate % ranks != 0) {
    refuse(loaded, "train.accumulate",
           fmt::format("{} ranks do not divide the micro-batches of a step; start {} ranks, or {}", ranks,
                       divisors_of(accumulate),
                       advise("train.accumulate", std::to_string((accumulate / ranks + 1) * ranks))));
  }
  if (config.memory.split > 1) {
    refuse(loaded, "memory.split",
           "where several ranks train, a micro-batch is not split; " + advise("memory.split", "1") +
               " and raise train.accumulate");
  }
  if (config.memory.on_out_of_memory == OnOutOfMemory::escalate) {
    refuse(loaded, "memory.on_out_of_memory",
           "one rank's choice would not be the others'; " +
               advise("memory.on_out_of_memory", toml_text(OnOutOfMemory::stop)));
  }
}

void agree_on_start(Ranks& ranks, const LoadedConfig& loaded, c10::Device device,
                    const std::string& program) {
  const Json own = start_of(ranks, loaded, device, program);
  const Json leader = Json::parse(ranks.leader_says(
      "start", own.dump(-1, ' ', false, Json::error_handler_t::replace)));  // a path may be no UTF-8
  const std::string whose = leader.at("name");
  for (const auto& [fact, value] : leader.at("facts").items()) {
    const std::string mine = own.at("facts").at(fact), theirs = value;
    if (mine != theirs)
      throw ConfigError(
          fmt::format("{} {} here, {} at {}; all ranks need the same", fact, mine, theirs, whose));
  }
  const Json &mine = own.at("keys"), &theirs = leader.at("keys");
  for (size_t i = 0; i < std::max(mine.size(), theirs.size()); ++i) {
    if (i < mine.size() && i < theirs.size() && mine[i] == theirs[i]) continue;
    const auto said = [i](const Json& keys) {
      if (i >= keys.size()) return std::string("no more keys");
      const std::string key = keys[i][0], value = keys[i][1];
      return key + (value.empty() ? " not set" : " = " + value);
    };
    throw ConfigError(fmt::format("{} here, {} at {}; give all ranks the same configuration", said(mine),
                                  said(theirs), whose));
  }
}

LoadedConfig leaders_config(Ranks& ranks, const LoadedConfig& loaded) {
  const std::string text = ranks.leader_says("config", ranks.leads() ? print_config(loaded) : "");
  if (ranks.leads()) return loaded;
  LoadedConfig decided = parse_config(text, "the leader's configuration", {});
  decided.ranks = loaded.ranks;
  return decided;
}

}  // namespace dtk
