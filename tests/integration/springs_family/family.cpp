#include <algorithm>
#include <utility>

#include "recording.h"
#include "toolkit/config/defaults.h"
#include "toolkit/config/rule_check.h"
#include "toolkit/config/rules.h"
#include "toolkit/config/toml_text.h"
#include "toolkit/core/errors.h"
#include "toolkit/core/numbers.h"
#include "toolkit/core/text.h"
#include "toolkit/io/npy.h"
#include "toolkit/io/safetensors.h"
#include "toolkit/train/model_family.h"
#include "toolkit/train/trained_model.h"
#include "trainable.h"

namespace springs {
namespace {

using namespace dtk;

std::shared_ptr<const DataSource> recording_of(const LoadedConfig& loaded, const std::string& key,
                                               const std::string& file) try {
  return open_recording(file, table_of(loaded.config).steps);
} catch (const DataError& error) {
  throw DataError(location_of(loaded, key) + error.what());
}

int64_t count_or_all(const SampleArguments& arguments, int64_t all) {
  const int64_t count = arguments.given<int64_t>("count").value_or(all);
  if (count <= all) return count;
  throw ConfigError("--count " + std::to_string(count) + ": --starts holds " + std::to_string(all) +
                    "; give at most as many");
}

class DrawnFutures final : public TensorDrawing {
 public:
  DrawnFutures(FileSystem& files, const SampleSource& source, const SampleArguments& arguments)
      : source_(source), out_(arguments.out) {
    check_out_folder(files, out_);
    Table& table = source_.config.families.of<Options>().springs;
    table.spread = arguments.given<double>("spread").value_or(table.spread);
    table.seed = arguments.given<int64_t>("seed").value_or(table.seed);
    starts_ = open_recording(arguments.given<std::string>("starts").value(), table.steps);
    count_ = count_or_all(arguments, starts_->size());
  }
  RunData data() const override { return {.all = starts_, .split = {starts_, nullptr}}; }
  std::string counted() const override { return count_text(count_, "future"); }
  std::vector<NamedTensor> draw(c10::Device device, const KeepGoing& keep_going) const override {
    return with_trained<TrainableSprings>(
        source_, source_.config, device,
        [&](const TrainableSprings& model) { return model.futures(*starts_, count_, keep_going); });
  }
  void write(FileSystem& files, const std::vector<NamedTensor>& samples) const override {
    write_file_atomically(files, out_, [&](WritableFile& file) {
      if (out_.ends_with(".npy")) {
        write_npy(file, samples.front().tensor);
      } else {
        write_safetensors(file, samples);
      }
    });
  }

 private:
  SampleSource source_;
  const std::string out_;
  std::shared_ptr<const DataSource> starts_;
  int64_t count_ = 0;
};

class Family final : public ModelFamily {
 public:
  Family() { register_family(*this); }

  std::string name() const override { return "springs"; }
  bool ignores(const std::string& key) const override {
    return is_one_of(key, {"data.samples", "data.on_corrupt", "data.validation", "sample.steps"});
  }
  std::string data_kinds() const override { return "recording"; }
  HeldOut held_out(const RunConfig& config) const override {
    return {!table_of(config).held_out.empty(), "springs.held_out", "springs.held_out is not set"};
  }
  std::unique_ptr<OptionTables> new_options() const override { return std::make_unique<TablesOf<Options>>(); }
  std::optional<int64_t> heads(const RunConfig& config) const override { return table_of(config).heads; }

  void settle_defaults(LoadedConfig& loaded) const override {
    RunConfig& config = loaded.config;
    settle(loaded, "data.kind", config.data.kind, std::string("recording"), "of springs");
    settle(loaded, "policies.precision.fp32", config.policies.precision.fp32, {"head"},
           "positions leave there");
  }

  void check_model(const RuleCheck& rules) const override {
    const Table& table = table_of(rules.config());
    if (table.width % table.heads != 0) {
      rules.fail("springs.heads", setting("springs.heads", table.heads) + " does not divide " +
                                      setting("springs.width", table.width) + "; set a divisor of it");
    }
    rules.check_drawn("springs.drawn", table.drawn);
  }

  std::unique_ptr<TrainableModel> make_model(const RunConfig& config, c10::Device device,
                                             std::optional<at::Generator> generator,
                                             const models::ParameterMade&) const override {
    return std::make_unique<TrainableSprings>(config, device, std::move(generator));
  }

  RunData open_data(const LoadedConfig& loaded, const DataIdentity*, const OpeningProgress&) const override {
    const Table& table = table_of(loaded.config);
    if (table.recording.empty())
      throw ConfigError(location_of(loaded, "train.model") + "springs.recording is not set; name the file");
    const auto recording = recording_of(loaded, "springs.recording", table.recording);
    if (table.held_out.empty()) return {recording, {recording, nullptr}};
    return {recording, {recording, recording_of(loaded, "springs.held_out", table.held_out)}};
  }

  RunData planned_data(const RunConfig& config, int64_t samples) const override {
    const Table& table = table_of(config);
    const int64_t shown = std::max(config.data.batch, table.drawn);
    const auto recording = planned_recording(std::max(samples, shown), table.steps);
    if (table.held_out.empty()) return {recording, {recording, nullptr}};
    return {recording, {recording, planned_recording(shown, table.steps)}};
  }

  std::vector<std::string> kept_results() const override { return {"attn_out"}; }

  ModelFacts facts(const RunConfig& config) const override {
    const Table& table = table_of(config);
    const std::string drawn = std::to_string(table.drawn) + " futures";
    return {.model = "Springs",
            .sizes = "depth " + std::to_string(table.depth) + ", width " + std::to_string(table.width) +
                     ", " + std::to_string(table.heads) + " heads; " + std::to_string(table.steps) + " steps",
            .smaller = "springs.width and springs.depth",
            .sample_name = "swings",
            .tokens = table.steps,
            .drawn = table.drawn > 0 ? drawn : "",
            .count_key = "springs.drawn",
            .count_keys = "springs.drawn",
            .tensors = "positions",
            .draw_again = "--starts " + (table.held_out.empty() ? table.recording : table.held_out) +
                          " --count " + std::to_string(table.drawn),
            .fewer = "fewer with "};
  }

  SampleUsage sample_usage() const override {
    return {
        .arguments = {{"starts", std::string()},
                      {"count", int64_t{}, "[1, inf)"},
                      {"spread", double{}, "[0, inf)"},
                      {"seed", int64_t{}, "[0, inf)"}},
        .value = "FILE",
        .example = "held_out.springs",
        .purpose = "for springs",
        .samples = "the futures of a recording's starts",
        .model = "model of springs",
        .none_of_others = ", which draws from starts alone",
        .out = "FILE",
        .example_out = "futures.npy",
        .endings = {".npy", ".safetensors"},
        .help = "  --starts FILE         for springs: a recording that goes on; --count N  of its first\n",
        .options_help = "  --spread S            deviation of noise on the starts of springs\n"};
  }

  std::unique_ptr<Drawing> drawing(FileSystem& files, const SampleSource& source,
                                   const SampleArguments& arguments) const override {
    return std::make_unique<DrawnFutures>(files, source, arguments);
  }
};

const Family family;

}  // namespace
}  // namespace springs
