// Frames of the driving model: reading them into batches, what is refused, and writing them.
#include "toolkit/families/diffusion_planner/frames.h"

#include <ATen/ATen.h>

#include <cmath>
#include <functional>
#include <limits>
#include <thread>

#include "diffusion_planner/frame_writer.h"
#include "support/catch.h"
#include "support/diffusion_planner/samples.h"
#include "support/error_text.h"
#include "support/files/temporary_folder.h"
#include "toolkit/core/errors.h"
#include "toolkit/data/image_folder.h"

namespace dtk {
namespace {

using test::error_text;
using test::random_samples;
using test::TemporaryFolder;

const std::string make_again = "; make the frame again, or take it out of the list";
const std::string other_preset = "; make the frame again, or choose the preset that has its sizes";
using dtk::test::nothing_thrown;

diffusion_planner::FrameOptions options_of(
    diffusion_planner::FrameLayout layout = diffusion_planner::FrameLayout::version_2) {
  return {.layout = layout, .sizes = test::tiny_sizes()};
}

std::string write(const TemporaryFolder& folder, const std::string& name,
                  const diffusion_planner::FrameBatch& samples, const scenes::FrameWriting& writing = {},
                  int64_t row = 0) {
  scenes::write_frame(posix_file_system(), folder / name, samples, row, writing);
  return (folder / name).string();
}

/// What reading the only frame of `folder` says.
std::string refusal(const TemporaryFolder& folder,
                    const diffusion_planner::FrameOptions& options = options_of()) {
  return error_text<DataError>([&] { diffusion_planner::Frames(folder.path(), options); });
}

/// A good sample that `change` makes a bad one, in a file.
std::string refusal_of(const std::function<void(diffusion_planner::FrameBatch&)>& change) {
  const TemporaryFolder folder;
  diffusion_planner::FrameBatch sample =
      random_samples(diffusion_planner::FrameLayout::version_2, test::tiny_sizes(), 1);
  change(sample);
  const std::string path = write(folder, "f.npz", sample);
  const std::string text = refusal(folder);
  if (text == nothing_thrown) return text;
  REQUIRE(text.starts_with(path + ": "));
  return text.substr(path.size() + 2);
}

/// A file with the arrays of a good sample but `version`, and without `left_out`.
std::string refusal_with(const at::Tensor& version, const std::string& left_out = "") {
  const TemporaryFolder folder;
  const diffusion_planner::FrameBatch sample =
      random_samples(diffusion_planner::FrameLayout::version_2, test::tiny_sizes(), 1);
  const std::string path = (folder / "f.npz").string();
  const auto file = posix_file_system().create(path);
  NpzWriter npz(*file);
  if (version.defined()) npz.add("version", version);
  diffusion_planner::FrameBatch::fields(sample, [&](std::string_view key, const at::Tensor& tensor) {
    if (key != left_out) npz.add(std::string(key), tensor[0]);
  });
  npz.finish();
  file->close();
  const std::string text = refusal(folder);
  REQUIRE(text.starts_with(path + ": "));
  return text.substr(path.size() + 2);
}

at::Tensor version(int64_t number) {
  return at::full({1}, number, at::kLong).to(at::kUInt32);
}

void cut_off(const std::string& path) {
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
}

const std::string cut_off_text =
    ": no zip directory at the end of the file, so it is cut off, or not a .npz file; get the file again, or "
    "save it "
    "again with numpy.savez_compressed";

}  // namespace

TEST_CASE("diffusion_planner frames: what is written is read, deflated and stored, in both layouts") {
  for (const auto layout :
       {diffusion_planner::FrameLayout::version_2, diffusion_planner::FrameLayout::upstream}) {
    for (const auto packing : {NpzWriter::Packing::deflated, NpzWriter::Packing::stored}) {
      const TemporaryFolder folder;
      const diffusion_planner::FrameBatch samples = random_samples(layout, test::tiny_sizes(), 3);
      for (int64_t i = 0; i < 3; ++i)
        write(folder, std::to_string(i) + ".npz", samples, {layout, packing}, i);
      const diffusion_planner::Frames source(folder.path(), options_of(layout));
      CHECK(source.size() == 3);
      const diffusion_planner::FrameBatch batch = source.allocate(3);
      for (const int64_t i : {2, 0, 1}) source.read(i, batch, i);
      CHECK(test::same_samples(batch, samples));
      CHECK(batch.polygons.defined() == (layout == diffusion_planner::FrameLayout::version_2));
    }
  }
}

TEST_CASE("diffusion_planner frames: a frame goes to its row and to no other") {
  const TemporaryFolder folder;
  const diffusion_planner::FrameBatch sample =
      random_samples(diffusion_planner::FrameLayout::version_2, test::tiny_sizes(), 1);
  write(folder, "f.npz", sample);
  const diffusion_planner::Frames source(folder.path(), options_of());
  const diffusion_planner::FrameBatch batch = source.allocate(3);
  diffusion_planner::FrameBatch::fields(
      batch, [](std::string_view, const at::Tensor& tensor) { at::Tensor(tensor).fill_(1); });
  source.read(0, batch, 1);
  std::vector<at::Tensor> expected;
  diffusion_planner::FrameBatch::fields(
      sample, [&](std::string_view, const at::Tensor& tensor) { expected.push_back(tensor[0]); });
  size_t next = 0;
  diffusion_planner::FrameBatch::fields(batch, [&](std::string_view key, const at::Tensor& tensor) {
    INFO(key);
    CHECK(at::equal(tensor[1], expected[next++]));
    CHECK(tensor[0].eq(1).all().item<bool>());
    CHECK(tensor[2].eq(1).all().item<bool>());
  });
  CHECK_THROWS_AS(source.read(0, batch, 3), std::out_of_range);
  CHECK_THROWS_AS(source.read(0, batch, -1), std::out_of_range);
  CHECK_THROWS_AS(source.read(1, batch, 0), std::out_of_range);
  CHECK_THROWS_AS(source.read(-1, batch, 0), std::out_of_range);
  diffusion_planner::FrameBatch other = source.allocate(1);
  other.polygons = other.polygons.narrow(1, 0, 7).contiguous();
  CHECK(error_text<std::invalid_argument>([&] { source.read(0, other, 0); }) ==
        "Frames: the batch's polygons is not as allocate() makes it");
}

TEST_CASE("diffusion_planner frames: several threads read into one batch") {
  constexpr int64_t count = 24;
  const TemporaryFolder folder;
  const diffusion_planner::FrameBatch samples =
      random_samples(diffusion_planner::FrameLayout::version_2, test::tiny_sizes(), count);
  for (int64_t i = 0; i < count; ++i) write(folder, std::to_string(100 + i) + ".npz", samples, {}, i);
  const diffusion_planner::Frames source(folder.path(), options_of());
  const diffusion_planner::FrameBatch batch = source.allocate(count);
  {
    std::vector<std::jthread> threads;
    for (int64_t first = 0; first < 4; ++first) {
      threads.emplace_back([&, first] {
        for (int64_t i = first; i < count; i += 4) source.read(i, batch, i);
      });
    }
  }
  CHECK(test::same_samples(batch, samples));
}

TEST_CASE("diffusion_planner frames: fewer futures than neighbours are the first ones") {
  const TemporaryFolder folder;
  const diffusion_planner::FrameBatch sample =
      random_samples(diffusion_planner::FrameLayout::version_2, test::tiny_sizes(), 1);
  write(folder, "f.npz", sample);
  diffusion_planner::FrameOptions options = options_of();
  options.sizes.predicted_neighbors = 2;
  const diffusion_planner::Frames source(folder.path(), options);
  const diffusion_planner::FrameBatch batch = source.allocate(1);
  source.read(0, batch, 0);
  CHECK(at::equal(batch.neighbor_agents_future, sample.neighbor_agents_future.narrow(1, 0, 2)));
  CHECK(at::equal(batch.neighbor_agents_past, sample.neighbor_agents_past));
}

TEST_CASE("diffusion_planner frames: upstream's files may have float64, more neighbours and texts") {
  const TemporaryFolder folder;
  diffusion_planner::FrameSizes sizes = test::tiny_sizes();
  sizes.neighbors = sizes.predicted_neighbors = 7;
  const diffusion_planner::FrameBatch sample =
      random_samples(diffusion_planner::FrameLayout::upstream, sizes, 1);
  const auto file = posix_file_system().create(folder / "f.npz");
  NpzWriter npz(*file, NpzWriter::Packing::stored);
  npz.add("token", at::zeros({3}, at::kByte));  // not looked at
  diffusion_planner::FrameBatch::fields(sample, [&](std::string_view key, const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    npz.add(std::string(key), tensor[0].to(tensor.is_floating_point() ? at::kDouble : at::kBool));
  });
  npz.finish();
  file->close();
  diffusion_planner::FrameOptions options = options_of(diffusion_planner::FrameLayout::upstream);
  options.sizes.predicted_neighbors = 2;
  const diffusion_planner::Frames source(folder.path(), options);
  const diffusion_planner::FrameBatch batch = source.allocate(1);
  source.read(0, batch, 0);
  CHECK(at::equal(batch.lanes, sample.lanes));
  CHECK(at::equal(batch.lanes_has_speed_limit, sample.lanes_has_speed_limit));
  CHECK(at::equal(batch.neighbor_agents_past, sample.neighbor_agents_past.narrow(1, 0, 3)));
  CHECK(at::equal(batch.neighbor_agents_future, sample.neighbor_agents_future.narrow(1, 0, 2)));
}

TEST_CASE("diffusion_planner frames: another version, or none") {
  CHECK(refusal_with(version(3)) == "array \"version\" is 3; allowed: 2" + make_again);
  CHECK(refusal_with({}) ==
        "array \"version\" is missing; allowed: 2 (frames of upstream's layout have none: choose the preset "
        "\"UP\")" +
            make_again);
  CHECK(refusal_with(at::full({1}, 2, at::kLong)) ==
        "array \"version\" is int64; allowed: uint32; save it as uint32");
}

TEST_CASE("diffusion_planner frames: arrays that are missing, of another shape or dtype") {
  CHECK(
      refusal_with(version(2), "lanes") ==
      "has no array \"lanes\"; it holds ego_agent_future, ego_agent_past, ego_current_state, ego_shape, "
      "goal_pose, "
      "lanes_has_speed_limit, lanes_speed_limit, line_strings, neighbor_agents_future, neighbor_agents_past, "
      "polygons, route_lanes, route_lanes_has_speed_limit, route_lanes_speed_limit, static_objects, "
      "turn_indicators, version; store the array under that name");
  CHECK(refusal_of([](diffusion_planner::FrameBatch& sample) {
          sample.lanes = sample.lanes.narrow(1, 0, 5);
        }) == "array \"lanes\" has the shape (5, 7, 12); allowed: (6, 7, 12)" + other_preset);
  CHECK(refusal_of([](diffusion_planner::FrameBatch& sample) {
          sample.neighbor_agents_past = at::zeros({1, 4, 4, 11});
        }) == "array \"neighbor_agents_past\" has the shape (4, 4, 11); allowed: (3, 4, 11)" + other_preset);
  CHECK(refusal_of([](diffusion_planner::FrameBatch&) {}) == nothing_thrown);
  const TemporaryFolder folder;
  const std::string path =
      write(folder, "f.npz", random_samples(diffusion_planner::FrameLayout::upstream, test::tiny_sizes(), 1),
            {diffusion_planner::FrameLayout::upstream});
  diffusion_planner::FrameOptions options = options_of(diffusion_planner::FrameLayout::upstream);
  options.sizes.neighbors = 4;
  CHECK(refusal(folder, options) == path +
                                        ": array \"neighbor_agents_past\" has the shape (3, 4, 11); allowed: "
                                        "(4, 4, 11) with up to 4096 rows" +
                                        other_preset);
}

TEST_CASE(
    "diffusion_planner frames: every array is looked through for NaN and infinity, named with its place") {
  const std::vector<std::pair<float, std::string>> bad = {
      {std::numeric_limits<float>::quiet_NaN(), "NaN"},
      {std::numeric_limits<float>::infinity(), "infinity"},
      {-std::numeric_limits<float>::infinity(), "-infinity"}};
  const diffusion_planner::FrameBatch shapes =
      random_samples(diffusion_planner::FrameLayout::version_2, test::tiny_sizes(), 1);
  int arrays = 0;
  diffusion_planner::FrameBatch::fields(shapes, [&](std::string_view name, const at::Tensor& shape) {
    if (!shape.is_floating_point()) return;
    const std::string key(name);
    const auto& [value, text] = bad[static_cast<size_t>(arrays++) % bad.size()];
    const std::string seen = refusal_of([&, number = value](diffusion_planner::FrameBatch& sample) {
      diffusion_planner::FrameBatch::fields(sample, [&](std::string_view other, at::Tensor& tensor) {
        if (other == name) tensor.flatten()[-1] = number;
      });
    });
    std::string last;
    for (const int64_t size : shape.sizes().slice(1))
      last += (last.empty() ? "" : ", ") + std::to_string(size - 1);
    CHECK(seen ==
          "array \"" + key + "\" holds " + text + " at [" + last + "]; allowed: finite numbers" + make_again);
  });
  CHECK(arrays == 14);
  CHECK(refusal_of([](diffusion_planner::FrameBatch& sample) {
          sample.lanes[0][3][0][2] = NAN;
          sample.lanes[0][4][0][2] = NAN;
        }) == "array \"lanes\" holds NaN at [3, 0, 2]; allowed: finite numbers" + make_again);
  CHECK(refusal_of([](diffusion_planner::FrameBatch& sample) {
          sample.goal_pose[0][0] = std::numeric_limits<float>::max();
        }) == nothing_thrown);
}

TEST_CASE("diffusion_planner frames: truth values and turn indicators that are none") {
  CHECK(refusal_of([](diffusion_planner::FrameBatch& sample) {
          static_cast<unsigned char*>(sample.lanes_has_speed_limit.mutable_data_ptr())[4] = 7;
        }) == "array \"lanes_has_speed_limit\" holds the byte 7 at [4, 0]; allowed for a bool: 0 and 1" +
                  make_again);
  for (const int label : {-1, 5}) {
    CHECK(refusal_of([&](diffusion_planner::FrameBatch& sample) { sample.turn_indicators[0][3] = label; }) ==
          "array \"turn_indicators\" holds " + std::to_string(label) +
              " at [3]; allowed: 0 to 4 (none, disable, left, right, keep)" + make_again);
  }
  CHECK(refusal_of([](diffusion_planner::FrameBatch& sample) { sample.turn_indicators[0][2] = -1; }) ==
        nothing_thrown);
  CHECK(refusal_of([](diffusion_planner::FrameBatch& sample) { sample.turn_indicators[0][3] = 4; }) ==
        nothing_thrown);
}

TEST_CASE("diffusion_planner frames: a bad frame is refused when it is read, or left out and told of") {
  const TemporaryFolder folder;
  diffusion_planner::FrameBatch samples =
      random_samples(diffusion_planner::FrameLayout::version_2, test::tiny_sizes(), 6);
  samples.ego_shape[4][1] = NAN;
  for (int64_t i = 0; i < 6; ++i) write(folder, std::to_string(i) + ".npz", samples, {}, i);
  cut_off(folder / "1.npz");
  const auto list =
      folder.write("list.json", R"(["5.npz", "1.npz", "gone.npz", "4.npz", "0.npz", "5.npz", "sub/x.npz"])");
  std::filesystem::create_directories(folder / "sub/x.npz");

  const diffusion_planner::Frames all(folder.path(), options_of());
  CHECK(all.size() == 6);
  const diffusion_planner::FrameBatch one = all.allocate(1);
  CHECK(error_text<DataError>([&] { all.read(1, one, 0); }) == (folder / "1.npz").string() + cut_off_text);

  diffusion_planner::FrameOptions options = options_of();
  options.skip_corrupt = true;
  for (const int threads : {1, 3}) {
    options.threads = threads;
    const diffusion_planner::Frames some(list, options);
    REQUIRE(some.size() == 3);
    CHECK(some.path(0) == folder / "5.npz");
    CHECK(some.path(1) == folder / "0.npz");
    CHECK(some.path(2) == folder / "5.npz");
    CHECK(some.remarks().skipped == 4);
    CHECK(some.remarks().reasons ==
          std::vector<std::string>{(folder / "1.npz").string() + cut_off_text,
                                   list.string() + ": entry 2: " + (folder / "gone.npz").string() +
                                       ": no such file; take it out of the list, or put the frame there",
                                   (folder / "4.npz").string() +
                                       ": array \"ego_shape\" holds NaN at [1]; allowed: finite numbers" +
                                       make_again});
  }
  const auto bad = folder.write("bad.json", R"(["1.npz", "4.npz"])");
  CHECK(error_text<DataError>([&] { diffusion_planner::Frames(bad, options); }) ==
        "none of 2 frames can be read; the first: " + (folder / "1.npz").string() + cut_off_text);
}

TEST_CASE("diffusion_planner frames: entries of a list that are gone are named before anything is read") {
  const TemporaryFolder folder;
  write(folder, "a.npz", random_samples(diffusion_planner::FrameLayout::version_2, test::tiny_sizes(), 1));
  const auto list = folder.write("list.json", R"(["a.npz", "sub/gone.npz"])");
  CHECK(error_text<DataError>([&] { diffusion_planner::Frames(list, options_of()); }) ==
        list.string() + ": entry 1: " + (folder / "sub/gone.npz").string() +
            ": no such file; take it out of the list, or put the frame there");
  std::filesystem::create_directories(folder / "sub/gone.npz");
  CHECK(error_text<DataError>([&] { diffusion_planner::Frames(list, options_of()); }) ==
        list.string() + ": entry 1: " + (folder / "sub/gone.npz").string() +
            ": not a regular file; take it out of the list, or put the frame there");
}

TEST_CASE("diffusion_planner frames: the description counts them and says whether they are made up") {
  const TemporaryFolder folder;
  write(folder, "a.npz", random_samples(diffusion_planner::FrameLayout::version_2, test::tiny_sizes(), 1));
  const auto list = folder.write("list.json", R"(["a.npz"])");
  CHECK(diffusion_planner::Frames(list, options_of()).description() ==
        "1 frames, 3 neighbours, 6 lanes (list.json)");
  CHECK_FALSE(diffusion_planner::Frames(list, options_of()).remarks().synthetic);
  folder.write(synthetic_marker, "");
  CHECK(diffusion_planner::Frames(folder.path() / "", options_of()).description() ==
        "1 synthetic frames, 3 neighbours, 6 lanes (" + folder.path().filename().string() + ")");
  CHECK(diffusion_planner::Frames(list, options_of()).remarks().synthetic);
}

TEST_CASE("diffusion_planner frames: only whole samples are written") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::function<void(diffusion_planner::FrameBatch&)>& change,
                           int64_t row = 0) {
    diffusion_planner::FrameBatch sample =
        random_samples(diffusion_planner::FrameLayout::version_2, test::tiny_sizes(), 2);
    change(sample);
    const std::string text = error_text<std::exception>([&] { write(folder, "f.npz", sample, {}, row); });
    CHECK_FALSE(std::filesystem::exists(folder / "f.npz"));
    return text;
  };
  CHECK(refused([](diffusion_planner::FrameBatch& sample) { sample.polygons.reset(); }) ==
        "write_frame: polygons is missing");
  CHECK(refused([](diffusion_planner::FrameBatch& sample) { sample.lanes = sample.lanes[0]; }) ==
        "write_frame: lanes is float32 of 3 dimensions; allowed: float32 of 4");
  CHECK(refused([](diffusion_planner::FrameBatch& sample) {
          sample.turn_indicators = sample.turn_indicators.to(at::kLong);
        }) == "write_frame: turn_indicators is int64 of 2 dimensions; allowed: int32 of 2");
  CHECK(refused([](diffusion_planner::FrameBatch&) {}, 2) == "write_frame: ego_agent_past: row 2 of 2");
}

}  // namespace dtk
