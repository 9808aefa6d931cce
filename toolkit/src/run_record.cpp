#include "run_record.h"

#include <dtk/toolkit/image.h>

#include <cstdio>

namespace dtk {
namespace {

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += (text.empty() ? "" : "; ") + line;
  return text;
}

}  // namespace

std::string step_name(int64_t step) {
  char text[32];
  std::snprintf(text, sizeof text, "step-%08lld", static_cast<long long>(step));
  return text;
}

RunRecord::RunRecord(FileSystem& files, const std::filesystem::path& folder)
    : files_(files), folder_(folder), log_(files, folder / "log.jsonl") {}

void RunRecord::start(bool resumed, const Start& start) {
  RunLog::Fields fields = {{"step", start.step},        {"device", start.device},
                           {"threads", start.threads},  {"parameters", start.parameters},
                           {"data", start.data},        {"samples", start.samples},
                           {"held_out", start.held_out}};
  if (start.remarks.synthetic) fields.emplace_back("synthetic", int64_t{1});
  if (start.remarks.skipped > 0) {
    fields.emplace_back("skipped", start.remarks.skipped);
    fields.emplace_back("skipped_first", joined(start.remarks.reasons));
  }
  log_.write(resumed ? "resume" : "start", fields);
}

void RunRecord::validation(int64_t step, double loss) {
  log_.write("validate", {{"step", step}, {"loss", loss}});
}

void RunRecord::step(const StepRecord& record) {
  RunLog::Fields fields = {{"step", record.step},
                           {"loss", record.loss},
                           {"lr", record.learning_rate},
                           {"gradient_norm", record.gradient_norm},
                           {"images_per_second", record.images_per_second},
                           {"seconds", record.seconds},
                           {"wait_seconds", record.wait_seconds}};
  if (record.peak_bytes) fields.emplace_back("peak_bytes", *record.peak_bytes);
  log_.write("step", fields);
}

void RunRecord::checkpoint(int64_t step, const std::filesystem::path& path) {
  log_.write("checkpoint", {{"step", step}, {"path", path.string()}});
}

std::filesystem::path RunRecord::samples_path(int64_t step) const {
  return folder_ / "samples" / (step_name(step) + ".png");
}

void RunRecord::prepare_samples() {
  files_.create_directories(folder_ / "samples");
  files_.sync_directory(folder_);
}

std::filesystem::path RunRecord::samples(int64_t step, const at::Tensor& samples, int64_t columns) {
  const std::filesystem::path path = samples_path(step);
  write_file_atomically(files_, path, encode_png(image_grid(samples, columns, /*padding=*/2, /*scale=*/2)));
  return path;
}

void RunRecord::end(bool stopped, int64_t step, double seconds, double images_per_second) {
  log_.write(stopped ? "stopped" : "end",
             {{"step", step}, {"seconds", seconds}, {"images_per_second", images_per_second}});
}

void RunRecord::memory(const MemoryReport& report) const {
  write_file_atomically(files_, folder_ / "memory.json", memory_json(report));
}

}  // namespace dtk
