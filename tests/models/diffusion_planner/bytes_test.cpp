// What the driving model keeps for backward, by module: planned by CUDA's rules, and by the ledger on the
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
#include "support/device/devices.h"
#include "support/device/test_device.h"
#include "support/diffusion_planner/job.h"
#include "support/diffusion_planner/preset.h"

using namespace dtk::models;
using namespace dtk::test;
namespace policies = dtk::policies;

namespace {

using dtk::test::kCpu;
using dtk::test::kCuda;

/// Notes each storage that autograd saves, once, for the module that saved it first. Weights do not count.
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

Bytes saved_on_test_device(DiffusionPlanner& model, int64_t n) {
  const c10::Device device = test_device();
  const DrivingScene scene = full_scene(model.options(), n, device);
  model.seam.run = policies::run_with_module_path();
  const auto layer = std::make_shared<Saved>();
  const policies::SavedTensorScope scope(layer);
  const DrivingContext context = model.encode(scene, true);
  return layer->bytes;
}

DrivingJob job_of(const std::string& preset, bool bf16, bool published) {
  DrivingJob job;
  job.model = diffusion_planner_preset(preset);
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
  DiffusionPlannerOptions options = small_diffusion_planner_options("H");
  options.encoder_dropout = options.decoder_dropout = 0.1;
  DiffusionPlanner model(options, test_device());
  Bytes bytes = saved_on_test_device(model, 3);
  for (const auto& [path, two] : saved_on_test_device(model, 2)) bytes[path] -= two;
  const int64_t block = 64 * 128 * (on_cpu() ? 48 : 36) + 1024;
  for (const auto& [encoder, sequences] : std::map<std::string, int64_t>{
           {"ego", 1}, {"neighbor", 6}, {"lane", 7}, {"route", 3}, {"polygon", 2}, {"line_string", 4}}) {
    INFO(encoder);
    for (const char* number : {"0", "1"})
      CHECK(bytes.at("encoder." + encoder + "_encoder.blocks." + number) == sequences * block);
  }
}

// MB a sample. Preset M was measured with 20 of 32 neighbours, of which alone it computed sequences: ours
// computes all, 12 more of 268. UP stores the weights of attention; what H would keep more if it did was
// measured, too. Of the actors' attention to each other the published code then keeps the scaled queries and,
// as they are one tensor with keys and values, the unscaled ones; ours lets those go.
TEST_CASE("planned by CUDA's rules, each part of the driving model keeps what the published code keeps") {
  struct Row {
    std::string preset;
    bool bf16, stored_weights;
    std::map<std::string, double> megabytes;
  };
  const auto unscaled = [](int64_t actors, int64_t hidden, int64_t size) {
    return 1e-6 * static_cast<double>(3 * actors * hidden * size);
  };
  const std::vector<Row> rows = {
      {"H",
       false,
       false,
       {{"scene encoders", 1049.89},
        {"fusion", 66.98 + 0.58},
        {"DiT blocks", 50.09},
        {"DiT projections", 9.07}}},
      {"H",
       true,
       false,
       {{"scene encoders", 690.49},
        {"fusion", 39.20 + 0.58},
        {"DiT blocks", 28.05},
        {"DiT projections", 5.69}}},
      {"H",
       false,
       true,
       {{"fusion", 66.98 + 0.58 + 133.73}, {"DiT blocks", 50.09 + 60.22 - unscaled(321, 256, 4)}}},
      {"H",
       true,
       true,
       {{"fusion", 39.20 + 0.58 + 104.98}, {"DiT blocks", 28.05 + 47.12 - unscaled(321, 256, 2)}}},
      {"M",
       false,
       false,
       {{"scene encoders", 481.41 + 12 * 1.88}, {"fusion", 32.78 + 0.28}, {"DiT blocks", 7.16}}},
      {"UP",
       false,
       true,
       {{"scene encoders", 100.81},
        {"fusion", 6.44},
        {"DiT blocks", 1.86 - unscaled(11, 192, 4)},
        {"route encoder", 0.49},
        {"DiT projections", 0.20}}}};
  for (const Row& row : rows) {
    INFO(row.preset << (row.bf16 ? " bf16" : " fp32") << (row.stored_weights ? ", weights stored" : ""));
    DrivingJob job = job_of(row.preset, row.bf16, true);
    if (row.stored_weights) job.policies.attention.enabled = policies::Enabled::off;
    const Bytes published = by_part(planned_per_sample(job, kCuda));
    for (const auto& [part, megabytes] : row.megabytes) check_measured(published, part, megabytes);
  }
}

// The published code keeps 21.91 MB a sample for road borders, every distance of them; ours keeps of each
// step the nearest pair. Its attention copies tokens to the layout (L, N, D) and back; ours has no copies.
TEST_CASE("what the driving model keeps of each part, to the byte") {
  const auto of = [](const std::string& preset, bool bf16) {
    return by_part(planned_per_sample(job_of(preset, bf16, false), kCuda));
  };
  CHECK(of("H", false) == (Bytes{{"DiT blocks", 46'883'424},
                                 {"DiT projections", 9'074'028},
                                 {"fusion", 60'535'440},
                                 {"objective", 840'400},
                                 {"scene encoders", 1'049'068'512},
                                 {"turn indicator", 1'088}}));
  CHECK(of("H", true) == (Bytes{{"DiT blocks", 27'026'784},
                                {"DiT projections", 5'691'330},
                                {"fusion", 38'004'696},
                                {"objective", 840'400},
                                {"scene encoders", 690'504'150},
                                {"turn indicator", 544}}));
  CHECK(of("M", false) == (Bytes{{"DiT blocks", 6'387'264},
                                 {"DiT projections", 932'844},
                                 {"fusion", 29'624'976},
                                 {"objective", 98'512},
                                 {"scene encoders", 503'727'264},
                                 {"turn indicator", 1'088}}));
  CHECK(of("M", true) == (Bytes{{"DiT blocks", 3'785'136},
                                {"DiT projections", 585'090},
                                {"fusion", 18'599'256},
                                {"objective", 98'512},
                                {"scene encoders", 331'865'238},
                                {"turn indicator", 544}}));
  CHECK(of("UP", false) == (Bytes{{"DiT blocks", 1'464'288},
                                  {"DiT projections", 198'840},
                                  {"fusion", 4'351'360},
                                  {"objective", 14'080},
                                  {"route encoder", 485'065},
                                  {"scene encoders", 100'808'090}}));
  CHECK(of("UP", true) == (Bytes{{"DiT blocks", 891'672},
                                 {"DiT projections", 129'120},
                                 {"fusion", 2'748'244},
                                 {"objective", 14'080},
                                 {"route encoder", 255'401},
                                 {"scene encoders", 65'648'640}}));
  // A fusion block, with O = 564 objects of D = 256: 16 fp32 copies of its tokens, masks of 5 D bytes, two
  // norms; then in attention the mask, padded to a multiple of 8, and 8 heads' log-sum-exp, to 32; and two
  // numbers for the branches dropped.
  const Bytes paths = planned_per_sample(job_of("H", false, false), kCuda);
  CHECK(paths.at("encoder.fusion.blocks.3") == 564 * (69 * 256 + 16) + 568 * 4 + 576 * 8 * 4 + 8);
}

// There the published code keeps values as a view of one tensor with keys, and of the actors' attention to
// each other with queries too, and so all of it beside the scaled queries and keys; ours lets it go.
TEST_CASE("on the CPU the ledger counts what was measured there, and the plan to the byte what it counts") {
  const DrivingJob job = job_of("H", false, true);
  Bytes counted;
  {
    const policies::CountingAllocatorGuard counting;
    counted = kept_by_forward(job, kCpu);
  }
  CHECK(counted == planned_kept(job, kCpu));
  Bytes parts = by_part(counted);
  const auto activation = [](int64_t tokens) { return 1e-6 * static_cast<double>(tokens * 256 * 4); };
  for (auto& [part, bytes] : parts) bytes /= job.batch;
  check_measured(parts, "scene encoders", 1378.70);
  check_measured(parts, "fusion", 262.98 + 0.58 - 6 * activation(564));
  check_measured(parts, "DiT blocks", 133.48 - 3 * (2 * activation(321) + activation(564)));
  check_measured(parts, "DiT projections", 9.07);
  CHECK(by_part(planned_per_sample(job_of("H", false, false), kCpu)) ==
        (Bytes{{"DiT blocks", 128'621'568},
               {"DiT projections", 9'074'028},
               {"fusion", 256'629'072},
               {"objective", 841'168},
               {"scene encoders", 1'377'876'960},
               {"turn indicator", 1'088}}));
}
