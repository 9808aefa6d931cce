// Trains random networks plainly and with segments, and plans them: whether segments are exact, and save.
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/bench_setup.h"
#include "support/policies/network_trial.h"
#include "support/policies/random_networks.h"

namespace {

using namespace dtk;

constexpr double kMinShare = 0.7;  // of networks whose segments save

struct Summary {
  int64_t networks = 0, that_save = 0, values = 0, storages = 0;
  int64_t held_plain = 0, held = 0, offloaded = 0;
  size_t different_values = 0, different_bytes = 0;
  std::vector<uint64_t> wrong;
  std::map<std::string, int64_t> features;  // networks that have it

  double share() const { return static_cast<double>(that_save) / static_cast<double>(networks); }
};

std::string command(uint64_t seed, uint64_t index) {
  return "benchmarks/policies/checkpoint_networks --seed " + std::to_string(seed) + " --network " +
         std::to_string(index);
}

void print_wrong(uint64_t seed, uint64_t index, const std::vector<std::string>& lines) {
  constexpr size_t kMax = 12;
  std::printf("\n%s\n%s\n", command(seed, index).c_str(),
              text_of(bench::random_network(seed, index)).c_str());
  for (size_t i = 0; i < std::min(kMax, lines.size()); ++i) std::printf("  %s\n", lines[i].c_str());
  if (lines.size() > kMax) std::printf("  and %zu more\n", lines.size() - kMax);
  std::fflush(stdout);
}

void add(Summary& summary, uint64_t seed, uint64_t index) {
  const bench::RandomNetwork network = bench::random_network(seed, index);
  for (const std::string& feature : network.features) ++summary.features[feature];
  ++summary.networks;
  std::vector<std::string> wrong;
  try {
    const bench::NetworkTrial trial = bench::try_network(network);
    for (const std::string& value : trial.different_values) wrong.push_back("differs: " + value);
    wrong.insert(wrong.end(), trial.different_bytes.begin(), trial.different_bytes.end());
    summary.different_values += trial.different_values.size();
    summary.different_bytes += trial.different_bytes.size();
    summary.that_save += trial.saves() ? 1 : 0;
    summary.values += trial.values;
    summary.storages += trial.storages;
    summary.held_plain += trial.held_plain;
    summary.held += trial.held;
    summary.offloaded += trial.offloaded;
  } catch (const std::exception& error) {
    wrong.push_back(std::string("failed: ") + error.what());
  }
  if (wrong.empty()) return;
  summary.wrong.push_back(index);
  print_wrong(seed, index, wrong);
}

void print(const Summary& summary) {
  const auto row = [](const char* what, int64_t number) {
    std::printf("| %s | %lld |\n", what, static_cast<long long>(number));
  };
  std::printf("\n| | |\n|---|---:|\n");
  row("networks", summary.networks);
  row("values compared with the plain run: outputs, gradients, weights, statistics", summary.values);
  row("of these not bit-equal", static_cast<int64_t>(summary.different_values));
  row("storages compared with the plan", summary.storages);
  row("differing sums of bytes", static_cast<int64_t>(summary.different_bytes));
  row("bytes held after forward, plain, all networks", summary.held_plain);
  row("with segments", summary.held);
  row("and in host memory", summary.offloaded);
  std::printf("| networks that hold less with segments | %lld (%.1f %%) |\n",
              static_cast<long long>(summary.that_save), 100 * summary.share());
  std::printf("\n| networks with | |\n|---|---:|\n");
  for (const auto& [feature, networks] : summary.features) row(feature.c_str(), networks);
}

void compare(uint64_t seed, uint64_t first, uint64_t end) {
  Summary summary;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  for (uint64_t index = first; index < end; ++index) add(summary, seed, index);
  print(summary);
  for (const uint64_t index : summary.wrong) std::printf("%s\n", command(seed, index).c_str());
  if (!summary.wrong.empty())
    throw std::runtime_error(std::to_string(summary.wrong.size()) + " networks are not exact");
  if (end - first > 1 && summary.share() < kMinShare)
    throw std::runtime_error("segments save in fewer than 70 % of the networks");
}

}  // namespace

int main(int argc, char** argv) {
  cxxopts::Options options(
      "checkpoint-networks",
      "Random small networks on the CPU, each trained plainly, with its segments, and in "
      "a plan; exit code 1 if a bit of a value differs from the plain run, a byte from "
      "the plan, or if segments save in fewer than 70 % of the networks");
  options.add_options()("networks", "how many", cxxopts::value<uint64_t>()->default_value("1000"))(
      "seed", "of the networks", cxxopts::value<uint64_t>()->default_value("1"))("network", "only this one",
                                                                                 cxxopts::value<uint64_t>());
  return bench::main_of("checkpoint-networks", options, argc, argv, [](const cxxopts::ParseResult& parsed) {
    const auto seed = parsed["seed"].as<uint64_t>();
    if (parsed.count("network") > 0) {
      const auto index = parsed["network"].as<uint64_t>();
      return compare(seed, index, index + 1);
    }
    compare(seed, 0, parsed["networks"].as<uint64_t>());
  });
}
