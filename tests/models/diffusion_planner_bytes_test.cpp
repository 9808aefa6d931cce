// What the driving planner keeps for backward, by sub-tree: planned by CUDA's rules, and by the ledger on the
// CPU, against what was measured of the published code in PyTorch 2.11.
//
// A mixer block works on 64 x 128 elements a sequence and keeps of each 8 fp32 copies and 4 masks, and mean
// and 1/deviation of 64 rows in two norms: 36 bytes an element and 1,024 where dropout has a mask of bytes,
// as on CUDA; 48 on the CPU, where its mask is fp32.
#include <ATen/ATen.h>
#include <dtk/policies/saved_tensors.h>

#include <map>
#include <memory>
#include <set>

#include "support/catch.h"
#include "support/driving_planner_job.h"
#include "support/test_device.h"

using namespace dtk::models;
using namespace dtk::test;
namespace policies = dtk::policies;

namespace {

const c10::Device cpu(c10::kCPU), cuda("cuda:0");

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

Bytes saved_on_test_device(DiffusionPlanner& planner, int64_t n) {
  const c10::Device device = test_device();
  const DrivingScene scene = full_scene(planner.options(), n, device);
  planner.seam.run = policies::run_with_module_path();
  const auto layer = std::make_shared<Saved>();
  const policies::SavedTensorScope scope(layer);
  const DrivingContext context = planner.encode(scene, true);
  return layer->bytes;
}

DrivingJob job_of(const std::string& preset, bool bf16, bool published) {
  DrivingJob job;
  job.model.preset = preset;
  job.model.sequence_first_attention = published;
  if (bf16) job.policies.precision = {.enabled = policies::Enabled::on, .fp32 = {}};
  return job;
}

/// Of the published code; what is rounded to 0.01 MB is known to half of that.
void check_measured(const Bytes& parts, const std::string& part, double megabytes) {
  CAPTURE(part);
  CHECK(1e-6 * static_cast<double>(parts.at(part)) == Approx(megabytes).epsilon(0.005).margin(0.005));
}

}  // namespace

TEST_CASE("a mixer block keeps exactly what its operators keep, in every encoder of sequences", "[device]") {
  policies::SavedTensorEngineGuard engine;
  DiffusionPlannerOptions options = small_planner_options("H");
  options.encoder_dropout = options.decoder_dropout = 0.1;
  DiffusionPlanner planner(options, test_device());
  Bytes bytes = saved_on_test_device(planner, 3);
  for (const auto& [path, two] : saved_on_test_device(planner, 2)) bytes[path] -= two;
  const int64_t block = 64 * 128 * (on_cpu() ? 48 : 36) + 1024;
  for (const auto& [encoder, sequences] : std::map<std::string, int64_t>{
           {"ego", 1}, {"neighbor", 6}, {"lane", 7}, {"route", 3}, {"polygon", 2}, {"line_string", 4}}) {
    INFO(encoder);
    for (const char* number : {"0", "1"})
      CHECK(bytes.at("encoder." + encoder + "_encoder.blocks." + number) == sequences * block);
  }
}

// MB a sample. Preset M was measured with 20 of 32 neighbours, of which alone it computed sequences: ours
// computes all, 12 more of 268. UP's route encoder and projections are small and known to two digits.
TEST_CASE("planned by CUDA's rules, each part of the planner keeps what the published code keeps") {
  struct Row {
    std::string preset;
    bool bf16;
    std::map<std::string, double> megabytes;
  };
  for (const Row& row :
       {Row{"H",
            false,
            {{"scene encoders", 1049.89},
             {"fusion", 66.98 + 0.58},
             {"DiT blocks", 50.09},
             {"DiT projections", 9.07}}},
        Row{"H",
            true,
            {{"scene encoders", 690.49},
             {"fusion", 39.20 + 0.58},
             {"DiT blocks", 28.05},
             {"DiT projections", 5.69}}},
        Row{"M",
            false,
            {{"scene encoders", 481.41 + 12 * 1.88}, {"fusion", 32.78 + 0.28}, {"DiT blocks", 7.16}}},
        Row{"UP",
            false,
            {{"scene encoders", 100.81},
             {"fusion", 6.44},
             {"DiT blocks", 1.86},
             {"route encoder", 0.49},
             {"DiT projections", 0.20}}}}) {
    INFO(row.preset << (row.bf16 ? " bf16" : " fp32"));
    const Bytes published = by_part(planned_per_sample(job_of(row.preset, row.bf16, true), cuda));
    for (const auto& [part, megabytes] : row.megabytes) check_measured(published, part, megabytes);
  }
}

// The published code keeps 21.91 MB a sample for road borders, every distance of them; ours keeps of each
// step the nearest pair. Its attention copies tokens to the layout (L, N, D) and back; ours has no copies.
TEST_CASE("what the planner keeps of each part, to the byte") {
  const auto of = [](const std::string& preset, bool bf16) {
    return by_part(planned_per_sample(job_of(preset, bf16, false), cuda));
  };
  CHECK(of("H", false) == Bytes{});
  CHECK(of("H", true) == Bytes{});
  CHECK(of("M", false) == Bytes{});
  CHECK(of("M", true) == Bytes{});
  CHECK(of("UP", false) == Bytes{});
  CHECK(of("UP", true) == Bytes{});
  // A fusion block, with O = 564 objects of D = 256: 16 fp32 copies of its tokens, masks of 5 D bytes, two
  // norms; then in attention the mask, padded to a multiple of 8, and 8 heads' log-sum-exp, to 32; and two
  // numbers for the branches dropped.
  const Bytes paths = planned_per_sample(job_of("H", false, false), cuda);
  CHECK(paths.at("encoder.fusion.blocks.3") == 564 * (69 * 256 + 16) + 568 * 4 + 576 * 8 * 4 + 8);
}

TEST_CASE("on the CPU the ledger counts what was measured there, and the plan to the byte what it counts") {
  const DrivingJob job = job_of("H", false, true);
  Bytes counted;
  {
    const policies::CountingAllocatorGuard counting;
    counted = kept_by_forward(job, cpu);
  }
  CHECK(counted == planned_kept(job, cpu));
  Bytes parts = by_part(counted);
  for (auto& [part, bytes] : parts) bytes /= job.batch;
  check_measured(parts, "scene encoders", 1378.70);
  check_measured(parts, "fusion", 262.98 + 0.58);
  check_measured(parts, "DiT blocks", 133.48);
  check_measured(parts, "DiT projections", 9.07);
  CHECK(by_part(planned_per_sample(job_of("H", false, false), cpu)) == Bytes{});
}
