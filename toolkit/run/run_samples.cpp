#include "toolkit/run/run_samples.h"

#include <c10/util/Exception.h>

#include <string>

#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/core/text.h"
#include "toolkit/run/messages.h"
#include "toolkit/run/out_of_memory.h"

namespace dtk {

using policies::PhaseScope;

void RunSamples::on_the_way(RunRecord& record) {
  const std::vector<NamedTensor> samples = draw(record);
  if (!samples.empty()) keep(record, samples);
}

void RunSamples::at_end(RunRecord& record, const std::filesystem::path& checkpoint, RunResult& result) {
  const auto command = [&] {
    return sample_command(checkpoint, config_, record.samples_path(trainer_.steps()));
  };
  try {
    const std::vector<NamedTensor> samples = draw(record);
    result.stopped = samples.empty();
    if (samples.empty()) {
      result.next_step = "the training is complete, its samples were not made; make them with " + command();
    } else {
      result.samples = keep(record, samples);
    }
  } catch (const c10::OutOfMemoryError& error) {
    if (trainer_.shards().divides_weights()) throw;  // the others wait where their modules gather weights
    throw_if_bare(error, config_, world_.observer);
    result.out_of_memory = first_line(error.what_without_backtrace());
    refused_ = refused_by(error);
    result.next_step = fmt::format(
        "the training is complete and saved, its samples were not made; lower {}, raise memory.budget if it "
        "is set, or make {}{}",
        model_.count_key, model_.fewer, command());
  } catch (const DataError& error) {
    throw DataError(fmt::format("{}; the training is complete and saved as {}, its samples were not made",
                                error.what(), checkpoint.string()));
  }
  // Who is told to stop draws none, and only the leader's are kept.
  result.stopped = ranks_.leaders(result.stopped, "behind the samples");
}

// None if a stop is requested, or a rank has none.
std::vector<NamedTensor> RunSamples::draw(RunRecord& record) {
  const PhaseScope phase("sample");
  record.prepare_samples();
  world_.observer.message("sampling " + model_.drawn);
  const KeepGoing keep_going =
      until_stopped(world_.observer, [this] { return !ranks_.may_go_on("while samples are drawn"); });
  std::vector<at::Tensor> parts;
  SharedSamples shared{share_of(world_.ranks)};
  if (world_.ranks != nullptr) shared.join = [&](const at::Tensor& one) { parts.push_back(one); };
  std::vector<NamedTensor> samples;
  try {
    samples = trainer_.sample(keep_going, data_.split.held_out.get(), shared);
  } catch (const std::exception&) {
    // The others wait where their modules gather weights, or hear it.
    if (!trainer_.shards().divides_weights()) ranks_.any(true, "behind the samples");
    throw;
  }
  if (ranks_.any(samples.empty(), "behind the samples")) return {};
  for (const at::Tensor& one : parts) world_.ranks->join(one, "behind the samples");
  return samples;
}

std::filesystem::path RunSamples::keep(RunRecord& record, const std::vector<NamedTensor>& samples) {
  const PhaseScope phase("sample");
  const std::filesystem::path path = record.samples(trainer_.steps(), samples);
  if (!model_.pictures) {
    world_.observer.message(
        fmt::format("the samples are {}, not images: written to {}", model_.tensors, path.string()));
  }
  meters_.check_budget();
  return path;
}

}  // namespace dtk
