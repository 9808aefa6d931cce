#include <algorithm>
#include <array>
#include <memory>
#include <string>

#include "fuzz/target.h"
#include "support/files/memory_file_system.h"
#include "support/runs/tiny_run.h"
#include "toolkit/checkpoint/manifest.h"
#include "toolkit/checkpoint/store.h"
#include "toolkit/io/sha256.h"
#include "toolkit/report/log.h"
#include "toolkit/train/model_family.h"
#include "toolkit/train/save_load.h"

namespace dtk::fuzz {
namespace {

constexpr std::array kFiles = {"state.json",      "manifest.json",     "origins.json",
                               "config.toml",     "model.safetensors", "optimizer.safetensors",
                               "ema.safetensors", "data.json",         "history.json"};

constexpr size_t kManifest = 1, kOrigins = 2, kData = 7, kHistory = 8;  // in kFiles

/// A run of one step and its checkpoint, each file of which an input may replace.
class Run {
 public:
  Run() : trainer_(config(), at::kCPU, test::tiny_data(), clock_) {
    trainer_.step();
    CheckpointStore store(files_, "run/checkpoints", 1);
    LoadedConfig loaded{config(), {}};
    loaded.history.push_back({1, "optimizer.lr = 0.1 (was 0.2)", true});
    DataIdentity data;
    data.files.push_back({"images", 100});
    data.classes = numbered_classes({0, 1, 1});
    data.held_out_below = 1;
    folder_ = save_training(store, trainer_, loaded, 1, data);
    for (const char* file : kFiles) original_.emplace_back(files_.read(folder_ / file));
  }

  /// The manifest has the right hashes, unless it is what is replaced.
  void load(size_t replaced, std::string_view content) {
    CheckpointManifest manifest = parse_manifest(original_[kManifest], "manifest");
    for (size_t i = 0; i < kFiles.size(); ++i) write(kFiles[i], i == replaced ? content : original_[i]);
    for (ManifestFile& file : manifest.files) {
      if (file.name != kFiles[replaced]) continue;
      Sha256 hash;
      hash.update(content.data(), content.size());
      file.sha256 = hash.hex_digest();
      file.bytes = content.size();
    }
    if (replaced != kManifest) write(kFiles[kManifest], manifest_text(manifest));
    const Checkpoint checkpoint = open_checkpoint(files_, folder_);
    if (replaced == kData) written_data(checkpoint);
    if (replaced == kOrigins || replaced == kHistory)
      written_config(checkpoint);  // config.toml has a target of its own
    threads_of(checkpoint);
    load_training(checkpoint, trainer_);
    is_log_step(trainer_.steps(), 10);
    if (trainer_.steps() < 0 || trainer_.samples() < 0 || !(trainer_.elapsed_seconds() >= 0)) std::abort();
  }

 private:
  static RunConfig config() {
    RunConfig config = test::tiny_config();
    config.data.threads = 1;
    config.policies.precision.cpu = policies::CpuPrecision::fp32;
    auto& model = dit::options_of(config).model;
    model.depth = 1;  // all of it is hashed for each input
    model.hidden = 4;
    model.heads = 1;
    return config;
  }
  void write(const std::string& name, std::string_view content) {
    files_.create(folder_ / name)->write(content.data(), content.size());
  }

  test::MemoryFileSystem files_;
  test::SteppingClock clock_;
  Trainer trainer_;
  std::filesystem::path folder_;
  std::vector<std::string> original_;
};

/// The first byte chooses the file that the rest is.
void read_checkpoint(std::string_view input) {
  static auto* const run = new Run;
  if (!input.empty()) run->load(static_cast<unsigned char>(input[0]) % kFiles.size(), input.substr(1));
}

}  // namespace

const Target checkpoint = {read_checkpoint, linear<1024, 8192>};

}  // namespace dtk::fuzz
