#include "toolkit/report/plan_summary.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "toolkit/config/toml_text.h"
#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/core/numbers.h"
#include "toolkit/core/text_table.h"
#include "toolkit/io/json.h"
#include "toolkit/report/line_chart.h"

namespace dtk {
namespace {

using policies::Category;
using policies::MemorySums;
using policies::PhasePeak;
using Json = nlohmann::json;

Category category_named(const std::string& name) {
  for (int i = 0; i < policies::kCategories; ++i) {
    if (name == policies::name_of(static_cast<Category>(i))) return static_cast<Category>(i);
  }
  throw Json::other_error::create(500, "\"" + name + "\" is no category", nullptr);
}

MemorySums read_sums(const Json& json, int64_t bytes) {
  MemorySums sums;
  sums.bytes = bytes;
  for (const auto& [category, labels] : json.at("items").items()) {
    for (const auto& [label, held] : labels.items()) {
      const policies::OwnerId owner = policies::owner_id(category_named(category), label);
      if (sums.by_owner.size() <= owner.index) sums.by_owner.resize(owner.index + 1, 0);
      sums.by_owner[owner.index] = held.get<int64_t>();
    }
  }
  return sums;
}

std::string signed_bytes(int64_t bytes) {
  return bytes > 0 ? "+" + with_separators(bytes) : with_separators(bytes);
}

std::vector<std::string> row(const std::string& name, int64_t planned, int64_t measured) {
  return {name, with_separators(planned), with_separators(measured), signed_bytes(measured - planned)};
}

std::string not_known_words(const DeviceOverhead& beside, c10::Device device) {
  if (beside.not_known.empty()) return "";
  return fmt::format("; not known, and counted as 0: {} (dit-plan --device {} says more)", beside.not_known,
                     device.is_cpu() ? "cpu" : "cuda");
}

MemoryReport read_memory(const Json& json) {
  MemoryReport report;
  report.device = c10::Device(json.at("device").get<std::string>());
  for (const Json& phase : json.at("phases")) {
    report.phases.push_back(
        {phase.at("name").get<std::string>(), read_sums(phase, phase.at("peak_bytes").get<int64_t>())});
  }
  const Json& host = json.at("host");
  report.host = {"host", read_sums(host, host.at("peak_bytes").get<int64_t>())};
  return report;
}

DeviceOverhead read_beside(const Json& json, c10::Device device) {
  std::vector<std::string> not_known;
  if (device.is_cpu()) {
    const size_t operators = json.value("/plan/scratch/not_known"_json_pointer, Json::array()).size();
    if (operators > 0) not_known.push_back("scratch of " + count_text(operators, "operator"));
  }
  for (const Json& term : json.value("/plan/device_terms"_json_pointer, Json::array())) {
    if (!term.value("known", true)) not_known.push_back(term.value("name", ""));
  }
  return {json.value("/plan/beside/allocator"_json_pointer, int64_t{0}), listed(not_known, " and ")};
}

}  // namespace

MemoryNeed StartPlan::need(bool with_host) const {
  return {.peak = memory->peak(), .beside = beside.bytes, .host = with_host ? memory->host.peak.bytes : 0};
}

StartPlan read_start_plan(std::string_view text, const std::string& name) try {
  const Json json = parse_json(text);
  StartPlan plan;
  plan.refusal = json.value("refusal", "");
  plan.problem = json.value("problem", "");
  plan.machine_too_small = json.value("machine_too_small", false);
  if (!plan.refusal.empty() || !plan.problem.empty()) return plan;
  plan.memory = read_memory(json);
  plan.beside = read_beside(json, plan.memory->device);
  for (const char* const pass : {"/plan/step_flops/forward", "/plan/step_flops/backward"})
    plan.step_flops += json.value(nlohmann::json::json_pointer(pass), int64_t{0});
  if (json.contains("placement")) plan.placement = read_placement(json.at("placement"));
  return plan;
} catch (const Json::exception& error) {
  throw FileError(name + ": not a memory report: " + error.what());
} catch (const c10::Error& error) {
  throw FileError(name + ": not a memory report: " + error.what_without_backtrace());
}

std::string plan_line(const MemoryReport& plan, const DeviceOverhead& beside,
                      std::optional<int64_t> available) {
  const PhasePeak peak = plan.peak();
  return fmt::format("planned peak {} in {} on {}{}{}{}", readable_bytes(peak.peak.bytes), peak.name,
                     plan.device.str(), beside.bytes > 0 ? ", beside it " + readable_bytes(beside.bytes) : "",
                     available ? "; " + readable_bytes(*available) + " available" : "",
                     not_known_words(beside, plan.device));
}

std::string unit_hint(int64_t limit) {
  constexpr int64_t suspicious = 100'000;
  if (limit >= suspicious) return "";
  return "; a number alone is bytes: larger sizes have a unit, such as \"2GB\" or \"1.5 GiB\"";
}

std::string excess_text(const MemoryNeed& need, int64_t limit) {
  const int64_t parameters = need.peak.peak.of(Category::parameters) + need.peak.peak.of(Category::frozen);
  if (parameters > limit) {
    return fmt::format("the parameters alone take {}, more than {}; use a smaller model or a larger device{}",
                       exact_bytes(parameters), exact_bytes(limit), unit_hint(limit));
  }
  const int64_t added = need.beside + need.host;
  return fmt::format(
      "the peak of {}, in phase {},{} exceeds {}", exact_bytes(need.peak.peak.bytes), need.peak.name,
      added > 0 ? " with " + exact_bytes(added) + " that the device adds," : "", exact_bytes(limit));
}

std::string precision_words(std::optional<policies::CpuPrecision> planned) {
  if (!planned) return "";
  return fmt::format(" (planned with policies.precision.cpu = {})", toml_text(*planned));
}

std::optional<TooLarge> too_large(const MemoryReport& plan, const DeviceOverhead& beside,
                                  const MemoryOptions& options, std::optional<int64_t> available) {
  const MemoryNeed of_budget{.peak = plan.peak(), .beside = beside.bytes};
  // Host memory is the CPU's own, and in no budget.
  const int64_t host = plan.device.is_cpu() ? plan.host.peak.bytes : 0;
  const MemoryNeed of_available{.peak = of_budget.peak, .beside = beside.bytes, .host = host};
  const bool over_budget = options.budget && !of_budget.fits(options.budget->bytes);
  const bool over_available = !of_available.fits(available);
  const int64_t needed = (over_available ? of_available : of_budget).bytes();
  std::vector<std::string> limits;
  TooLarge found{.needed = needed, .limit = INT64_MAX, .budget_is_the_limit = !over_available, .message = ""};
  const auto beyond = [&](int64_t limit, const std::string& what) {
    found.limit = std::min(found.limit, limit);
    limits.push_back(fmt::format("{} is {} ({})", what, limit, readable_bytes(limit)));
  };
  if (over_budget) beyond(options.budget->bytes, "memory.budget");
  if (over_available) beyond(*available, "what is available");
  if (limits.empty()) return std::nullopt;
  const PhasePeak& peak = of_budget.peak;
  const std::string tensors = fmt::format(" of tensors on {} in phase {}", plan.device.str(), peak.name);
  found.message = fmt::format(
      "the run needs {}{} bytes ({}){}{}, and {}{}", beside.not_known.empty() ? "" : "at least ", needed,
      readable_bytes(needed),
      beside.bytes > 0 ? fmt::format(": {}{} and {} beside them", peak.peak.bytes, tensors, beside.bytes)
                       : tensors,
      over_available && host > 0 ? fmt::format(" and {} in host memory", host) : "", listed(limits, " and "),
      not_known_words(beside, plan.device));
  return found;
}

std::string planned_against_measured(const MemoryReport& plan, const MemoryReport& measured) {
  std::vector<std::vector<std::string>> rows = {{"phase", "planned", "measured", "difference"}};
  const std::string highest = measured.phases.empty() ? "" : measured.peak().name;
  for (const PhasePeak& phase : measured.phases) {
    const PhasePeak* const planned = policies::phase_named(plan.phases, phase.name);
    if (planned == nullptr) {
      rows.push_back({phase.name, "-", with_separators(phase.peak.bytes), ""});
      continue;
    }
    rows.push_back(row(phase.name, planned->peak.bytes, phase.peak.bytes));
    const bool by_category = !phase.peak.items().empty();  // a device's own statistics know none
    if (!by_category && phase.name != highest) continue;
    for (const Category category : used_categories({*planned, phase})) {
      const int64_t a = planned->peak.of(category), b = phase.peak.of(category);
      const std::string name = std::string("  ") + policies::name_of(category);
      if (!by_category) {
        rows.push_back({name, with_separators(a), "-", ""});
      } else if (a != b) {
        rows.push_back(row(name, a, b));
      }
    }
  }
  if (plan.host.peak.bytes > 0 || measured.host.peak.bytes > 0)
    rows.push_back(row("host memory", plan.host.peak.bytes, measured.host.peak.bytes));
  return fmt::format("planned against measured, bytes of tensors on {}\n{}", measured.device.str(),
                     aligned(rows));
}

}  // namespace dtk
