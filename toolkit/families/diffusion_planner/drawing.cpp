#include "toolkit/families/diffusion_planner/drawing.h"

#include <filesystem>

#include "toolkit/config/keys.h"
#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/core/numbers.h"
#include "toolkit/families/diffusion_planner/frame_source.h"
#include "toolkit/families/diffusion_planner/trainable.h"
#include "toolkit/io/json.h"
#include "toolkit/io/safetensors.h"
#include "toolkit/train/trained_model.h"

namespace dtk::diffusion_planner {
namespace {

namespace fs = std::filesystem;

constexpr const char *trajectories_file = "trajectories.safetensors", *list_file = "frames.json";

std::shared_ptr<const FrameSource> opened_frames(const SampleSource& source,
                                                 const SampleArguments& arguments) try {
  return std::make_shared<FrameSource>(arguments.given<std::string>("frames").value(),
                                       frame_options_of(source.config));
} catch (const DataError& error) {
  throw DataError(std::string("--frames: ") + error.what());
}

// Their absolute paths.
std::string list_of(const FrameSource& source) {
  const Frames& frames = source.frames();
  std::string list;
  for (int64_t i = 0; i < frames.size(); ++i) {
    const std::string path = fs::absolute(frames.path(i)).lexically_normal().string();
    try {
      list += (list.empty() ? "[" : ",\n ") + json_line(nlohmann::json(path), NotUtf8::refused);
    } catch (const nlohmann::json::type_error&) {
      throw DataError(fmt::format(
          "--frames: the path {} is not UTF-8, and {} can not hold it; rename the file or its folders",
          in_quotes(path), list_file));
    }
  }
  return list + "]\n";
}

void check_out(FileSystem& files, const std::string& out) {
  for (const char* const file : {trajectories_file, list_file}) {
    if (files.exists(fs::path(out) / file))
      throw ConfigError(fmt::format("--out {}: holds {} already; name another folder", out, file));
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
  throw ConfigError(fmt::format("--out {}: {} is not a folder; name another one", out, there.string()));
}

class DrawnTrajectories final : public TensorDrawing {
 public:
  DrawnTrajectories(FileSystem& files, const SampleSource& source, const SampleArguments& arguments)
      : source_(source), arguments_(arguments) {
    check_out(files, arguments.out);
    frames_ = opened_frames(source, arguments);
    list_ = list_of(*frames_);
  }
  RunData data() const override {
    return {.all = frames_, .split = {frames_, nullptr}, .classes = {}, .remarks = frames_->remarks()};
  }
  std::string counted() const override { return count_text(frames_->size(), "frame"); }
  std::vector<NamedTensor> draw(c10::Device device, const KeepGoing& keep_going) const override {
    RunConfig config = source_.config;
    config.sample.steps = arguments_.given<int64_t>("steps").value_or(config.sample.steps);
    return with_trained<TrainableDiffusionPlanner>(
        source_, config, device, [&](const TrainableDiffusionPlanner& model) {
          return model.trajectories(*frames_, frames_->size(), keep_going);
        });
  }
  void write(FileSystem& files, const std::vector<NamedTensor>& samples) const override {
    const fs::path folder = arguments_.out;
    files.create_directories(folder);
    write_file_atomically(files, folder / trajectories_file,
                          [&](WritableFile& file) { write_safetensors(file, samples); });
    write_file_atomically(files, folder / list_file, list_);
  }

 private:
  const SampleSource source_;
  const SampleArguments arguments_;
  std::shared_ptr<const FrameSource> frames_;
  std::string list_;
};

}  // namespace

SampleUsage frames_usage() {
  return {.arguments = {{"frames", std::string()}, {"steps", int64_t{}, find_key("sample.steps")->allowed}},
          .value = "LIST",
          .example = "held_out.json",
          .purpose = "for the driving model",
          .samples = "the trajectories of frames",
          .model = "driving model",
          .none_of_others = ", whose trajectories are drawn without classes, guidance or noise",
          .out = "FOLDER",
          .example_out = "drawn",
          .help = R"(  --frames LIST         a driving model's frames: folder or list; --out FOLDER
)"};
}

std::unique_ptr<Drawing> draw_frames(FileSystem& files, const SampleSource& source,
                                     const SampleArguments& arguments) {
  return std::make_unique<DrawnTrajectories>(files, source, arguments);
}

}  // namespace dtk::diffusion_planner
