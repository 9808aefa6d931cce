// What the driving planner keeps for backward, by sub-tree.
//
// A mixer block works on 64 x 128 elements a sequence and keeps of each 8 fp32 copies and 4 masks, and mean
// and 1/deviation of 64 rows in two norms: 36 bytes an element and 1,024 where dropout has a mask of bytes,
// as on CUDA; 48 on the CPU, where its mask is fp32.
#include <dtk/policies/guards.h>
#include <dtk/policies/module_path.h>
#include <dtk/policies/saved_tensors.h>

#include <map>
#include <memory>
#include <set>

#include "support/catch.h"
#include "support/driving_planner.h"
#include "support/test_device.h"

using namespace dtk::models;
using namespace dtk::test;
namespace policies = dtk::policies;

namespace {

using Bytes = std::map<std::string, int64_t>;

/// Notes each storage that autograd saves, once, for the sub-tree that saved it first. Weights do not count.
class Saved final : public policies::SavedTensorLayer {
 public:
  std::unique_ptr<policies::SavedTensor> pack(const at::Tensor& tensor,
                                              const policies::SavedTensorStack& below) override {
    const c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
    if (!policies::saving_weight() && !policies::saving_weight_cast() && seen_.insert(storage).second) {
      bytes[policies::module_path()] += static_cast<int64_t>(storage->nbytes());
    }
    return below.pack(tensor);
  }
  Bytes bytes;

 private:
  std::set<const c10::StorageImpl*> seen_;  // none dies while the graph lives
};

Bytes saved_bytes(DiffusionPlanner& planner, int64_t n, bool bf16 = false) {
  const c10::Device device = test_device();
  const DrivingScene scene = full_scene(planner.options(), n, device);
  const auto [x, t] = noise_at_half(planner.options(), n, device);
  planner.seam.run = policies::run_with_module_path();
  const auto layer = std::make_shared<Saved>();
  const policies::SavedTensorScope scope(layer);
  const policies::AutocastGuard autocast(device.type(), bf16);
  const DrivingContext context = planner.encode(scene, true);
  at::Tensor out = planner.denoise(x, t, context, true);
  if (!planner.options().upstream()) {
    at::Tensor logit = planner.turn_indicator(x.select(1, 0), context.encoding);
    out = out.sum() + logit.sum();  // keeps the graph of both
  }
  return layer->bytes;
}

/// What a second sample adds.
Bytes per_sample(DiffusionPlanner& planner, bool bf16 = false) {
  Bytes two = saved_bytes(planner, 2, bf16);
  for (const auto& [path, bytes] : saved_bytes(planner, 1, bf16)) two[path] -= bytes;
  return two;
}

int64_t sum(const Bytes& bytes, const std::string& prefix) {
  int64_t total = 0;
  for (const auto& [path, count] : bytes) {
    if (path.starts_with(prefix)) total += count;
  }
  return total;
}

}  // namespace

TEST_CASE("a mixer block keeps exactly what its operators keep, in every encoder of sequences", "[device]") {
  policies::SavedTensorEngineGuard engine;
  DiffusionPlannerOptions options = small_planner_options("H");
  options.encoder_dropout = options.decoder_dropout = 0.1;
  DiffusionPlanner planner(options, test_device());
  const Bytes bytes = per_sample(planner);
  const int64_t block = 64 * 128 * (on_cpu() ? 48 : 36) + 1024;
  for (const auto& [encoder, sequences] : std::map<std::string, int64_t>{
           {"ego", 1}, {"neighbor", 6}, {"lane", 7}, {"route", 3}, {"polygon", 2}, {"line_string", 4}}) {
    INFO(encoder);
    for (const char* number : {"0", "1"})
      CHECK(bytes.at("encoder." + encoder + "_encoder.blocks." + number) == sequences * block);
  }
}

// The measured figures are of the published code, per sample and in bytes.
TEST_CASE("at full size the mixers keep most, as measured of the published code", "[device]") {
  if (!simulated()) return;  // gigabytes
  policies::SavedTensorEngineGuard engine;
  DiffusionPlannerOptions options;
  DiffusionPlanner planner(options, test_device());
  for (const bool bf16 : {false, true}) {
    const Bytes bytes = per_sample(planner, bf16);
    const int64_t fusion = sum(bytes, "encoder.fusion."), dit = sum(bytes, "decoder.dit.blocks.");
    const int64_t ends = sum(bytes, "decoder.dit.") - dit;
    const int64_t sequences = sum(bytes, "encoder.") - fusion;
    int64_t total = 0;
    for (const auto& [path, count] : bytes) {
      total += count;
      UNSCOPED_INFO(path << " " << count);
    }
    CAPTURE(bf16, sequences, fusion, dit, ends, total);
    CHECK(false);
  }
}
