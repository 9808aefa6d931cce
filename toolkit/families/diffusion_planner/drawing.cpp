#include "toolkit/families/diffusion_planner/drawing.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "toolkit/config/keys.h"
#include "toolkit/core/errors.h"
#include "toolkit/families/diffusion_planner/frame_source.h"
#include "toolkit/families/diffusion_planner/trainable.h"
#include "toolkit/io/json.h"
#include "toolkit/io/safetensors.h"
#include "toolkit/train/trained_model.h"

namespace dtk::diffusion_planner {
namespace {

namespace fs = std::filesystem;

constexpr const char *trajectories_file = "trajectories.safetensors", *list_file = "frames.json";

}  // namespace

SampleUsage frames_usage() {
  return {.arguments = {{"frames", std::string()}, {"steps", int64_t{}, find_key("sample.steps")->allowed}},
          .value = "LIST",
          .example = "held_out.json",
          .purpose = "for the driving planner",
          .samples = "the trajectories of frames",
          .model = "driving planner",
          .none_of_others = ", whose trajectories are drawn without classes, guidance or noise",
          .out = "FOLDER",
          .example_out = "drawn",
          .help = R"(  --frames LIST         for a driving planner: folder or JSON list of its frames
  --out FOLDER          for trajectories.safetensors, and for frames.json
)"};
}

std::shared_ptr<const FrameSource> open_sample_frames(const SampleSource& source,
                                                      const SampleArguments& arguments) try {
  return std::make_shared<FrameSource>(arguments.given<std::string>("frames").value(),
                                       frame_options_of(source.config));
} catch (const DataError& error) {
  throw DataError(std::string("--frames: ") + error.what());
}

RunData drawn_from(const std::shared_ptr<const FrameSource>& frames) {
  return {.all = frames, .split = {frames, nullptr}, .classes = {}, .remarks = frames->remarks()};
}

std::string sample_frames_list(const FrameSource& source) {
  const Frames& frames = source.frames();
  std::string list;
  for (int64_t i = 0; i < frames.size(); ++i) {
    const std::string path = fs::absolute(frames.path(i)).lexically_normal().string();
    try {
      list += (list.empty() ? "[" : ",\n ") + nlohmann::json(path).dump();
    } catch (const nlohmann::json::type_error&) {
      throw DataError("--frames: the path " + in_quotes(path) + " is not UTF-8, and " + list_file +
                      " can not hold it; rename the file or its folders");
    }
  }
  return list + "]\n";
}

void check_out_for_frames(FileSystem& files, const std::string& out) {
  for (const char* const file : {trajectories_file, list_file}) {
    if (files.exists(fs::path(out) / file))
      throw ConfigError("--out " + out + ": holds " + file + " already; name another folder");
  }
  const std::string ending = fs::path(out).extension().string();
  if ((ending == ".png" || ending == ".npy" || ending == ".safetensors") && !files.is_folder(out)) {
    throw ConfigError("--out " + out +
                      ": is a file's name, and trajectories are written to a folder, with the "
                      "list of their frames; name a folder");
  }
  fs::path there = without_slash(out);
  while (!files.exists(there) && parent_of(there) != there) there = parent_of(there);
  if (!files.exists(there) || files.is_folder(there)) return;
  throw ConfigError("--out " + out + ": " + there.string() + " is not a folder; name another one");
}

std::vector<NamedTensor> draw_trajectories(const SampleSource& source, const SampleArguments& arguments,
                                           const FrameSource& frames, c10::Device device,
                                           const KeepGoing& keep_going) {
  RunConfig config = source.config;
  config.sample.steps = arguments.given<int64_t>("steps").value_or(config.sample.steps);
  return with_trained<TrainableDiffusionPlanner>(
      source, config, device, [&](const TrainableDiffusionPlanner& model) {
        return model.trajectories(frames, frames.size(), keep_going);
      });
}

void write_trajectories(FileSystem& files, const std::string& out,
                        const std::vector<NamedTensor>& trajectories, const std::string& list) {
  const fs::path folder = out;
  files.create_directories(folder);
  write_file_atomically(files, folder / trajectories_file,
                        [&](WritableFile& file) { write_safetensors(file, trajectories); });
  write_file_atomically(files, folder / list_file, list);
}

namespace {

class DrawnTrajectories final : public Drawing {
 public:
  DrawnTrajectories(FileSystem& files, const SampleSource& source, const SampleArguments& arguments)
      : source_(source), arguments_(arguments) {
    check_out_for_frames(files, arguments.out);
    frames_ = open_sample_frames(source, arguments);
    list_ = sample_frames_list(*frames_);
  }
  RunData data() const override { return drawn_from(frames_); }
  std::string counted() const override { return count_of(frames_->size(), "frame"); }
  std::vector<NamedTensor> draw(c10::Device device, const KeepGoing& keep_going) const override {
    return draw_trajectories(source_, arguments_, *frames_, device, keep_going);
  }
  void write(FileSystem& files, const std::vector<NamedTensor>& samples) const override {
    write_trajectories(files, arguments_.out, samples, list_);
  }

 private:
  const SampleSource source_;
  const SampleArguments arguments_;
  std::shared_ptr<const FrameSource> frames_;
  std::string list_;
};

}  // namespace

std::unique_ptr<Drawing> draw_frames(FileSystem& files, const SampleSource& source,
                                     const SampleArguments& arguments) {
  return std::make_unique<DrawnTrajectories>(files, source, arguments);
}

}  // namespace dtk::diffusion_planner
