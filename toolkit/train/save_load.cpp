#include "toolkit/train/save_load.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/accumulate.h>
#include <dtk/policies/memory_ledger.h>

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "toolkit/checkpoint/weights.h"
#include "toolkit/core/errors.h"

using Json = nlohmann::ordered_json;

namespace dtk {

// In origins.json.
static void to_json(Json& json, const Origin& origin) {
  json = {{"source", policies::text_of(origin.source)}, {"text", origin.text}};
}
static void from_json(const Json& json, Origin& origin) {
  const auto source = policies::parse_enum<Origin::Source>(json.at("source").get<std::string>());
  if (!source) throw Json::other_error::create(0, "no such source of a value: " + json.dump(), &json);
  origin = {*source, json.at("text")};
}

namespace {

constexpr char kOptimizer[] = "optimizer.safetensors";
constexpr char kRandom[] = "random.safetensors";
constexpr char kState[] = "state.json", kConfig[] = "config.toml", kOrigins[] = "origins.json";

at::Tensor bytes_tensor(const std::string& bytes) {
  at::Tensor tensor = at::empty({static_cast<int64_t>(bytes.size())}, at::kByte);
  std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
  return tensor;
}

std::vector<NamedTensor> named(const std::vector<std::pair<std::string, at::Tensor>>& pairs) {
  std::vector<NamedTensor> list;
  for (const auto& [name, tensor] : pairs) list.push_back({name, tensor.detach()});
  return list;
}

template <class T>
T read_json(const Checkpoint& checkpoint, const char* file, const std::string& what) {
  try {
    return Json::parse(checkpoint.text(file)).get<T>();
  } catch (const Json::exception& error) {
    throw FileError((checkpoint.folder() / file).string() + ": not " + what + ": " + error.what());
  }
}

Json read_state(const Checkpoint& checkpoint) {
  return read_json<Json>(checkpoint, kState, "a training state");
}

template <class T>
T field(const Checkpoint& checkpoint, const Json& state, const std::string& name) {
  try {
    return state.at(name).get<T>();
  } catch (const Json::exception&) {
    throw FileError((checkpoint.folder() / kState).string() + ": no usable entry \"" + name + "\"");
  }
}

std::string stream(const Checkpoint& checkpoint, const std::vector<StoredTensor>& streams,
                   const std::string& name) {
  for (const StoredTensor& entry : streams) {
    if (entry.name != name || entry.type != at::kByte) continue;
    std::string bytes(static_cast<size_t>(c10::multiply_integers(entry.shape)), '\0');
    // Not of LibTorch's allocator: in a run that is resumed no byte more is counted than in a new one.
    copy_stored(entry, at::from_blob(bytes.data(), entry.shape, at::kByte));
    return bytes;
  }
  throw FileError((checkpoint.folder() / kRandom).string() + ": no random stream \"" + name + "\"");
}

void restore_policies(const Checkpoint& checkpoint, const Json& json, Trainer& trainer) {
  const auto counters = field<Json>(checkpoint, json, "policies");
  for (const auto& policy : trainer.policies().list()) {
    policies::StoredPolicyState state;
    const std::string file = policy->name() + ".safetensors";
    if (checkpoint.has(file)) {
      for (const StoredTensor& entry : checkpoint.stored_tensors(file)) {
        state.tensors.push_back(
            {entry.name, entry.shape, [entry](const at::Tensor& into) { copy_stored(entry, into); }});
      }
    }
    // A policy that was off when the checkpoint was made has no entry; one that needs its state says so.
    if (counters.contains(policy->name()))
      state.counters = field<std::map<std::string, int64_t>>(checkpoint, counters, policy->name());
    policy->restore(state);
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

TrainingState training_state(const Checkpoint& checkpoint, const Json& json) {
  const std::vector<StoredTensor> streams = checkpoint.stored_tensors(kRandom);
  TrainingState state;
  state.step = field<int64_t>(checkpoint, json, "step");
  state.samples = field<int64_t>(checkpoint, json, "samples");
  state.seconds = field<double>(checkpoint, json, "seconds");
  state.default_generator = stream(checkpoint, streams, "default");
  state.noise_generator = stream(checkpoint, streams, "noise");
  return state;
}

}  // namespace

std::filesystem::path save_training(CheckpointStore& store, const Trainer& trainer,
                                    const LoadedConfig& loaded, int threads) {
  const TrainingState state = trainer.state();
  CheckpointStore::TensorFiles files;
  files[kModelFile] = named(trainer.model().parameters());
  files[kOptimizer] = trainer.optimizer().state();
  files[kRandom] = {{"default", bytes_tensor(state.default_generator)},
                    {"noise", bytes_tensor(state.noise_generator)}};
  Json json;
  json["version"] = 1;
  json["step"] = state.step;
  json["samples"] = state.samples;
  json["seconds"] = state.seconds;
  json["threads"] = threads;
  json["policies"] = Json::object();
  for (const auto& policy : trainer.policies().list()) {
    policies::PolicyState policy_state = policy->state();
    json["policies"][policy->name()] = policy_state.counters;
    if (!policy_state.tensors.empty()) files[policy->name() + ".safetensors"] = named(policy_state.tensors);
  }
  CheckpointStore::TextFiles texts = trainer.model().files();
  texts[kState] = json.dump(1) + "\n";
  texts[kConfig] = print_config(loaded);
  texts[kOrigins] = Json(loaded.origins).dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
  return store.save(state.step, files, texts);
}

LoadedConfig written_config(const Checkpoint& checkpoint) {
  LoadedConfig written = parse_config(checkpoint.text(kConfig), (checkpoint.folder() / kConfig).string(), {});
  if (checkpoint.has(kOrigins))
    written.origins = read_json<std::map<std::string, Origin>>(checkpoint, kOrigins, "origins by key");
  return written;
}

int threads_of(const Checkpoint& checkpoint) {
  return field<int>(checkpoint, read_state(checkpoint), "threads");
}

void load_training(const Checkpoint& checkpoint, Trainer& trainer) {
  const Json json = read_state(checkpoint);
  check_files(checkpoint, trainer.model());
  {
    // Of what is read for another device, one tensor is alive at a time; they die here, before the first
    // step.
    const policies::OwnerScope owner(policies::Category::data, "checkpoint being read");
    copy_by_name(checkpoint.stored_tensors(kModelFile), named(trainer.model().parameters()),
                 (checkpoint.folder() / kModelFile).string());
    trainer.optimizer().restore(checkpoint.stored_tensors(kOptimizer));
    restore_policies(checkpoint, json, trainer);
  }
  trainer.restore(training_state(checkpoint, json));
}

}  // namespace dtk
