// Runs and files of weights in memory, for the tests of weights.
#pragma once
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <dtk/models/dit.h>

#include <algorithm>
#include <map>

#include "support/files/memory_file_system.h"
#include "support/files/safetensors_file.h"
#include "support/runs/image_run.h"
#include "support/runs/tiny_run.h"
#include "toolkit/checkpoint/find.h"
#include "toolkit/checkpoint/weights.h"
#include "toolkit/families/dit/options.h"
#include "toolkit/run/run.h"

namespace dtk::test {

using Named = std::vector<NamedTensor>;

inline const std::string class_table = "y_embedder.embedding_table.weight";

struct Silent final : RunObserver {
  void message(const std::string& text) override { messages.push_back(text); }
  void progress(const Progress&) override {}
  void working(const std::string&, int64_t, int64_t) override {}
  bool heard(const std::string& text) const {
    return std::find(messages.begin(), messages.end(), text) != messages.end();
  }
  std::vector<std::string> messages;
};

struct World {
  RunResult run(const LoadedConfig& loaded, const std::string& resume = "") {
    const auto from =
        resume.empty() ? std::filesystem::path() : find_checkpoint(files, resume, loaded.config.train.out);
    observer.messages.clear();
    return run_training(loaded, at::kCPU, from, images_of(loaded, tiny_data()), {files, clock, observer, {}});
  }
  void write(const std::string& path, const std::string& bytes) {
    files.create(path)->write(bytes.data(), bytes.size());
  }
  Named read(const std::string& path) { return read_safetensors(files, path).tensors; }

  MemoryFileSystem files;
  SteppingClock clock{0.001};
  Silent observer;
};

inline LoadedConfig tiny(const std::string& out) {
  LoadedConfig loaded;
  loaded.config = tiny_config();
  dit::options_of(loaded.config).data.images = dit::options_of(loaded.config).data.labels = "made up";
  loaded.config.train.out = out;
  loaded.config.train.steps = 4;
  loaded.config.policies.precision.cpu = policies::CpuPrecision::fp32;
  dit::options_of(loaded.config).grid.per_class = 0;
  return loaded;
}

inline WeightsRequest request(const std::string& path, const std::string& key = "") {
  return {path, key, "--weights " + path, "--key " + key, "--key"};
}

inline models::Dit tiny_model(uint64_t seed = 1, const RunConfig& config = tiny_config()) {
  return models::Dit(dit::options_of(config).model, at::kCPU, at::detail::createCPUGenerator(seed));
}

/// The parameters of a model, at other values than those it is made with.
inline Named changed_parameters(const models::Dit& model) {
  Named tensors;
  for (const auto& [name, parameter] : model.parameters()) {
    const bool fixed = !parameter.requires_grad();
    tensors.push_back({name, fixed ? parameter.detach() : at::randn_like(parameter.detach())});
  }
  return tensors;
}

inline Named without(Named tensors, const std::string& name) {
  std::erase_if(tensors, [&](const NamedTensor& entry) { return entry.name == name; });
  return tensors;
}

inline Named with(Named tensors, const std::string& name, const at::Tensor& tensor) {
  for (NamedTensor& entry : tensors) {
    if (entry.name == name) entry.tensor = tensor;
  }
  return tensors;
}

inline bool same(const Named& a, const Named& b) {
  std::map<std::string, at::Tensor> left, right;
  for (const NamedTensor& entry : a) left[entry.name] = entry.tensor;
  for (const NamedTensor& entry : b) right[entry.name] = entry.tensor;
  return left.size() == right.size() && std::all_of(left.begin(), left.end(), [&](const auto& entry) {
           return right.count(entry.first) > 0 && at::equal(entry.second, right[entry.first]);
         });
}

inline Named read_all(const Weights& weights) {
  Named tensors;
  for (const StoredTensor& tensor : weights.tensors) tensors.push_back({tensor.name, tensor.read()});
  return tensors;
}

}  // namespace dtk::test
