#include "toolkit/plan/calibration.h"

#include <ATen/Version.h>
#include <ATen/cpu/Utils.h>
#include <torch/version.h>

#include <chrono>
#include <cstdlib>
#include <utility>

#include "toolkit/config/toml_text.h"
#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/core/numbers.h"
#include "toolkit/io/json.h"

namespace dtk {
namespace {

using OrderedJson = nlohmann::ordered_json;
constexpr char kKind[] = "dit_plan_calibration";
constexpr int64_t kVersion = 1;
constexpr char kAgain[] = "; measure again with dit-plan --calibrate";

std::string today() {
  const std::chrono::year_month_day date(
      std::chrono::floor<std::chrono::days>(std::chrono::system_clock::now()));
  return fmt::format("{:04}-{:02}-{:02}", static_cast<int>(date.year()), static_cast<unsigned>(date.month()),
                     static_cast<unsigned>(date.day()));
}

std::string instructions() {
  const auto has = at::cpu::get_cpu_capabilities();
  std::string text = at::get_cpu_capability();
  for (const char* name : {"avx512_bf16", "avx512_fp16", "amx_bf16", "amx_fp16", "amx_int8"}) {
    const auto found = has.find(name);
    if (found != has.end() && found->second.toBool()) text += std::string(", ") + name;
  }
  const char* const most = std::getenv("ONEDNN_MAX_CPU_ISA");
  return most != nullptr ? text + ", ONEDNN_MAX_CPU_ISA=" + most : text;
}

std::string processor() {
  const auto has = at::cpu::get_cpu_capabilities();
  const auto name = has.find("cpu_name");
  std::string text = name != has.end() ? name->second.toStringRef() : "unknown CPU";
  for (const auto& [key, level] : {std::pair("l1d_cache_size", "L1"), std::pair("l2_cache_size", "L2")}) {
    const auto size = has.find(key);
    if (size != has.end()) text += fmt::format(", {} KiB {}", size->second.toInt() / 1024, level);
  }
  return text;
}

nlohmann::json parse_file(std::string_view text, const std::string& name) try {
  constexpr int kDepth = 3;
  return parse_strict_json(text, name, kDepth);
} catch (const FileError& error) {
  throw FileError(std::string(error.what()) + kAgain);
}

template <class Value>
Value member(const nlohmann::json& json, const char* key, const std::string& name) try {
  return json.at(key).get<Value>();
} catch (const nlohmann::json::exception&) {
  throw FileError(fmt::format("{}: \"{}\" is missing or of another type{}", name, key, kAgain));
}

int64_t count_at(const nlohmann::json& json, const char* key, const char* what, const std::string& name) {
  const auto count = whole_number(member<nlohmann::json>(json, key, name));
  if (count && *count >= 0) return *count;
  throw FileError(fmt::format("{}: \"{}\" is no {}{}", name, key, what, kAgain));
}

int64_t bytes_at(const nlohmann::json& row, const char* key, const std::string& name) {
  return count_at(row, key, "number of bytes", name);
}

void read_cpu(const nlohmann::json& json, const std::string& name, Calibration& calibration) {
  calibration.instruction_set = member<std::string>(json, "instruction_set", name);
  calibration.threads = count_at(json, "threads", "number of threads", name);
  for (const auto& row : member<std::vector<nlohmann::json>>(json, "calls", name)) {
    const planner::OperatorCall call{member<std::string>(row, "operator", name),
                                     member<std::string>(row, "arguments", name)};
    const planner::ScratchBytes bytes{bytes_at(row, "scratch_bytes", name),
                                      bytes_at(row, "beside_results_bytes", name)};
    if (!calibration.scratch.emplace(call, bytes).second) {
      throw FileError(
          fmt::format("{}: {}({}) is there twice{}", name, call.operation, call.arguments, kAgain));
    }
  }
}

void read_terms(const nlohmann::json& json, const std::string& name, Calibration& calibration) {
  for (const auto& row : member<std::vector<nlohmann::json>>(json, "terms", name)) {
    calibration.terms.push_back({member<std::string>(row, "name", name),
                                 member<std::string>(row, "what", name), bytes_at(row, "bytes", name),
                                 bytes_at(row, "by_formula", name)});
  }
}

}  // namespace

Calibration calibration_of_this_cpu(int64_t threads) {
  Calibration here;
  here.machine = processor();
  here.instruction_set = instructions();
  here.threads = threads;
  here.libtorch = TORCH_VERSION;
  here.date = today();
  return here;
}

Calibration calibration_of_cuda(const std::string& name) {
  Calibration here;
  here.device = PlannedDevice::cuda;
  here.machine = name;
  here.libtorch = TORCH_VERSION;
  here.date = today();
  return here;
}

std::string calibration_json(const Calibration& calibration) {
  OrderedJson json;
  json[kKind] = kVersion;
  json["device"] = policies::text_of(calibration.device);
  json["machine"] = calibration.machine;
  const bool on_cpu = calibration.device == PlannedDevice::cpu;
  if (on_cpu) json["instruction_set"] = calibration.instruction_set;
  if (on_cpu) json["threads"] = calibration.threads;
  json["libtorch"] = calibration.libtorch;
  json["date"] = calibration.date;
  OrderedJson& rows = json[on_cpu ? "calls" : "terms"] = OrderedJson::array();
  for (const auto& [call, bytes] : calibration.scratch)
    rows.push_back({{"operator", call.operation},
                    {"arguments", call.arguments},
                    {"scratch_bytes", bytes.most},
                    {"beside_results_bytes", bytes.beside_results}});
  for (const planner::MeasuredTerm& term : calibration.terms) {
    rows.push_back(
        {{"name", term.name}, {"what", term.what}, {"bytes", term.bytes}, {"by_formula", term.by_formula}});
  }
  return json_text(json);
}

Calibration parse_calibration(std::string_view text, const std::string& name) {
  const ConfigError none(fmt::format(
      "{}: no calibration (\"{}\" is missing); dit-plan --calibrate FILE writes one", name, kKind));
  if (text.find(kKind) == std::string_view::npos) throw none;  // whatever it is, it need not be JSON
  const nlohmann::json json = parse_file(text, name);
  if (!json.is_object() || !json.contains(kKind)) throw none;
  const int64_t version = count_at(json, kKind, "version", name);
  if (version != kVersion) {
    throw FileError(fmt::format("{}: a calibration of version {}; read is version {}{}", name, version,
                                kVersion, kAgain));
  }
  Calibration calibration;
  const auto device = member<std::string>(json, "device", name);
  calibration.machine = member<std::string>(json, "machine", name);
  calibration.libtorch = member<std::string>(json, "libtorch", name);
  calibration.date = member<std::string>(json, "date", name);
  const auto planned = policies::parse_enum<PlannedDevice>(device);
  if (!planned)
    throw FileError(
        fmt::format("{}: \"device\" is {}; allowed: \"cpu\", \"cuda\"{}", name, in_quotes(device), kAgain));
  calibration.device = *planned;
  (*planned == PlannedDevice::cpu ? read_cpu : read_terms)(json, name, calibration);
  return calibration;
}

void check_calibration(const Calibration& calibration, const Calibration& here, const std::string& name) {
  const auto refuse = [&](const std::string& what, const std::string& was, const std::string& is) {
    throw ConfigError(
        fmt::format("{}: measured {}{}, and this plan is {}{}{}", name, what, was, what, is, kAgain));
  };
  if (calibration.device != here.device)
    refuse("for --device ", policies::text_of(calibration.device), policies::text_of(here.device));
  if (calibration.libtorch != here.libtorch) refuse("with LibTorch ", calibration.libtorch, here.libtorch);
  if (calibration.device != PlannedDevice::cpu) return;
  if (calibration.instruction_set != here.instruction_set)
    refuse("with the instructions ", calibration.instruction_set, here.instruction_set);
  if (calibration.threads != here.threads)
    refuse("for train.threads = ", std::to_string(calibration.threads), std::to_string(here.threads));
  if (calibration.machine != here.machine) refuse("on the processor ", calibration.machine, here.machine);
}

std::string calibration_text(const Calibration& calibration) {
  if (calibration.device != PlannedDevice::cpu)
    return fmt::format("calibration ({}; {})", calibration.machine, calibration.date);
  return fmt::format("calibration ({}, {}; {}; {})", calibration.instruction_set,
                     count_text(calibration.threads, "thread"), calibration.machine, calibration.date);
}

}  // namespace dtk
