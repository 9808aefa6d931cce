#include "toolkit/train/save_load.h"

#include <dtk/policies/memory_ledger.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "toolkit/checkpoint/find.h"
#include "toolkit/checkpoint/weights.h"
#include "toolkit/checkpoint/weights_fit.h"
#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/core/text.h"
#include "toolkit/io/json.h"
#include "toolkit/train/shard_files.h"

using Json = nlohmann::ordered_json;

namespace dtk {

// In origins.json.
static void to_json(Json& json, const Origin& origin) {
  json = {{"source", policies::text_of(origin.source)}, {"text", origin.text}};
}
static void from_json(const nlohmann::json& json, Origin& origin) {
  const auto source = policies::parse_enum<Origin::Source>(json.at("source").get<std::string>());
  if (!source)
    throw nlohmann::json::other_error::create(0, "no such source of a value: " + json_line(json), &json);
  origin = {*source, json.at("text")};
}

// In history.json.
static void to_json(Json& json, const ConfigChange& change) {
  json = {{"step", change.step}, {"text", change.text}, {"changes_result", change.changes_result}};
}
static void from_json(const nlohmann::json& json, ConfigChange& change) {
  const auto step = whole_number(json.at("step"));
  if (!step) throw nlohmann::json::other_error::create(0, "no step", &json);
  change = {*step, json.at("text"), json.at("changes_result")};
}

namespace {

constexpr char kOptimizer[] = "optimizer.safetensors";
constexpr char kState[] = "state.json", kConfig[] = "config.toml", kOrigins[] = "origins.json",
               kHistory[] = "history.json";

std::vector<NamedTensor> named(const std::vector<std::pair<std::string, at::Tensor>>& pairs) {
  std::vector<NamedTensor> list;
  for (const auto& [name, tensor] : pairs) list.push_back({name, tensor.detach()});
  return list;
}

std::vector<WrittenTensor> written(const std::vector<std::pair<std::string, at::Tensor>>& pairs) {
  const std::vector<NamedTensor> list = named(pairs);
  return {list.begin(), list.end()};
}

// Divided weights are given part by part.
std::vector<WrittenTensor> written_weights(const models::NamedTensors& weights,
                                           const policies::Shards& shards) {
  std::vector<WrittenTensor> list;
  for (const auto& [name, tensor] : weights) {
    const auto index = shards.divides_weights() ? shards.index_of(name) : std::nullopt;
    list.push_back(index ? written_whole(shards, *index, name, shards.own()[*index].second.detach())
                         : WrittenTensor(NamedTensor{name, tensor.detach()}));
  }
  return list;
}

std::vector<WrittenTensor> written(const policies::PolicyState& state, const policies::Shards& shards) {
  if (!state.of_own_parts) return written(state.tensors);
  std::vector<WrittenTensor> list;
  for (const auto& [name, tensor] : state.tensors)
    list.push_back(written_whole(shards, shards.index_of(name).value(), name, tensor));
  return list;
}

using StrictJson = nlohmann::json;

// 2: what is drawn follows from seed and place, and no state of a generator is kept.
constexpr int64_t kStateVersion = 2;

StrictJson read_json(const Checkpoint& checkpoint, const char* file) {
  constexpr int max_depth = 4;
  try {
    return parse_strict_json(checkpoint.text(file), (checkpoint.folder() / file).string(), max_depth);
  } catch (const FileError& error) {
    throw FileError(error.what() + std::string("; resume another checkpoint"));
  }
}

[[noreturn]] void refuse_state(const Checkpoint& checkpoint, const std::string& what) {
  throw FileError(
      fmt::format("{}: {}; resume another checkpoint", (checkpoint.folder() / kState).string(), what));
}

constexpr int64_t kMaxCounted = 1'000'000'000'000'000;  // what is added to it stays far from int64_t's end

/// A member of state.json that counts something.
int64_t count_at(const Checkpoint& checkpoint, const StrictJson& object, const std::string& key) {
  const auto found = object.find(key);
  const auto count = found == object.end() ? std::nullopt : whole_number(*found);
  if (!count || *count < 0 || *count > kMaxCounted)
    refuse_state(checkpoint,
                 fmt::format("{} is not a whole number from 0 to {}", in_quotes(key), kMaxCounted));
  return *count;
}

StrictJson read_state(const Checkpoint& checkpoint) {
  StrictJson json = read_json(checkpoint, kState);
  if (!json.is_object()) refuse_state(checkpoint, "it is not a JSON object");
  for (const auto& [key, value] : json.items()) {
    if (!is_one_of(key, {"version", "step", "samples", "samples_per_epoch", "micro_batch", "seconds",
                         "threads", "policies"}))
      refuse_state(checkpoint, "the key " + in_quotes(key) + ", which no run writes");
  }
  const int64_t version = count_at(checkpoint, json, "version");
  if (version < kStateVersion) {
    throw FileError(fmt::format(
        "{}: version {}, of an earlier program; this one resumes version {}; a new run takes the weights by "
        "train.init_from = {}",
        (checkpoint.folder() / kState).string(), version, kStateVersion,
        in_quotes(checkpoint.folder().string())));
  }
  if (version != kStateVersion)
    refuse_state(checkpoint,
                 fmt::format("version {}; this program reads version {}", version, kStateVersion));
  const int64_t step = count_at(checkpoint, json, "step");
  if (step != checkpoint.step())
    refuse_state(checkpoint,
                 fmt::format("step {}, and the manifest beside it says {}", step, checkpoint.step()));
  return json;
}

double seconds_in(const Checkpoint& checkpoint, const StrictJson& state) {
  const auto found = state.find("seconds");
  const double seconds = found != state.end() && found->is_number() ? found->get<double>() : -1;
  constexpr double most = 1e10;  // centuries
  if (!(seconds >= 0 && seconds <= most)) refuse_state(checkpoint, "\"seconds\" is not a number from 0");
  return seconds;
}

std::map<std::string, int64_t> counters_of(const Checkpoint& checkpoint, const StrictJson& state,
                                           const std::string& policy) {
  const auto policies = state.find("policies");
  if (policies == state.end() || !policies->is_object())
    refuse_state(checkpoint, "\"policies\" is not an object");
  std::map<std::string, int64_t> counters;
  const auto found = policies->find(policy);
  if (found == policies->end()) return counters;
  if (!found->is_object()) refuse_state(checkpoint, in_quotes(policy) + " is not an object");
  for (const auto& [name, value] : found->items()) counters[name] = count_at(checkpoint, *found, name);
  return counters;
}

/// Of a file of the run's: none of them holds a value that is not finite unless somebody else wrote it.
std::vector<StoredTensor> finite_tensors(const Checkpoint& checkpoint, const std::string& file) {
  std::vector<StoredTensor> tensors = checkpoint.stored_tensors(file);
  for (StoredTensor& tensor : tensors) {
    const std::string where = (checkpoint.folder() / file).string() + ": tensor " + in_quotes(tensor.name);
    tensor = finite_only(std::move(tensor), [where] {
      throw FileError(where +
                      " holds a value that is not finite (NaN or infinite); resume an earlier checkpoint");
    });
  }
  return tensors;
}

void restore_policies(const Checkpoint& checkpoint, const StrictJson& json, Trainer& trainer) {
  for (const auto& policy : trainer.policies().list()) {
    policies::StoredPolicyState state;
    const bool of_own_parts = policy->state().of_own_parts;
    const std::string file = policy->name() + ".safetensors";
    if (checkpoint.has_tensors(file)) {
      for (StoredTensor entry : finite_tensors(checkpoint, file)) {
        if (of_own_parts)
          entry = stored_own_part(trainer.shards(), trainer.shards().index_of(entry.name), entry);
        state.tensors.push_back(
            {entry.name, entry.shape, [entry](const at::Tensor& into) { copy_stored(entry, into); }});
      }
    }
    // A policy that was off when the checkpoint was made has no entry; one that needs its state says so.
    state.counters = counters_of(checkpoint, json, policy->name());
    try {
      policy->restore(state);
    } catch (const policies::PolicyError& error) {
      refuse_state(checkpoint, error.what());
    }
  }
}

void check_files(const Checkpoint& checkpoint, const TrainableModel& model) {
  for (const auto& [name, text] : model.files()) {
    if (checkpoint.text(name) == text) continue;
    throw ConfigError((checkpoint.folder() / name).string() +
                      ": the run was trained with other numbers than this configuration names; give it the "
                      "file of these, or begin a new run");
  }
}

TrainingState training_state(const Checkpoint& checkpoint, const StrictJson& json) {
  TrainingState state;
  state.step = checkpoint.step();
  state.samples = count_at(checkpoint, json, "samples");
  state.samples_per_epoch = count_at(checkpoint, json, "samples_per_epoch");
  state.micro_batch = count_at(checkpoint, json, "micro_batch");
  state.seconds = seconds_in(checkpoint, json);
  return state;
}

}  // namespace

// Of model.safetensors: all that the model holds, but what lies in the files of its base.
static models::NamedTensors kept_tensors(const Trainer& trainer) {
  models::NamedTensors tensors = trainer.model().parameters();
  if (!trainer.base()) {
    for (auto& one : trainer.model().packed()) tensors.push_back(std::move(one));
    return tensors;
  }
  std::set<std::string> elsewhere;
  for (const auto& [name, tensor] : frozen_parameters(trainer.model())) elsewhere.insert(name);
  std::erase_if(tensors, [&](const auto& one) { return elsewhere.count(one.first) > 0; });
  return tensors;
}

static void load_base(const Checkpoint& checkpoint, Trainer& trainer) {
  const std::string place = (checkpoint.folder() / kBaseFile).string();
  BaseWeights base = parse_base(checkpoint.text(kBaseFile), place);
  const Weights weights = complete_weights(
      trainer.model(), open_base(checkpoint.files(), base, folder_for_base(checkpoint.folder()), place));
  copy_weights(weights, frozen_parameters(trainer.model()));
  trainer.model().read_packed(weights);
  trainer.set_base(std::move(base));
}

static void load_weights_of_run(const Checkpoint& checkpoint, Trainer& trainer) {
  std::vector<StoredTensor> stored = finite_tensors(checkpoint, kModelFile);
  models::NamedTensors into = kept_tensors(trainer);
  take_own_parts(trainer.shards(), stored, into);
  copy_by_name(stored, named(into), (checkpoint.folder() / kModelFile).string());
}

std::filesystem::path save_training(CheckpointStore& store, const Trainer& trainer,
                                    const LoadedConfig& loaded, int threads, const DataIdentity& data) {
  const TrainingState state = trainer.state();
  trainer.shards().settle();
  CheckpointStore::TensorFiles files;
  files[kModelFile] = written_weights(kept_tensors(trainer), trainer.shards());
  files[kOptimizer] = trainer.optimizer().written_state();
  Json json;
  json["version"] = kStateVersion;
  json["step"] = state.step;
  json["samples"] = state.samples;
  json["samples_per_epoch"] = state.samples_per_epoch;
  json["micro_batch"] = state.micro_batch;
  json["seconds"] = state.seconds;
  json["threads"] = threads;
  json["policies"] = Json::object();
  for (const auto& policy : trainer.policies().list()) {
    policies::PolicyState policy_state = policy->state();
    // Of policies without state nothing is said: some are there among several ranks only.
    if (!policy_state.counters.empty()) json["policies"][policy->name()] = policy_state.counters;
    if (!policy_state.tensors.empty())
      files[policy->name() + ".safetensors"] = written(policy_state, trainer.shards());
  }
  CheckpointStore::TextFiles texts = trainer.model().files();
  texts[kState] = json_text(json);
  if (trainer.base()) texts[kBaseFile] = base_text(*trainer.base());
  texts[kConfig] = print_config(loaded);
  texts[data_file_name] = identity_text(data);
  if (!loaded.history.empty()) texts[kHistory] = json_text(Json(loaded.history), NotUtf8::replaced);
  texts[kOrigins] = json_text(Json(loaded.origins), NotUtf8::replaced);
  return store.save(state.step, files, texts);
}

std::optional<DataIdentity> written_data(const Checkpoint& checkpoint) {
  if (!checkpoint.has(data_file_name)) return std::nullopt;
  const std::string path = (checkpoint.folder() / data_file_name).string();
  try {
    return parse_identity(checkpoint.text(data_file_name), path);
  } catch (const FileError& error) {
    throw FileError(error.what() + std::string("; resume another checkpoint"));
  }
}

static std::map<std::string, Origin> origins_in(const StrictJson& json, const std::filesystem::path& file) {
  try {
    return json.get<std::map<std::string, Origin>>();
  } catch (const Json::exception&) {
    throw FileError(file.string() + ": not origins by key; resume another checkpoint");
  }
}

LoadedConfig written_config(const Checkpoint& checkpoint) {
  LoadedConfig written = parse_config(checkpoint.text(kConfig), (checkpoint.folder() / kConfig).string(), {});
  if (checkpoint.has(kOrigins))
    written.origins = origins_in(read_json(checkpoint, kOrigins), checkpoint.folder() / kOrigins);
  if (checkpoint.has(kHistory)) {
    try {
      written.history = read_json(checkpoint, kHistory).get<std::vector<ConfigChange>>();
    } catch (const Json::exception&) {
      throw FileError((checkpoint.folder() / kHistory).string() +
                      ": not changes by step; resume another checkpoint");
    }
  }
  return written;
}

LoadedConfig resumed_config(FileSystem& files, const std::filesystem::path& checkpoint,
                            const std::vector<std::string>& overrides) {
  const std::filesystem::path file = checkpoint / kConfig;
  std::map<std::string, Origin> origins;
  if (const auto beside = checkpoint / kOrigins; files.exists(beside)) {
    constexpr uint64_t most = uint64_t{1} << 24;
    constexpr int max_depth = 4;
    origins = origins_in(parse_strict_json(files.read(beside, most), beside.string(), max_depth), beside);
  }
  LoadedConfig loaded = parse_config(read_config(files, file), file.string(), overrides, origins);
  const std::set<std::string> given = keys_of(overrides);  // now: that of the run that wrote it says nothing
  std::filesystem::path folder = checkpoint.parent_path();
  if (folder.empty()) folder = std::filesystem::weakly_canonical(checkpoint).parent_path();
  if (!given.contains("train.out") && folder.filename() == checkpoints_folder)
    loaded.config.train.out = folder.has_parent_path() ? folder.parent_path().string() : ".";
  if (!given.contains("train.allow_thread_change")) loaded.config.train.allow_thread_change = false;
  if (!given.contains("data.allow_change")) loaded.config.data.allow_change = false;
  return loaded;
}

int threads_of(const Checkpoint& checkpoint) {
  constexpr int64_t most = 1024;  // as train.threads allows
  const int64_t threads = count_at(checkpoint, read_state(checkpoint), "threads");
  if (threads < 1 || threads > most)
    refuse_state(checkpoint, fmt::format("\"threads\" is {}; allowed: 1 to {}", threads, most));
  return static_cast<int>(threads);
}

void load_training(const Checkpoint& checkpoint, Trainer& trainer) {
  const StrictJson json = read_state(checkpoint);
  check_files(checkpoint, trainer.model());
  {
    // Of what is read for another device, one tensor is alive at a time; they die here, before the first
    // step.
    const policies::OwnerScope owner(policies::Category::data, "checkpoint being read");
    if (checkpoint.has(kBaseFile)) load_base(checkpoint, trainer);
    load_weights_of_run(checkpoint, trainer);
    trainer.optimizer().restore(finite_tensors(checkpoint, kOptimizer));
    restore_policies(checkpoint, json, trainer);
  }
  const TrainingState state = training_state(checkpoint, json);
  try {
    trainer.restore(state);
  } catch (const std::invalid_argument&) {  // the loader's: no batch begins there
    refuse_state(checkpoint, fmt::format("\"samples\" is {}, where no batch of this data set begins",
                                         count_at(checkpoint, json, "samples")));
  }
}

}  // namespace dtk
