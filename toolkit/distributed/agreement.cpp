#include "toolkit/distributed/agreement.h"

#include <dtk/policies/advice.h>

#include "toolkit/config/rules.h"
#include "toolkit/config/toml_text.h"
#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/core/text.h"
#include "toolkit/io/json.h"

namespace dtk {
namespace {

using Json = nlohmann::json;
using policies::advise;

[[noreturn]] void refuse(const LoadedConfig& loaded, const std::string& key, const std::string& why) {
  throw ConfigError(fmt::format("{}{}: {}", location_of(loaded, key), setting_of(loaded.config, key), why));
}

// "1, 2, 3, 6 or 12"
std::string divisors_of(int64_t number) {
  std::vector<std::string> divisors;
  for (int64_t divisor = 1; divisor <= number; ++divisor)
    if (number % divisor == 0) divisors.push_back(std::to_string(divisor));
  return listed(divisors, " or ");
}

int64_t next_multiple(int64_t number, int64_t of) {
  return (number / of + 1) * of;
}

Json start_of(const Ranks& ranks, const LoadedConfig& loaded,
              const std::map<std::string, std::string>& facts) {
  Json keys = Json::array();
  for (const ConfigRow& row : config_rows(loaded)) {
    const std::string key = row.table + "." + row.name;
    if (key != "distributed.interface") keys.push_back({key, row.value});  // hosts may name theirs otherwise
  }
  return {{"name", ranks.name()}, {"facts", facts}, {"keys", keys}};
}

}  // namespace

void share_out(LoadedConfig& loaded, int64_t ranks, std::optional<int64_t> accumulate_before) {
  loaded.ranks = ranks;
  RunConfig& config = loaded.config;
  Origin& origin = loaded.origins["train.accumulate"];
  const int64_t chosen = accumulate_before.value_or(ranks);
  const bool was_taken_back =
      origin.source == Origin::Source::set && loaded.locations.count("train.accumulate") == 0;
  const bool is_open = origin.source == Origin::Source::by_default || was_taken_back;
  if (is_open && config.train.accumulate == 1 && chosen > 1) {
    config.train.accumulate = chosen;
    origin = {Origin::Source::by_default, "one micro-batch a rank"};
    if (accumulate_before) origin = {Origin::Source::checkpoint};
    if (config.data.batch % chosen != 0) {
      const std::string who = accumulate_before ? "micro-batches of the checkpoint" : "ranks";
      refuse(loaded, "data.batch",
             fmt::format("{} {} do not divide it; {}", chosen, who,
                         advise("data.batch", std::to_string(next_multiple(config.data.batch, chosen)))));
    }
  }
  const int64_t accumulate = config.train.accumulate;
  if (accumulate % ranks != 0) {
    const int64_t more = next_multiple(accumulate, ranks);
    const bool fits = config.data.batch % more == 0;
    refuse(loaded, "train.accumulate",
           fmt::format(
               "{} ranks do not divide the micro-batches of a step; start {} rank{}, or {}{}", ranks,
               divisors_of(accumulate), accumulate == 1 ? "" : "s",
               advise("train.accumulate", std::to_string(more)),
               fits ? "" : fmt::format(" with data.batch = {}", next_multiple(config.data.batch, more))));
  }
  refuse_for_one_rank(loaded);
}

void refuse_for_one_rank(const LoadedConfig& loaded) {
  const MemoryOptions& memory = loaded.config.memory;
  if (loaded.ranks > 1 && memory.split > 1) {
    refuse(loaded, "memory.split",
           "where several ranks train, a micro-batch is not split; " + advise("memory.split", "1") +
               " and raise train.accumulate");
  }
  if (loaded.ranks > 1 && memory.on_out_of_memory == OnOutOfMemory::escalate) {
    refuse(loaded, "memory.on_out_of_memory",
           "one rank's choice would not be the others'; " +
               advise("memory.on_out_of_memory", toml_text(OnOutOfMemory::stop)));
  }
}

void check_backend(const LoadedConfig& loaded, c10::Device device) {
  const Backend backend = loaded.config.distributed.backend;
  const std::string advice = advise("distributed.backend", toml_text(Backend::automatic));
  if (backend == Backend::nccl && !device.is_cuda())
    refuse(loaded, "distributed.backend", "NCCL is for GPUs, and this rank trains on the CPU; " + advice);
  if (backend == Backend::gloo && device.is_cuda()) {
    refuse(loaded, "distributed.backend",
           fmt::format(
               "Gloo exchanges tensors in host memory, and this rank trains on {}; {}, or use --device cpu",
               device.str(), advice));
  }
}

void agree_on_start(Ranks& ranks, const LoadedConfig& loaded, c10::Device device,
                    std::map<std::string, std::string> facts) {
  facts["device"] = c10::DeviceTypeName(device.type(), true);
  const Json own = start_of(ranks, loaded, facts);
  const Json leader = parse_json(ranks.leader_says("start", json_line(own)));
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
  const std::string own = print_config(loaded), text = ranks.leader_says("config", own);
  // A plan's, of few steps, need not be one that a file may hold.
  if (ranks.leads() || text == own) return loaded;
  LoadedConfig decided = parse_config(text, "the leader's configuration", {});
  decided.ranks = loaded.ranks;
  return decided;
}

}  // namespace dtk
