// show-trajectories: how far the trajectories that dit-sample drew are from what happened, beside a vehicle
// that keeps its velocity, and pictures of them.
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "diffusion_planner/frame_kind.h"
#include "diffusion_planner/path_error.h"
#include "diffusion_planner/scene_image.h"
#include "support/arguments.h"
#include "toolkit/core/errors.h"
#include "toolkit/data/image.h"
#include "toolkit/families/diffusion_planner/frames.h"
#include "toolkit/io/file_system.h"
#include "toolkit/io/safetensors.h"

namespace {

namespace fs = std::filesystem;

struct Arguments {
  std::string frames, trajectories;
  fs::path out;
  int64_t pictures = 0;
  bool require_better = false;
};

/// What dit-sample wrote: trajectories (N, P, T, 4), and the ego vehicle's true ones (N, T, 4).
struct Drawn {
  at::Tensor trajectories, ego_future;
};

at::Tensor tensor_of(const std::vector<dtk::StoredTensor>& tensors, const std::string& path,
                     const std::string& name, int64_t dimensions) {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const dtk::StoredTensor& one) { return one.name == name; });
  const std::string wanted = "; give a file that dit-sample --frames wrote";
  if (found == tensors.end()) {
    throw dtk::DataError("--trajectories " + path + ": has no tensor \"" + name + "\"" + wanted);
  }
  const at::Tensor tensor = found->read();
  if (tensor.scalar_type() != at::kFloat || tensor.dim() != dimensions || tensor.size(-1) != 4 ||
      tensor.numel() == 0) {
    throw dtk::DataError("--trajectories " + path + ": \"" + name + "\" are no poses" + wanted);
  }
  return tensor;
}

Drawn read_drawn(const std::string& path) {
  if (!fs::is_regular_file(path)) {
    throw dtk::ConfigError("--trajectories " + path +
                           ": is no file; give the trajectories.safetensors that dit-sample wrote");
  }
  const auto tensors = dtk::open_safetensors(dtk::posix_file_system(), path);
  Drawn drawn{tensor_of(tensors, path, "trajectories", 4), tensor_of(tensors, path, "ego_future", 3)};
  if (drawn.trajectories.size(0) == drawn.ego_future.size(0) &&
      drawn.trajectories.size(2) == drawn.ego_future.size(1)) {
    return drawn;
  }
  throw dtk::DataError("--trajectories " + path +
                       ": \"trajectories\" and \"ego_future\" are of different frames; give a file that "
                       "dit-sample --frames wrote");
}

dtk::diffusion_planner::Frames open_frames(const std::string& list) {
  const scenes::FrameKind kind =
      scenes::frame_kind(dtk::diffusion_planner::read_frame_list(list).frames.front());
  return {list, {.layout = kind.layout, .sizes = kind.sizes}};
}

[[noreturn]] void refuse_other_frames(const Arguments& given, const std::string& seen) {
  throw dtk::DataError("--frames " + given.frames + ": " + seen +
                       "; give the frames that the trajectories were drawn of, by frames.json beside " +
                       given.trajectories);
}

void check_same_frames(const Arguments& given, const Drawn& drawn,
                       const dtk::diffusion_planner::Frames& frames) {
  const auto text = [](int64_t number) { return std::to_string(number); };
  const int64_t count = drawn.trajectories.size(0), steps = drawn.trajectories.size(2);
  const dtk::diffusion_planner::FrameSizes& sizes = frames.options().sizes;
  if (frames.size() != count) {
    refuse_other_frames(given, text(frames.size()) + " frames, and " + text(count) + " have trajectories");
  }
  if (sizes.future != steps) {
    refuse_other_frames(given, text(sizes.future) + " steps of future, and trajectories have " + text(steps));
  }
  if (drawn.trajectories.size(1) > 1 + sizes.neighbors) {
    refuse_other_frames(given, text(sizes.neighbors) + " neighbours, and trajectories are there of " +
                                   text(drawn.trajectories.size(1) - 1));
  }
}

/// Trajectories (P, T, 4) of the ego vehicle and of those neighbours that are there.
at::Tensor of_those_there(const at::Tensor& trajectories, const dtk::diffusion_planner::FrameBatch& frame) {
  const at::Tensor& past = frame.neighbor_agents_past;
  std::vector<int64_t> there = {0};
  for (int64_t i = 1; i < trajectories.size(0); ++i) {
    const at::Tensor now = past.select(0, 0).select(0, i - 1).select(0, past.size(2) - 1);
    if (now.ne(0).any().item<bool>()) there.push_back(i);
  }
  return trajectories.index_select(0, at::tensor(there, at::kLong));
}

std::string picture_name(int64_t number) {
  char name[40];
  std::snprintf(name, sizeof name, "%06lld.png", static_cast<long long>(number));
  return name;
}

void check_out(const Arguments& given, int64_t frames) {
  const int64_t pictures = std::min(given.pictures, frames);
  for (int64_t i = 0; i < pictures; ++i) {
    if (!fs::exists(given.out / picture_name(i))) continue;
    throw dtk::ConfigError("--out " + given.out.string() + ": holds " + picture_name(i) +
                           " already; name another folder");
  }
}

void print(const scenes::PathError& model, const scenes::PathError& baseline, int64_t steps) {
  std::printf("the ego vehicle's path over %.1f s, mean of %lld %s\n", 0.1 * static_cast<double>(steps),
              static_cast<long long>(model.frames()), model.frames() == 1 ? "frame" : "frames");
  std::printf("%-19s%9s%9s\n", "", "ADE, m", "FDE, m");
  const auto row = [](const char* name, const scenes::PathError& error) {
    std::printf("%-19s%9.3f%9.3f\n", name, error.average(), error.final());
  };
  row("model", model);
  row("constant velocity", baseline);
}

void show(const Arguments& given) {
  const Drawn drawn = read_drawn(given.trajectories);
  const dtk::diffusion_planner::Frames frames = open_frames(given.frames);
  check_same_frames(given, drawn, frames);
  check_out(given, frames.size());
  dtk::FileSystem& files = dtk::posix_file_system();
  if (given.pictures > 0) files.create_directories(given.out);
  const int64_t steps = drawn.trajectories.size(2);
  scenes::PathError model, baseline;
  const dtk::diffusion_planner::FrameBatch frame = frames.allocate(1);
  for (int64_t i = 0; i < frames.size(); ++i) {
    frames.read(i, frame, 0);
    const at::Tensor& truth = frame.ego_agent_future;
    const at::Tensor told = drawn.ego_future.narrow(0, i, 1);
    if (!truth.narrow(2, 0, 2).equal(told.narrow(2, 0, 2))) {
      refuse_other_frames(given, frames.path(i) + " has another future than the trajectories' frame");
    }
    const at::Tensor paths = drawn.trajectories.select(0, i);
    model.add(paths.narrow(0, 0, 1), truth);
    baseline.add(scenes::constant_velocity(frame.ego_current_state, steps), truth);
    if (i >= given.pictures) continue;
    dtk::write_file_atomically(files, given.out / picture_name(i),
                               dtk::encode_png(scenes::draw_scene(frame, 0, of_those_there(paths, frame))));
  }
  print(model, baseline, steps);
  if (!given.require_better || model.average() < baseline.average()) return;
  throw dtk::Error(dtk::ExitCode::failure, "the model's ADE is not below that of constant velocity");
}

cxxopts::Options make_options() {
  cxxopts::Options options("show-trajectories",
                           "Measures the trajectories that dit-sample drew of frames, and draws pictures.");
  auto add = options.add_options();
  const auto text = [] { return cxxopts::value<std::string>(); };
  add("frames", "folder or JSON list that they were drawn of", text(), "LIST");
  add("trajectories", "the file that dit-sample wrote", text(), "FILE");
  add("out", "folder for pictures", text(), "FOLDER");
  add("pictures", "draw the first frames as PNG", cxxopts::value<int64_t>()->default_value("8"), "N");
  add("require-better", "exit code 1 unless the model's ADE is below constant velocity's");
  add("h,help", "this text");
  return options;
}

Arguments arguments_of(const cxxopts::ParseResult& given) {
  const auto needed = [&](const char* name, const char* what) {
    if (given.count(name) == 0) throw dtk::ConfigError(std::string("--") + name + " is missing: " + what);
    return given[name].as<std::string>();
  };
  Arguments arguments;
  arguments.frames = needed("frames", "a folder or JSON list of frames");
  arguments.trajectories = needed("trajectories", "the trajectories.safetensors that dit-sample wrote");
  arguments.pictures = given["pictures"].as<int64_t>();
  if (arguments.pictures < 0) {
    throw dtk::ConfigError("--pictures: " + std::to_string(arguments.pictures) +
                           " is out of range; allowed: 0 and more");
  }
  if (arguments.pictures > 0) arguments.out = needed("out", "a folder for pictures, or --pictures 0");
  arguments.require_better = given.count("require-better") > 0;
  return arguments;
}

void run(int argc, char** argv) {
  const cxxopts::Options options = make_options();
  const cxxopts::ParseResult given = examples::parsed(options, argc, argv);
  if (given.count("help") == 0) return show(arguments_of(given));
  std::cout << options.help();
}

}  // namespace

int main(int argc, char** argv) {
  return examples::exit_code_of("show-trajectories", [&] { run(argc, argv); });
}
