// draw-scenes: frames of the driving model from drawn worlds, for dit-train, for machines without
// recordings of their own. The same arguments draw the same frames.
#include <array>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <string>

#include "diffusion_planner/frame_writer.h"
#include "diffusion_planner/frames.h"
#include "diffusion_planner/scene_image.h"
#include "diffusion_planner/scene_set.h"
#include "support/arguments.h"
#include "toolkit/core/errors.h"
#include "toolkit/data/image_folder.h"
#include "toolkit/io/file_system.h"

namespace {

namespace fs = std::filesystem;
using Sizes = dtk::diffusion_planner::FrameSizes;

struct SizeOption {
  const char* name;
  int64_t Sizes::*size;
};
constexpr std::array<SizeOption, 9> size_options = {{{"past", &Sizes::past},
                                                     {"future", &Sizes::future},
                                                     {"neighbors", &Sizes::neighbors},
                                                     {"predicted-neighbors", &Sizes::predicted_neighbors},
                                                     {"static-objects", &Sizes::static_objects},
                                                     {"lanes", &Sizes::lanes},
                                                     {"route-lanes", &Sizes::route_lanes},
                                                     {"polygons", &Sizes::polygons},
                                                     {"line-strings", &Sizes::line_strings}}};

struct Arguments {
  fs::path out;
  scenes::SceneSet set;
  int64_t frames = 0, held_out = 0, pictures = 0;
};

std::string number_name(int64_t number, const char* ending) {
  char name[40];
  std::snprintf(name, sizeof name, "%06lld%s", static_cast<long long>(number), ending);
  return name;
}

/// Writes `count` frames to out/`name`, their list to out/`name`.json, and pictures of the first ones.
void draw_part(const fs::path& out, const std::string& name, const scenes::SceneSet& set, int64_t count,
               int64_t pictures) {
  dtk::FileSystem& files = dtk::posix_file_system();
  files.create_directories(out / name);
  dtk::write_file_atomically(files, out / name / dtk::synthetic_marker,
                             "draw-scenes made up these frames; nobody drove there.\n");
  if (pictures > 0) files.create_directories(out / "pictures");
  std::string list;
  scenes::for_each_frame(set, count, [&](const dtk::diffusion_planner::FrameBatch& frame, int64_t number) {
    const std::string file = name + "/" + number_name(number, ".npz");
    scenes::write_frame(files, out / file, frame, 0, {.layout = set.layout});
    list += (list.empty() ? "[\"" : ",\n \"") + file + "\"";
    if (number >= pictures) return;
    dtk::write_file_atomically(files, out / "pictures" / number_name(number, ".png"),
                               dtk::encode_png(scenes::draw_scene(frame, 0)));
  });
  dtk::write_file_atomically(files, out / (name + ".json"), list + "]\n");
}

/// Draws under a temporary name first, so that the folder is complete whenever it exists.
void draw_all(const Arguments& given) {
  const fs::path out = dtk::without_slash(given.out);
  if (fs::exists(out)) {
    throw dtk::ConfigError(out.string() + ": already exists; remove it or choose another folder");
  }
  const fs::path partial = out.string() + ".partial";
  fs::remove_all(partial);
  scenes::SceneSet held_out = given.set;
  held_out.part = scenes::Part::held_out;
  draw_part(partial, "train", given.set, given.frames, 0);
  draw_part(partial, "held_out", held_out, given.held_out, given.pictures);
  fs::rename(partial, out);
  std::cout << "drew " << given.frames << " frames and " << given.held_out
            << " held-out ones of other worlds in " << out.string() << " (train.json, held_out.json)\n";
}

int64_t in_range(const cxxopts::ParseResult& given, const std::string& name, int64_t low, int64_t high) {
  const auto value = given[name].as<int64_t>();
  if (value >= low && value <= high) return value;
  throw dtk::ConfigError("--" + name + ": " + std::to_string(value) +
                         " is out of range; allowed: " + std::to_string(low) + " to " + std::to_string(high));
}

cxxopts::Options make_options() {
  cxxopts::Options options("draw-scenes",
                           "Makes up worlds with traffic, and frames of the driving model in them.");
  auto add = options.add_options();
  const auto number = [](const char* standard) { return cxxopts::value<int64_t>()->default_value(standard); };
  add("out", "folder to create", cxxopts::value<std::string>());
  add("frames", "frames to train with", number("300"), "N");
  add("held-out", "frames of other worlds", number("60"), "N");
  add("pictures", "draw the first held-out frames as PNG, too", number("8"), "N");
  add("seed", "of all worlds", number("1"), "S");
  add("preset", "sizes: reduced, H, M or UP", cxxopts::value<std::string>()->default_value("reduced"),
      "NAME");
  for (const SizeOption& one : size_options) {
    add(one.name, "other than the preset's", cxxopts::value<int64_t>(), "N");
  }
  add("h,help", "this text");
  return options;
}

Arguments arguments_of(const cxxopts::ParseResult& given) {
  constexpr int64_t most = 10'000'000;
  Arguments arguments;
  if (given.count("out") == 0) throw dtk::ConfigError("--out is missing: the folder to create");
  arguments.out = given["out"].as<std::string>();
  const auto preset = given["preset"].as<std::string>();
  const auto set = scenes::scene_set(preset);
  if (!set) throw dtk::ConfigError("--preset: \"" + preset + "\" is none; allowed: reduced, H, M and UP");
  arguments.set = *set;
  arguments.set.seed = static_cast<uint64_t>(in_range(given, "seed", 0, INT64_MAX));
  arguments.frames = in_range(given, "frames", 1, most);
  arguments.held_out = in_range(given, "held-out", 1, most);
  arguments.pictures = in_range(given, "pictures", 0, arguments.held_out);
  for (const SizeOption& one : size_options) {
    if (given.count(one.name) > 0) arguments.set.sizes.*one.size = in_range(given, one.name, 1, 4096);
  }
  Sizes& sizes = arguments.set.sizes;
  if (given.count("predicted-neighbors") == 0) {
    sizes.predicted_neighbors = std::min(sizes.predicted_neighbors, sizes.neighbors);
  }
  if (sizes.predicted_neighbors > sizes.neighbors) {
    throw dtk::ConfigError("--predicted-neighbors: " + std::to_string(sizes.predicted_neighbors) + " of " +
                           std::to_string(sizes.neighbors) + " neighbours; give as many at most");
  }
  if (const std::string wrong = scenes::wrong_sizes(sizes); !wrong.empty()) throw dtk::ConfigError(wrong);
  return arguments;
}

void run(int argc, char** argv) {
  const cxxopts::Options options = make_options();
  const cxxopts::ParseResult given = examples::parsed(options, argc, argv);
  if (given.count("help") > 0) {
    std::cout << options.help();
  } else {
    draw_all(arguments_of(given));
  }
}

}  // namespace

int main(int argc, char** argv) {
  return examples::exit_code_of("draw-scenes", [&] { run(argc, argv); });
}
