// Plans and runs random jobs on the CPU and compares every storage: how exact plans are.
#include "support/plans/plan_accuracy.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>

#include "support/bench_setup.h"
#include "support/plans/plan_cases.h"
#include "toolkit/config/config_io.h"
#include "toolkit/core/errors.h"
#include "toolkit/distributed/joined_ranks.h"
#include "toolkit/distributed/launch.h"
#include "toolkit/plan/worlds.h"

namespace {

using namespace dtk;

struct Worst {
  int64_t cases = 0;  // in which the phase was reached
  int64_t storages = 0;
  int64_t difference = 0;  // predicted - measured of the peak, the farthest from 0
  uint64_t index = 0;      // the case that it is of
  int64_t scratch = 0;     // most alive at once
  double share = 0;        // of scratch in the peak with it, at most
};

// A phase's highest sum with scratch, where plan and run are the farthest apart for its size.
struct WorstTotal {
  int64_t planned = 0, measured = 0;  // bytes
  uint64_t index = 0;                 // the case
  std::string cause = "-";            // the operator whose scratch differs the most in it
  double share() const {
    return static_cast<double>(planned - measured) / static_cast<double>(std::max<int64_t>(1, measured));
  }
};

// Most alive at once in one phase of one case.
struct Scratch {
  int64_t planned = 0, measured = 0;
  int64_t unequal = 0;  // phases of cases in which the two differ
};

struct Summary {
  std::map<std::string, Worst> phases;
  std::map<std::string, WorstTotal> totals;  // by phase
  std::map<std::string, Scratch> scratch;    // by operator
  std::vector<uint64_t> wrong;
  int64_t storages = 0;
  std::vector<double> plan_seconds, run_seconds;
};

/// Of which family, and which: a pure function of seed and number.
struct Cases {
  std::string family;
  uint64_t seed;

  std::vector<std::string> settings(uint64_t index) const {
    int64_t frames = 0;
    return family == "dit"    ? bench::plan_case(seed, index)
           : family == "vggt" ? bench::vggt_case(seed, index, frames)
                              : bench::llava_case(seed, index);
  }
  LoadedConfig job(uint64_t index) const {
    LoadedConfig loaded = parse_config("", "case " + std::to_string(index), settings(index));
    int64_t frames = 0;
    if (family == "vggt") bench::vggt_case(seed, index, frames);
    if (frames > 0) loaded.inferred = frames;
    return loaded;
  }
  std::string command(uint64_t index) const {
    return "benchmarks/plans/plan_accuracy --family " + family + " --seed " + std::to_string(seed) +
           " --case " + std::to_string(index);
  }
};

void add_scratch(Summary& summary, const PlanAccuracy& accuracy) {
  std::map<std::string, std::map<std::string, std::pair<int64_t, int64_t>>> bytes;
  for (const auto& phase : accuracy.planned) {
    for (const auto& [label, most] : phase.scratch_of) bytes[label][phase.name].first = most;
  }
  for (const auto& phase : accuracy.measured) {
    for (const auto& [label, most] : phase.scratch_of) bytes[label][phase.name].second = most;
  }
  for (const auto& [label, phases] : bytes) {
    Scratch& scratch = summary.scratch[label];
    for (const auto& [name, most] : phases) {
      scratch.planned = std::max(scratch.planned, most.first);
      scratch.measured = std::max(scratch.measured, most.second);
      if (most.first != most.second) ++scratch.unequal;
    }
  }
}

std::string max_different(const policies::LoggedPhase& planned, const policies::LoggedPhase& measured) {
  std::map<std::string, int64_t> differences;
  for (const auto& [label, most] : planned.scratch_of) differences[label] += most;
  for (const auto& [label, most] : measured.scratch_of) differences[label] -= most;
  const auto worst =
      std::max_element(differences.begin(), differences.end(),
                       [](const auto& a, const auto& b) { return std::abs(a.second) < std::abs(b.second); });
  return worst == differences.end() ? "-" : worst->first;
}

void add_totals(Summary& summary, uint64_t index, const PlanAccuracy& accuracy) {
  for (const policies::LoggedPhase& planned : accuracy.planned) {
    for (const policies::LoggedPhase& measured : accuracy.measured) {
      if (measured.name != planned.name) continue;
      const WorstTotal total{planned.with_scratch, measured.with_scratch, index,
                             max_different(planned, measured)};
      WorstTotal& worst = summary.totals[planned.name];
      if (std::abs(total.share()) > std::abs(worst.share())) worst = total;
    }
  }
}

void add(Summary& summary, uint64_t index, const PlanAccuracy& accuracy) {
  add_scratch(summary, accuracy);
  add_totals(summary, index, accuracy);
  for (const policies::LoggedPhase& phase : accuracy.measured) {
    Worst& worst = summary.phases[phase.name];
    ++worst.cases;
    for (const auto& [owner, born] : phase.born) worst.storages += born.count;
    worst.scratch = std::max(worst.scratch, phase.scratch);
    const int64_t beside = phase.with_scratch - phase.kept.bytes;
    worst.share =
        std::max(worst.share, static_cast<double>(beside) / static_cast<double>(phase.with_scratch));
  }
  for (const PlanDifference& difference : accuracy.differences) {
    if (difference.what != "peak") continue;
    Worst& worst = summary.phases[difference.phase];
    const int64_t bytes = difference.predicted - difference.measured;
    if (std::abs(bytes) <= std::abs(worst.difference)) continue;
    worst.difference = bytes;
    worst.index = index;
  }
  if (!accuracy.differences.empty()) summary.wrong.push_back(index);
  summary.storages += accuracy.storages;
  summary.plan_seconds.push_back(accuracy.plan_seconds);
  summary.run_seconds.push_back(accuracy.run_seconds);
}

void print_differences(const Cases& cases, uint64_t index, const PlanAccuracy& accuracy) {
  constexpr size_t kMax = 12;
  std::printf("\ncase %llu differs: %s\n ", static_cast<unsigned long long>(index),
              cases.command(index).c_str());
  for (const std::string& setting : cases.settings(index)) std::printf(" %s", setting.c_str());
  std::printf("\n");
  for (size_t i = 0; i < std::min(kMax, accuracy.differences.size()); ++i) {
    const PlanDifference& one = accuracy.differences[i];
    std::printf("  %s, %s: predicted %lld, measured %lld bytes\n", one.phase.c_str(), one.what.c_str(),
                static_cast<long long>(one.predicted), static_cast<long long>(one.measured));
  }
  if (accuracy.differences.size() > kMax) std::printf("  and %zu more\n", accuracy.differences.size() - kMax);
  std::fflush(stdout);
}

void print(const Summary& summary, const Cases& drawn) {
  const size_t cases = summary.plan_seconds.size();
  std::printf("\n%zu cases, %lld storages that outlive their operator; cases that differ: %zu\n\n", cases,
              static_cast<long long>(summary.storages), summary.wrong.size());
  std::printf(
      "| phase | cases | storages | predicted - measured peak, at worst | scratch alive at once, at most | "
      "what scratch adds to the peak, at most |\n|---|---:|---:|---:|---:|---:|\n");
  for (const auto& [name, worst] : summary.phases) {
    const std::string where = worst.difference != 0 ? " (case " + std::to_string(worst.index) + ")" : "";
    std::printf("| %s | %lld | %lld | %lld bytes%s | %lld bytes | %.1f %% |\n", name.c_str(),
                static_cast<long long>(worst.cases), static_cast<long long>(worst.storages),
                static_cast<long long>(worst.difference), where.c_str(),
                static_cast<long long>(worst.scratch), 100 * worst.share);
  }
  std::printf("\n| with scratch, at worst, in | planned | measured | difference | case | mostly of |\n");
  std::printf("|---|---:|---:|---:|---:|---|\n");
  for (const auto& [name, total] : summary.totals) {
    if (total.planned == total.measured) continue;
    std::printf("| %s | %lld bytes | %lld bytes | %+.1f %% | %llu | %s |\n", name.c_str(),
                static_cast<long long>(total.planned), static_cast<long long>(total.measured),
                100 * total.share(), static_cast<unsigned long long>(total.index), total.cause.c_str());
  }
  std::printf("\n| scratch of | planned, at most | measured, at most | phases in which they differ |\n");
  std::printf("|---|---:|---:|---:|\n");
  for (const auto& [label, scratch] : summary.scratch) {
    std::printf("| %s | %lld bytes | %lld bytes | %lld |\n", label.c_str(),
                static_cast<long long>(scratch.planned), static_cast<long long>(scratch.measured),
                static_cast<long long>(scratch.unequal));
  }
  std::printf("\na plan takes %.3f s (median; at most %.3f), the job it is of %.3f s\n",
              bench::median(summary.plan_seconds),
              *std::max_element(summary.plan_seconds.begin(), summary.plan_seconds.end()),
              bench::median(summary.run_seconds));
  for (const uint64_t index : summary.wrong) std::printf("%s\n", drawn.command(index).c_str());
}

// One case on the ranks of which this process is one, whose plan is of its own.
void compare_as_rank(const Cases& cases, uint64_t index, const Launch& launch, policies::ShardLevel level) {
  LoadedConfig loaded = cases.job(index);
  if (loaded.inferred) throw ConfigError("a job that only infers has one rank");
  MemoryOptions& memory = loaded.config.memory;
  memory.split = 1;
  memory.on_out_of_memory = OnOutOfMemory::stop;
  loaded.config.policies.shard.level = level;
  loaded = on_ranks(std::move(loaded), launch.ranks);
  DataOptions& data = loaded.config.data;
  if (data.samples) data.samples = std::max(*data.samples, data.validation + data.batch);
  JoinedRanks* const ranks = join_ranks(launch, loaded.config.distributed);
  try {
    const PlanAccuracy accuracy = plan_accuracy(loaded, {}, ranks);
    if (!accuracy.differences.empty()) print_differences(cases, index, accuracy);
    std::printf("rank %lld of %lld, case %llu: %lld storages, %zu differences\n",
                static_cast<long long>(launch.rank), static_cast<long long>(launch.ranks),
                static_cast<unsigned long long>(index), static_cast<long long>(accuracy.storages),
                accuracy.differences.size());
    std::fflush(stdout);
    ranks->all_say({}, "at the end");
    std::_Exit(accuracy.differences.empty() ? 0 : 1);  // Gloo's threads are not waited for
  } catch (const std::exception& error) {
    std::fprintf(stderr, "plan-accuracy: rank %lld, case %llu: %s\n", static_cast<long long>(launch.rank),
                 static_cast<unsigned long long>(index), error.what());
    ranks->leave_word({ExitCode::failure, error.what()});
    ranks->part();
    std::_Exit(1);
  }
}

void compare(const Cases& cases, uint64_t first, uint64_t end) {
  Summary summary;
  for (uint64_t index = first; index < end; ++index) {
    const PlanAccuracy accuracy = plan_accuracy(cases.job(index));
    add(summary, index, accuracy);
    if (!accuracy.differences.empty()) print_differences(cases, index, accuracy);
  }
  print(summary, cases);
  if (!summary.wrong.empty())
    throw std::runtime_error(std::to_string(summary.wrong.size()) + " plans differ from what was measured");
}

}  // namespace

int main(int argc, char** argv) {
  cxxopts::Options options(
      "plan-accuracy",
      "Random small jobs, each planned and run on the CPU; exit code 1 if the plan of any "
      "storage that outlives its operator is off by a byte");
  options.add_options()("cases", "how many", cxxopts::value<uint64_t>()->default_value("200"))(
      "seed", "of the cases", cxxopts::value<uint64_t>()->default_value("1"))(
      "family", "dit, llava or vggt", cxxopts::value<std::string>()->default_value("dit"))(
      "case", "only this one", cxxopts::value<uint64_t>())(
      "level", "policies.shard.level, of several ranks",
      cxxopts::value<std::string>()->default_value("optimizer"));
  return bench::main_of("plan-accuracy", options, argc, argv, [](const cxxopts::ParseResult& parsed) {
    const Cases cases{parsed["family"].as<std::string>(), parsed["seed"].as<uint64_t>()};
    if (cases.family != "dit" && cases.family != "llava" && cases.family != "vggt")
      throw ConfigError("--family " + cases.family + ": allowed: dit, llava, vggt");
    const auto launch = launch_from([](const char* name) { return std::getenv(name); });
    if (launch && parsed.count("case") == 0) throw ConfigError("several ranks compare one --case");
    const auto level = policies::parse_enum<policies::ShardLevel>(parsed["level"].as<std::string>());
    if (!level) throw ConfigError("--level: allowed: optimizer, parameters");
    if (launch) return compare_as_rank(cases, parsed["case"].as<uint64_t>(), *launch, *level);
    if (parsed.count("level") > 0) throw ConfigError("--level: one rank divides nothing; start several");
    if (parsed.count("case") > 0) {
      const auto index = parsed["case"].as<uint64_t>();
      return compare(cases, index, index + 1);
    }
    compare(cases, 0, parsed["cases"].as<uint64_t>());
  });
}
