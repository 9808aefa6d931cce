#include "toolkit/commands/sample_frames.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "toolkit/commands/trained_model.h"
#include "toolkit/core/errors.h"
#include "toolkit/families/diffusion_planner/data.h"
#include "toolkit/families/diffusion_planner/trainable.h"
#include "toolkit/io/json.h"
#include "toolkit/io/safetensors.h"
#include "toolkit/run/messages.h"

namespace dtk {
namespace {

namespace fs = std::filesystem;

constexpr const char *trajectories_file = "trajectories.safetensors", *list_file = "frames.json";

}  // namespace

void check_classes_or_frames(const SampleSource& source, const SampleArguments& arguments) {
  if (source.config.drives() != arguments.frames.empty()) return;
  const std::string& given = arguments.checkpoint.empty() ? arguments.weights : arguments.checkpoint;
  if (source.config.drives()) {
    throw ConfigError("--classes: the model of " + given +
                      " is a driving planner, which has none; draw the trajectories of frames with --frames "
                      "LIST --out FOLDER");
  }
  throw ConfigError("--frames " + arguments.frames + ": the model of " + given +
                    " is no driving planner; draw samples of its classes with --classes LIST --out FILE");
}

std::shared_ptr<const diffusion_planner::FrameSource> open_sample_frames(
    const SampleSource& source, const SampleArguments& arguments) try {
  return std::make_shared<diffusion_planner::FrameSource>(arguments.frames,
                                                          diffusion_planner::frame_options_of(source.config));
} catch (const DataError& error) {
  throw DataError(std::string("--frames: ") + error.what());
}

std::vector<std::string> sample_frames_lines(
    const std::shared_ptr<const diffusion_planner::FrameSource>& frames) {
  return data_lines({.all = frames, .split = {frames, nullptr}, .classes = {}, .remarks = frames->remarks()});
}

std::string sample_frames_list(const diffusion_planner::FrameSource& source) {
  const diffusion_planner::Frames& frames = source.frames();
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
                                           const diffusion_planner::FrameSource& frames, c10::Device device,
                                           const KeepGoing& keep_going) {
  RunConfig config = source.config;
  if (arguments.steps) config.sample.steps = *arguments.steps;
  return with_trained<diffusion_planner::TrainableDiffusionPlanner>(
      source, config, device, [&](const diffusion_planner::TrainableDiffusionPlanner& model) {
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

}  // namespace dtk
