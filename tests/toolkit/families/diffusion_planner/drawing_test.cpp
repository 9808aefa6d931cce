// dit-sample for the driving model: what it refuses, with its exact message, and what it writes.
#include "toolkit/families/diffusion_planner/drawing.h"

#include <ATen/ATen.h>

#include <nlohmann/json.hpp>

#include "support/catch.h"
#include "support/error_text.h"
#include "support/files/memory_file_system.h"
#include "support/files/safetensors_file.h"
#include "support/files/temporary_folder.h"
#include "toolkit/config/config_io.h"
#include "toolkit/core/errors.h"
#include "toolkit/families/diffusion_planner/frame_source.h"
#include "toolkit/families/diffusion_planner/options.h"
#include "toolkit/run/messages.h"
#include "toolkit/train/model_family.h"

namespace dtk::diffusion_planner {
namespace {

using test::error_text;

const std::string folder = std::string(DTK_FIXTURES) + "/diffusion_planner/frames";

SampleSource source_of(const std::string& model) {
  SampleSource source;
  source.config.train.model = model;
  return source;
}

/// A model that reads the frames of the fixture.
SampleSource model() {
  SampleSource source = source_of("diffusion_planner");
  models::DiffusionPlannerOptions& sizes = options_of(source.config).model;
  sizes.agent_num = sizes.predicted_neighbor_num = 8;
  sizes.static_objects_num = 3;
  sizes.lane_num = 6;
  sizes.route_num = 3;
  sizes.polygon_num = 2;
  sizes.line_string_num = 4;
  return source;
}

std::unique_ptr<Drawing> drawing_of(FileSystem& files, const std::string& list, const std::string& out) {
  SampleArguments arguments;
  arguments.own["frames"] = list;
  arguments.out = out;
  return draw_frames(files, model(), arguments);
}

const TensorDrawing& written(const Drawing& drawing) {
  return dynamic_cast<const TensorDrawing&>(drawing);
}

const Frames& frames_of(const Drawing& drawing) {
  return dynamic_cast<const FrameSource&>(*drawing.data().all).frames();
}

}  // namespace

TEST_CASE("dit-sample: classes are for images, frames for the driving model") {
  SampleArguments classes, frames;
  classes.own["classes"] = std::string("0");
  frames.own["frames"] = "list.json";
  const auto check = [](const std::string& family, const SampleArguments& arguments) {
    check_arguments(family_of(source_of(family).config), arguments, "runs/mine");
  };
  check("dit", classes);
  check("diffusion_planner", frames);
  CHECK(error_text<ConfigError>([&] { check("diffusion_planner", classes); }) ==
        "--classes 0: the model of runs/mine is a driving model, which has none; draw the trajectories of "
        "frames with --frames LIST --out FOLDER");
  CHECK(error_text<ConfigError>([&] { check("dit", frames); }) ==
        "--frames list.json: the model of runs/mine is no driving model; draw samples of its classes with "
        "--classes LIST --out FILE");
}

TEST_CASE("dit-sample: frames are those of the model, and listed by paths that are read again") {
  test::MemoryFileSystem files;
  const auto drawing = drawing_of(files, folder + "/list.json", "/drawn");
  CHECK(data_lines(drawing->data(), {}) ==
        std::vector<std::string>{"data: 3 frames, 8 neighbours, 6 lanes (list.json)"});
  CHECK(drawing->counted() == "3 frames");
  written(*drawing).write(files, {});
  const test::TemporaryFolder other;
  const std::string list = other.write("frames.json", files.read("/drawn/frames.json")).string();
  const auto again = drawing_of(files, list, "/again");
  const Frames &frames = frames_of(*drawing), &same = frames_of(*again);
  REQUIRE(same.size() == frames.size());
  for (int64_t i = 0; i < frames.size(); ++i) {
    CHECK(std::filesystem::equivalent(same.path(i), frames.path(i)));
  }
  CHECK(error_text<DataError>([&] { drawing_of(files, "gone", "/again"); }) ==
        "--frames: gone: no such file or folder; give the folder of the frames, or a JSON list of them");

  const test::TemporaryFolder odd;
  std::filesystem::copy(folder + "/frame_a.npz", odd / "a\xff.npz");
  CHECK(error_text<DataError>([&] {
          drawing_of(files, odd.path().string(), "/again");
        }).ends_with(" is not UTF-8, and frames.json can not hold it; rename the file or its folders"));
}

TEST_CASE("dit-sample: the folder of trajectories is a new or another one") {
  test::MemoryFileSystem files;
  const auto drawing_to = [&](const std::string& out) {
    return drawing_of(files, folder + "/list.json", out);
  };
  drawing_to("/new/folder/");
  files.create_directories("/there");
  files.create("/there/notes.txt");
  drawing_to("/there");
  const std::vector<NamedTensor> drawn = {{"trajectories", at::rand({2, 3, 4, 4})},
                                          {"ego_future", at::rand({2, 4, 4})}};
  written(*drawing_to("/there/a/b")).write(files, drawn);
  CHECK(files.exists("/there/a/b/frames.json"));
  const test::SafetensorsFile file = test::read_safetensors(files, "/there/a/b/trajectories.safetensors");
  REQUIRE(file.tensors.size() == 2);
  for (const NamedTensor& one : file.tensors) {
    CHECK(one.tensor.equal(one.name == "trajectories" ? drawn[0].tensor : drawn[1].tensor));
  }
  const auto refusal = [&](const std::string& out) {
    return error_text<ConfigError>([&] { drawing_to(out); });
  };
  CHECK(refusal("/there/a/b/") ==
        "--out /there/a/b/: holds trajectories.safetensors already; name another folder");
  files.remove_all("/there/a/b/trajectories.safetensors");
  CHECK(refusal("/there/a/b") == "--out /there/a/b: holds frames.json already; name another folder");
  for (const std::string one : {"/there/drawn.png", "drawn.npy", "/drawn.safetensors"}) {
    CHECK(refusal(one) == "--out " + one +
                              ": is a file's name, and trajectories are written to a folder, with the list "
                              "of their frames; name a folder");
  }
  files.create_directories("/old.png");
  CHECK_NOTHROW(drawing_to("/old.png"));
  CHECK_NOTHROW(drawing_to("/there/run.2"));
  CHECK(refusal("/there/notes.txt") ==
        "--out /there/notes.txt: /there/notes.txt is not a folder; name another one");
  CHECK(refusal("/there/notes.txt/drawn") ==
        "--out /there/notes.txt/drawn: /there/notes.txt is not a folder; name another one");
}

}  // namespace dtk::diffusion_planner
