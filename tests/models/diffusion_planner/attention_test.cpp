// The driving model's attention has dropout and masks of absent objects: fused all the same by CUDA's
// rules, materialised on the CPU, whose report says where and with how many bytes.
#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <set>

#include "support/catch.h"
#include "support/diffusion_planner/job.h"

using namespace dtk;
using namespace dtk::test;
using policies::Enabled;
using policies::MemoryEvent;

namespace {

/// Bytes of the storages that a training step makes, by the operator that makes them.
using Made = std::map<std::string, std::set<int64_t>>;

Made made_in_step(const DrivingJob& job) {
  const c10::Device cuda("cuda:0");
  std::vector<MemoryEvent> events;
  planner::simulate(cuda, [&](const auto&) {
    DrivingTraining training(job, cuda);
    policies::device_accounts().start_event_log();
    training.step();
    events = policies::device_accounts().stop_event_log();
  });
  Made made;
  for (const MemoryEvent& event : events) {
    if (event.kind == MemoryEvent::Kind::birth)
      made[policies::owner_of(event.from).label].insert(event.bytes);
  }
  return made;
}

/// Operators that made a storage of the size of attention's weights (N, H, T, S), in masks of bytes, bf16 or
/// fp32.
std::set<std::string> makers_of_weights(const Made& made, const DrivingJob& job) {
  const models::DiffusionPlannerOptions model = models::resolved(job.model);
  const int64_t objects = model.encoder_tokens(), actors = model.decoder_tokens();
  std::set<std::string> makers;
  for (const int64_t elements : {objects * objects, actors * actors, actors * objects}) {
    for (const int64_t size : {1, 2, 4}) {
      for (const auto& [operation, bytes] : made) {
        if (bytes.count(job.batch * *model.num_heads * elements * size) > 0) makers.insert(operation);
      }
    }
  }
  return makers;
}

policies::PolicyReport attention_report(const policies::PolicySet& set) {
  const auto reports = set.reports();
  return *std::find_if(reports.begin(), reports.end(),
                       [](const policies::PolicyReport& one) { return one.policy == "attention"; });
}

}  // namespace

TEST_CASE("the driving model's attention with dropout and masks stays fused by CUDA's rules, backward too") {
  for (const bool bf16 : {true, false}) {
    CAPTURE(bf16);
    DrivingJob job;
    job.policies.precision.enabled = bf16 ? Enabled::on : Enabled::off;
    job.policies.precision.fp32 = {};
    const Made fused = made_in_step(job);
    CHECK(makers_of_weights(fused, job) == std::set<std::string>{});
    // Nor do the kernels make anything nearly as large for themselves.
    const int64_t actors = job.model.decoder_tokens();
    const int64_t min_weights = job.batch * 8 * actors * actors * 2;
    int kernels = 0;
    for (const auto& [operation, bytes] : fused) {
      if (operation.find("attention") == std::string::npos) continue;
      ++kernels;
      CAPTURE(operation);
      CHECK(*bytes.rbegin() < min_weights);
    }
    CHECK(kernels >= 2);
    job.policies.attention.enabled = Enabled::off;
    CHECK(makers_of_weights(made_in_step(job), job).count("aten::_softmax") == 1);
  }
}

TEST_CASE("on the CPU the attention policy's report lists what of the driving model runs materialised") {
  const policies::CountingAllocatorGuard counting;
  DrivingJob job;
  job.model = small_diffusion_planner_options("H");
  job.model.encoder_dropout = job.model.decoder_dropout = 0.1;
  DrivingTraining training(job, at::kCPU);
  policies::cpu_accounts().start_event_log();
  const at::Tensor loss = training.loss();
  const std::vector<MemoryEvent> events = policies::cpu_accounts().stop_event_log();
  // 2 samples, 4 heads, 29 objects, 5 actors; an element of weights takes 12 bytes: they, the noise, and both
  // multiplied. Of the two attentions of a DiT block the larger is named.
  const std::string fusion =
      ": 80736 bytes of weights are stored, no fused kernel (q [2, 4, 29, 16] Float on cpu, mask, dropout "
      "0.1)";
  const std::string dit =
      ": 13920 bytes of weights are stored, no fused kernel (q [2, 4, 5, 16] Float on cpu, mask, dropout "
      "0.1)";
  const policies::PolicyReport report = attention_report(training.policies());
  CHECK_FALSE(report.active);
  CHECK(report.reason == "fused kernels in 0 of 6 calls; not in decoder.dit.blocks.0" + dit +
                             "; not in decoder.dit.blocks.1" + dit + "; not in encoder.fusion.blocks.0" +
                             fusion + "; not in encoder.fusion.blocks.1" + fusion);
  const auto kept = [&](const std::string& path, int64_t bytes) {
    return std::count_if(events.begin(), events.end(), [&](const MemoryEvent& event) {
      const policies::Owner to = policies::owner_of(event.to);
      return event.kind == MemoryEvent::Kind::transfer && to.category == policies::Category::saved &&
             to.label == path && event.bytes == bytes;
    });
  };
  CHECK(kept("encoder.fusion.blocks.1", 80736 / 3) == 3);
  CHECK(kept("decoder.dit.blocks.1", 13920 / 3) == 3);

  job.model.encoder_dropout = job.model.decoder_dropout = 0;
  DrivingTraining without(job, at::kCPU);
  without.loss();
  const policies::PolicyReport fused = attention_report(without.policies());
  CHECK(fused.active);
  CHECK(fused.reason == "fused kernels, no weights are stored");
}
