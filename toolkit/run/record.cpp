#include "toolkit/run/record.h"

#include <algorithm>

#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/core/numbers.h"
#include "toolkit/core/text.h"
#include "toolkit/data/image.h"
#include "toolkit/io/json.h"
#include "toolkit/io/safetensors.h"
#include "toolkit/run/messages.h"
#include "toolkit/run/out_of_memory.h"
#include "toolkit/train/model_family.h"
#include "toolkit/train/peak_flops.h"

namespace dtk {
namespace {

constexpr char report_name[] = "report.html";
constexpr uint64_t max_picture_bytes = uint64_t{2} << 30;  // as fits_png() lets a grid become
constexpr size_t max_grids = 12;  // in a report: the first, the last, and some between

std::optional<double> peak_flops(const RunConfig& config, const RunFacts& facts) {
  if (config.log.peak_tflops) return *config.log.peak_tflops * 1e12;
  return peak_flops_of(facts.device_name);
}

// A planned run encodes nothing, but says before the training what would stop it later.
std::string png_of(const UnpaintedImage& image, const FileSystem& files, const std::string& size_keys) {
  if (files.keeps_content()) return encode_png(image.paint());
  const ImageSize& size = image.size;
  if (fits_png(size)) return "";
  throw ConfigError(
      fmt::format("the sample grid would have {} x {} pixels, more than a PNG file is written with; lower {}",
                  size.height, size.width, size_keys));
}

void add_refused(RunLog::Fields& fields, const policies::RefusedAllocation& refused) {
  fields.insert(fields.end(), {{"bytes", refused.bytes},
                               {"asked_by", refused.asked_by},
                               {"phase", refused.phase},
                               {"module_path", refused.module_path},
                               {"alive_bytes", refused.live.bytes}});
}

}  // namespace

RunRecord::RunRecord(const RunConfig& config, const RunFacts& facts, const RunWorld& world,
                     std::optional<Logged> begin, int64_t step)
    : config_(config),
      facts_(facts),
      model_(facts_of(config)),
      files_(world.files),
      clock_(world.clock),
      folder_(config.train.out),
      peak_flops_(peak_flops(config, facts)),
      history_(files_.exists(folder_ / log_name) ? files_.read(folder_ / log_name, max_log_bytes) : ""),
      log_(files_, folder_ / log_name),
      last_step_(step) {
  if (begin) log_start(*begin, step);
  if (config_.log.tensorboard) {
    events_.emplace(files_, folder_ / "tensorboard", clock_.unix_seconds(), step + 1);
  }
}

void RunRecord::log(Logged event, const RunLog::Fields& fields) {
  history_.add(log_.write(event, fields));
}

void RunRecord::log_start(Logged begin, int64_t step) {
  RunLog::Fields fields = {
      {"step", step},          {"device", facts_.device},         {"threads", facts_.threads},
      {"ranks", facts_.ranks}, {"parameters", facts_.parameters}, {"tokens_per_image", model_.tokens},
      {"data", facts_.data},   {"samples", facts_.samples},       {"held_out", facts_.held_out}};
  if (facts_.flops_per_sample > 0) fields.emplace_back("flops_per_image", facts_.flops_per_sample);
  if (facts_.remarks.synthetic) fields.emplace_back("synthetic", int64_t{1});
  if (facts_.remarks.skipped > 0) {
    fields.emplace_back("skipped", facts_.remarks.skipped);
    fields.emplace_back("skipped_first", listed(facts_.remarks.reasons, "; ", "; "));
  }
  if (peak_flops_) fields.emplace_back("peak_flops", *peak_flops_);
  std::vector<std::string> free, telling;
  for (const ConfigChange& change : facts_.changes)
    (change.changes_result ? telling : free).push_back(change.text);
  if (!free.empty()) fields.emplace_back("changes", listed(free, "; ", "; "));
  if (!telling.empty()) fields.emplace_back("changes_of_result", listed(telling, "; ", "; "));
  fields.emplace_back("time", clock_.unix_seconds());
  log(begin, fields);
}

std::optional<double> RunRecord::mfu(double images_per_second) const {
  if (!peak_flops_ || facts_.flops_per_sample == 0) return std::nullopt;
  return images_per_second * facts_.flops_per_sample / *peak_flops_;
}

void RunRecord::step(const LoggedStep& record, double wait_seconds, std::optional<int64_t> peak_bytes) {
  const auto steps = static_cast<double>(std::max<int64_t>(1, record.step - last_step_));
  const double wait_per_step = (wait_seconds - last_wait_) / steps;
  RunLog::Fields fields = {{"step", record.step},
                           {"loss", record.loss},
                           {"lr", record.learning_rate},
                           {"gradient_norm", record.gradient_norm},
                           {"images_per_second", record.images_per_second},
                           {"seconds", record.seconds},
                           {"wait_seconds", wait_seconds},
                           {"wait_per_step", wait_per_step}};
  EventFile::Scalars scalars = {{"train/loss", record.loss},
                                {"train/learning_rate", record.learning_rate},
                                {"train/gradient_norm", record.gradient_norm},
                                {"speed/images_per_second", record.images_per_second},
                                {"speed/wait_seconds_per_step", wait_per_step}};
  if (peak_bytes) {
    fields.emplace_back("peak_bytes", *peak_bytes);
    scalars.emplace_back("memory/peak_bytes", static_cast<double>(*peak_bytes));
  }
  if (record.process_bytes) fields.emplace_back("process_bytes", *record.process_bytes);
  if (record.counted_bytes) fields.emplace_back("counted_bytes", *record.counted_bytes);
  if (const auto used = mfu(record.images_per_second)) {
    fields.emplace_back("mfu", *used);
    scalars.emplace_back("speed/mfu", *used);
  }
  log(Logged::step, fields);
  if (events_) events_->scalars(record.step, clock_.unix_seconds(), scalars);
  last_step_ = record.step;
  last_wait_ = wait_seconds;
}

void RunRecord::slow_step(int64_t step, int64_t steps, const StepTime& time, double median_seconds) {
  log(Logged::slow_step, {{"step", step},
                          {"steps", steps},
                          {"seconds", time.seconds},
                          {"median_seconds", median_seconds},
                          {"data_seconds", time.data},
                          {"device_seconds", time.device},
                          {"disk_seconds", time.disk}});
}

void RunRecord::memory_grows(int64_t step, const MemoryGrowth::Growth& growth) {
  log(Logged::memory_grows, {{"step", step}, {"bytes", growth.bytes}, {"steps", growth.steps}});
}

void RunRecord::skipped(int64_t step, const std::string& samples) {
  log(Logged::skipped, {{"step", step}, {"samples", samples}});
}

void RunRecord::validation(int64_t step, const Validated& validated) {
  RunLog::Fields fields = {{"step", step}, {"loss", validated.loss}};
  EventFile::Scalars scalars = {{"validation/loss", validated.loss}};
  for (const Score& score : validated.scores) {
    fields.emplace_back(score.name, score.value);
    scalars.emplace_back("validation/" + score.name, score.value);
  }
  log(Logged::validate, fields);
  if (events_) events_->scalars(step, clock_.unix_seconds(), scalars);
}

void RunRecord::checkpoint(int64_t step, const std::filesystem::path& path,
                           const std::optional<MemoryReport>& memory) {
  log(Logged::checkpoint, {{"step", step}, {"path", path.string()}});
  state_ = "training, at the checkpoint of step " + std::to_string(step);
  write_report(memory);
}

std::filesystem::path RunRecord::samples_path(int64_t step) const {
  return folder_ / "samples" / fmt::format("step-{:08}{}", step, model_.pictures ? ".png" : ".safetensors");
}

void RunRecord::prepare_samples() {
  files_.create_directories(folder_ / "samples");
  files_.sync_directory(folder_);
}

std::filesystem::path RunRecord::samples(int64_t step, const std::vector<NamedTensor>& samples) {
  const std::filesystem::path path = samples_path(step);
  if (model_.pictures) {
    const UnpaintedImage image = family_of(config_).picture_of(config_, samples, facts_.class_names);
    const std::string png = png_of(image, files_, model_.size_keys);
    write_file_atomically(files_, path, png);
    if (events_) {
      const auto [channels, height, width] = image.size;
      events_->image(step, clock_.unix_seconds(), "samples", height, width, channels, png);
    }
  } else {
    write_file_atomically(files_, path, [&](WritableFile& file) { write_safetensors(file, samples); });
  }
  log(Logged::sample, {{"step", step}, {"path", path.string()}});
  return path;
}

void RunRecord::end(bool stopped, const RunResult& result) {
  state_ = std::string(stopped ? "stopped" : "finished") + " at step " + std::to_string(result.step);
  this->memory(result.memory);
  log(stopped ? Logged::stopped : Logged::end, {{"step", result.step},
                                                {"seconds", result.seconds},
                                                {"run_seconds", result.run_seconds},
                                                {"images_per_second", result.images_per_second}});
}

void RunRecord::escalated(int64_t step, const Escalation& escalation, const c10::OutOfMemoryError& error) {
  RunLog::Fields fields = {{"step", step}, {"set", escalation.chosen}};
  if (const auto planned = planned_bytes(escalation.plan)) fields.emplace_back("planned_bytes", *planned);
  if (escalation.room) fields.emplace_back("room_bytes", *escalation.room);
  if (const auto refused = refused_by(error)) add_refused(fields, *refused);
  log(Logged::escalated, fields);
}

void RunRecord::out_of_memory(int64_t step, const std::optional<MemoryReport>& memory) {
  RunLog::Fields fields = {{"step", step}};
  state_ = "out of memory after step " + std::to_string(step);
  if (memory && memory->refused) {
    const policies::RefusedAllocation& refused = *memory->refused;
    add_refused(fields, refused);
    state_ +=
        ", in phase " + refused.phase + (refused.module_path.empty() ? "" : " at " + refused.module_path);
  }
  log(Logged::out_of_memory, fields);
  this->memory(memory);
}

void RunRecord::failed(int64_t step, const std::string& reason, const std::optional<MemoryReport>& memory) {
  state_ = fmt::format("failed after step {}: {}", step, reason);
  log(Logged::failed, {{"step", step}, {"reason", reason}});
  this->memory(memory);
}

void RunRecord::memory(const std::optional<MemoryReport>& memory) {
  if (memory) {
    MemoryReport with_history = *memory;
    with_history.escalations = history_.escalations();
    write_file_atomically(files_, folder_ / "memory.json", json_text(memory_json(with_history)));
  }
  write_report(memory);
}

std::filesystem::path RunRecord::report_path() const {
  return config_.log.report ? folder_ / report_name : std::filesystem::path();
}

void RunRecord::write_report(const std::optional<MemoryReport>& memory) {
  if (!config_.log.report) return;
  RunReport report;
  report.folder = folder_.lexically_normal().string();
  report.state = state_;
  report.model = model_text(model_, facts_.parameters);
  report.data = facts_.data;
  report.sample_name = model_.sample_name;
  if (!facts_.class_names.empty()) report.data_note = "Classes: " + classes_text(facts_.class_names) + ".";
  if (!facts_.unseen_classes.empty())
    report.data_note +=
        (report.data_note.empty() ? "" : " ") + ("No samples: " + facts_.unseen_classes) + ".";
  report.device =
      fmt::format("{}{}, {}{}", facts_.device, facts_.device_name.empty() ? "" : ", " + facts_.device_name,
                  facts_.ranks > 1 ? count_text(facts_.ranks, "rank") + ", each " : "",
                  count_text(facts_.threads, "CPU thread"));
  report.config = facts_.config;
  report.history = history_;
  report.memory = memory;
  report.planned = facts_.planned;
  report.not_planned = facts_.not_planned;
  report.peak_flops = peak_flops_;
  report.clip = config_.optimizer.clip;
  if (report.memory && report.memory->policies.empty()) {
    for (const policies::PolicyReport& policy : facts_.policies) {
      report.memory->policies.push_back({policy, std::nullopt, ""});
    }
  }
  add_samples(report);
  write_file_atomically(files_, report_path(), report_html(report));
}

// Evenly over the run; what was removed since is left out.
void RunRecord::add_samples(RunReport& report) const {
  std::vector<int64_t> there;
  for (const LoggedSamples& samples : history_.samples()) {
    if (!there.empty() && there.back() == samples.step) continue;
    if (files_.exists(samples_path(samples.step))) there.push_back(samples.step);
  }
  if (there.empty()) return;
  if (!model_.pictures) {
    report.samples_note =
        fmt::format("The samples are {}, not images: {} in {}", model_.tensors,
                    count_text(static_cast<int64_t>(there.size()), "file"), (folder_ / "samples").string());
    return;
  }
  const size_t shown = std::min(max_grids, there.size());
  for (size_t i = 0; i < shown; ++i) {
    const int64_t step = there[shown == 1 ? 0 : i * (there.size() - 1) / (shown - 1)];
    const std::filesystem::path path = samples_path(step);
    std::string png = files_.read(path, max_picture_bytes);
    try {
      const int64_t width = encoded_image_size(png, path.string()).width;
      report.samples.push_back({step, std::move(png), width});
    } catch (const DataError&) {  // another program wrote over it
    }
  }
  report.samples_note = model_.drawn_note;
  if (shown < there.size()) {
    report.samples_note +=
        fmt::format(" {} of {} grids; all are in {}.", shown, there.size(), (folder_ / "samples").string());
  }
}

}  // namespace dtk
