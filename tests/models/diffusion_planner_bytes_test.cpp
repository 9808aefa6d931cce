// What the driving planner keeps for backward, by sub-tree.
//
// A mixer block works on 64 x 128 elements a sequence and keeps of each 8 fp32 copies and 4 masks, and mean
// and 1/deviation of 64 rows in two norms: 36 bytes an element and 1,024 where dropout has a mask of bytes,
// as on CUDA; 48 on the CPU, where its mask is fp32.
#include <ATen/ATen.h>
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

/// What one more sample adds. To two: with one, (L, N, D) is (N, L, D).
Bytes per_sample(DiffusionPlanner& planner, bool bf16 = false) {
  Bytes more = saved_bytes(planner, 3, bf16);
  for (const auto& [path, bytes] : saved_bytes(planner, 2, bf16)) more[path] -= bytes;
  return more;
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

// Per sample, of the published code at preset H in PyTorch 2.11, measured on tensors of a simulated CUDA
// device; parameters and the bf16 copies of weights left out.
TEST_CASE("at full size each part of the planner keeps what was measured of the published code", "[device]") {
  if (!simulated()) return;  // gigabytes
  struct Row {
    bool bf16;
    double sequences, fusion, dit, ends;
  };
  policies::SavedTensorEngineGuard engine;
  DiffusionPlannerOptions options;
  options.sequence_first_attention = true;
  DiffusionPlanner published(options, test_device());
  options.sequence_first_attention = false;
  DiffusionPlanner ours(options, test_device());
  for (const Row& row :
       {Row{false, 1049.89e6, 66.98e6, 50.09e6, 9.07e6}, Row{true, 690.49e6, 39.20e6, 28.05e6, 5.69e6}}) {
    const auto bytes = per_sample(published, row.bf16);
    const auto measured = [](const Bytes& of, const char* prefix) {
      return static_cast<double>(sum(of, prefix));
    };
    const double fusion = measured(bytes, "encoder.fusion.blocks."),
                 dit = measured(bytes, "decoder.dit.blocks.");
    const double sequences = measured(bytes, "encoder.") - measured(bytes, "encoder.fusion.");
    const double ends = measured(bytes, "decoder.dit.") - dit;
    CAPTURE(row.bf16);
    CHECK(sequences == Approx(row.sequences).epsilon(0.005));
    CHECK(fusion == Approx(row.fusion).epsilon(0.005));
    CHECK(dit == Approx(row.dit).epsilon(0.005));
    CHECK(ends == Approx(row.ends).epsilon(0.005));
    // Without the copies of the published layout attention keeps less, the rest the same.
    const Bytes own = per_sample(ours, row.bf16);
    CHECK(measured(own, "encoder.") - measured(own, "encoder.fusion.") == sequences);
    CHECK(measured(own, "encoder.fusion.blocks.") < 0.96 * fusion);
    CHECK(measured(own, "decoder.dit.blocks.") < 0.97 * dit);
  }
  // A fusion block, with O = 564 objects of D = 256: 16 fp32 copies of its tokens, masks of 5 D bytes, two
  // norms; then in attention the mask, padded to a multiple of 8, and 8 heads' log-sum-exp, to 32; and two
  // numbers for the branches dropped.
  CHECK(per_sample(ours).at("encoder.fusion.blocks.3") == 564 * (69 * 256 + 16) + 568 * 4 + 576 * 8 * 4 + 8);
}
