// How many frames of the driving model the training's loader gives out a second, by its threads. The
// files are read again and again, so they come from the page cache: what is measured is unpacking and
// checking, not a disk.
#include "toolkit/data/loader.h"

#include <ATen/ATen.h>
#include <dtk/policies/guards.h>

#include <algorithm>
#include <cstdio>
#include <cxxopts.hpp>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "diffusion_planner/frame_writer.h"
#include "support/bench_setup.h"
#include "support/diffusion_planner/preset.h"
#include "support/files/temporary_folder.h"
#include "toolkit/core/clock.h"
#include "toolkit/families/diffusion_planner/frame_source.h"

namespace {

using namespace dtk;
using namespace dtk::diffusion_planner;
namespace fs = std::filesystem;

/// Smooth paths: rows (count, steps, 3) of x, y, heading.
at::Tensor paths(int64_t count, int64_t steps, double metres_a_step, const at::Generator& generator) {
  const at::Tensor start = at::randn({count, 1, 2}, generator) * 40;
  const at::Tensor turn = at::randn({count, 1}, generator) * 0.01;
  const at::Tensor heading = at::rand({count, 1}, generator) * 6.28 + turn * at::arange(steps);
  const at::Tensor way = at::stack({heading.cos(), heading.sin()}, -1) * metres_a_step;
  return at::cat({start + way.cumsum(1), heading.unsqueeze(-1)}, -1);
}

/// Fills the first `used` of the objects, as far as there are so many; the others stay absent.
void fill_first(at::Tensor& objects, int64_t used, const at::Tensor& values) {
  used = std::min(used, objects.size(0));
  objects.narrow(0, 0, used).narrow(-1, 0, values.size(-1)).copy_(values.narrow(0, 0, used));
}

/// As full as frames of traffic in a town are: some twenty neighbours, most lanes, half a hundred borders.
FrameBatch made_up_frame(FrameBatch frame, const at::Generator& generator) {
  FrameBatch::fields(frame, [](std::string_view, at::Tensor& tensor) {
    if (tensor.defined()) tensor.zero_();
  });
  const auto row = [](at::Tensor& tensor) { return tensor.select(0, 0); };
  const auto path = [&](int64_t count, int64_t steps, double metres) {
    return paths(count, steps, metres, generator);
  };
  const int64_t past = frame.neighbor_agents_past.size(2), future = frame.ego_agent_future.size(1);
  row(frame.ego_agent_future).copy_(path(1, future, 0.8)[0]);
  row(frame.ego_current_state).copy_(at::randn({10}, generator));
  at::Tensor neighbors = row(frame.neighbor_agents_past), futures = row(frame.neighbor_agents_future);
  fill_first(neighbors, 20, path(20, past, 0.7));
  neighbors.narrow(0, 0, std::min<int64_t>(20, neighbors.size(0))).select(-1, 8).fill_(1);
  fill_first(futures, 20, path(20, future, 0.7));
  for (at::Tensor* lanes : {&frame.lanes, &frame.route_lanes}) {
    at::Tensor objects = row(*lanes);
    const int64_t used = objects.size(0) * 3 / 4;
    const at::Tensor points = path(used, objects.size(1), 2).narrow(-1, 0, 2);
    const at::Tensor ahead = points.roll(-1, 1) - points;
    fill_first(objects, used, at::cat({points, ahead, ahead.flip(-1) * 1.7, ahead.flip(-1) * -1.7}, -1));
    objects.narrow(0, 0, used).select(-1, objects.size(-1) - 1).fill_(1);
  }
  row(frame.lanes_speed_limit).fill_(13.9);
  row(frame.lanes_has_speed_limit).fill_(true);
  if (!frame.line_strings.defined()) return frame;
  row(frame.ego_agent_past).copy_(path(1, past, 0.8)[0]);
  for (at::Tensor* shapes : {&frame.polygons, &frame.line_strings}) {
    at::Tensor objects = row(*shapes);
    const int64_t used = objects.size(0) * 9 / 10;
    fill_first(objects, used, path(used, objects.size(1), 2).narrow(-1, 0, 2));
    objects.narrow(0, 0, used).select(-1, objects.size(-1) - 1).fill_(1);
  }
  row(frame.goal_pose).copy_(at::randn({3}, generator) * 50);
  row(frame.turn_indicators).fill_(1);
  row(frame.ego_shape).copy_(at::tensor({2.75, 4.89, 1.9}));
  return frame;
}

void write_frames(const fs::path& folder, int64_t count, FrameOptions made, NpzWriter::Packing packing) {
  fs::create_directories(folder);
  made.sizes.predicted_neighbors = made.sizes.neighbors;  // a file has the futures of all
  const std::vector<NpzArray> arrays = frame_arrays(made.layout, made.sizes);
  const at::Generator generator = policies::make_generator(at::kCPU, 1);
  FrameBatch frame;
  FrameBatch::fields(frame, [&](std::string_view key, at::Tensor& tensor) {
    for (const NpzArray& array : arrays) {
      if (array.key != key) continue;
      std::vector<int64_t> shape = {1};
      shape.insert(shape.end(), array.shape.begin(), array.shape.end());
      tensor = at::zeros(shape, at::TensorOptions(array.type));
    }
  });
  for (int64_t i = 0; i < count; ++i) {
    frame = made_up_frame(std::move(frame), generator);
    const fs::path path = folder / ("frame_" + std::to_string(i) + ".npz");
    scenes::write_frame(posix_file_system(), path, frame, 0, {made.layout, packing});
  }
}

double megabytes_of(const Frames& frames) {
  double bytes = 0;
  const FrameBatch one = frames.allocate(1);
  FrameBatch::fields(one, [&](const char*, const at::Tensor& tensor) {
    if (tensor.defined()) bytes += static_cast<double>(tensor.nbytes());
  });
  return bytes / 1e6;
}

void print_head(const Frames& frames, int64_t batch) {
  std::printf(
      "%lld frames of %.2f MB each, read again and again into batches of %lld by the training's loader\n\n",
      static_cast<long long>(frames.size()), megabytes_of(frames), static_cast<long long>(batch));
  std::printf("| frames | bytes a file | threads | frames/s | MB/s |\n|---|---:|---:|---:|---:|\n");
}

/// Batches of `batch` frames, or of all where there are fewer.
void measure(const std::string& name, const std::shared_ptr<const FrameSource>& source, int64_t batch,
             int64_t threads, double seconds) {
  const Frames& frames = source->frames();
  uint64_t file_bytes = 0;
  for (int64_t i = 0; i < frames.size(); ++i) file_bytes += fs::file_size(frames.path(i));
  Loader loader(source,
                {.seed = 1, .batch = std::min(batch, frames.size()), .threads = threads, .drop_last = false});
  while (loader.consumed() < frames.size()) loader.next();  // from now on in the page cache
  SteadyClock clock;
  const int64_t first = loader.consumed();
  const double begin = clock.seconds();
  double now = begin;
  for (; now - begin < seconds; now = clock.seconds()) loader.next();
  const double rate = static_cast<double>(loader.consumed() - first) / (now - begin);
  std::printf("| %s | %llu | %lld | %.1f | %.1f |\n", name.c_str(),
              static_cast<unsigned long long>(file_bytes / static_cast<uint64_t>(frames.size())),
              static_cast<long long>(threads), rate, rate * megabytes_of(frames));
  std::fflush(stdout);
}

// 1, 2, 4 ... up to the cores of this machine.
std::vector<int64_t> thread_counts() {
  std::vector<int64_t> counts;
  const int64_t cores = std::max(1U, std::thread::hardware_concurrency());
  for (int64_t count = 1; count <= cores; count *= 2) counts.push_back(count);
  return counts;
}

void run(const cxxopts::ParseResult& parsed) {
  const models::DiffusionPlannerOptions model =
      test::diffusion_planner_preset(parsed["preset"].as<std::string>());
  const FrameOptions options = {.layout = layout_of(model), .sizes = sizes_of(model)};
  const auto count = parsed["count"].as<int64_t>(), batch = parsed["batch"].as<int64_t>();
  const auto seconds = parsed["seconds"].as<double>();
  if (count < 1 || batch < 1 || !(seconds > 0))
    throw std::invalid_argument("--count, --batch and --seconds: from 1");
  if (const auto given = parsed["frames"].as<std::string>(); !given.empty()) {
    const auto source = std::make_shared<FrameSource>(given, options);
    print_head(source->frames(), batch);
    for (const int64_t threads : thread_counts())
      measure(fs::path(given).filename().string(), source, batch, threads, seconds);
    return;
  }
  const test::TemporaryFolder own;
  const auto keep = parsed["keep"].as<std::string>();
  const fs::path folder = keep.empty() ? own.path() : fs::path(keep);
  bool first = true;
  for (const auto& [name, packing] : {std::pair("deflated", NpzWriter::Packing::deflated),
                                      std::pair("stored", NpzWriter::Packing::stored)}) {
    write_frames(folder / name, count, options, packing);
    const auto source = std::make_shared<FrameSource>(folder / name, options);
    if (std::exchange(first, false)) print_head(source->frames(), batch);
    for (const int64_t threads : thread_counts()) measure(name, source, batch, threads, seconds);
  }
}

}  // namespace

int main(int argc, char** argv) {
  cxxopts::Options options("diffusion-planner-loader",
                           "Reads frames of the driving model with the training's loader");
  options.add_options()("preset", policies::choices_of<models::DiffusionPlannerPreset>(),
                        cxxopts::value<std::string>()->default_value("H"))(
      "frames", "folder or JSON list; default: made up ones",
      cxxopts::value<std::string>()->default_value(""))("count", "frames to make up",
                                                        cxxopts::value<int64_t>()->default_value("64"))(
      "batch", "rows of a batch", cxxopts::value<int64_t>()->default_value("32"))(
      "seconds", "of each row of the table", cxxopts::value<double>()->default_value("5"))(
      "keep", "folder to leave the made up frames in", cxxopts::value<std::string>()->default_value(""));
  return dtk::bench::main_of("diffusion-planner-loader", options, argc, argv,
                             [](const cxxopts::ParseResult& parsed) { run(parsed); });
}
