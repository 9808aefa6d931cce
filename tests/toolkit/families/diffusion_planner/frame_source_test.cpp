// Frames of the driving model through the loader that images take.
#include "toolkit/families/diffusion_planner/frame_source.h"

#include <ATen/ATen.h>

#include <set>
#include <vector>

#include "diffusion_planner/frame_writer.h"
#include "support/catch.h"
#include "support/diffusion_planner/samples.h"
#include "support/error_text.h"
#include "support/files/temporary_folder.h"
#include "toolkit/core/errors.h"
#include "toolkit/data/held_out.h"
#include "toolkit/data/loader.h"

namespace dtk {
namespace {

using test::error_text;
using test::same_samples;

const std::string list = std::string(DTK_FIXTURES) + "/diffusion_planner/frames/list.json";

std::shared_ptr<const diffusion_planner::FrameSource> fixture() {
  return std::make_shared<diffusion_planner::FrameSource>(
      list, diffusion_planner::FrameOptions{.sizes = test::reduced_sizes()});
}

/// The frames of these indices, read without a loader.
diffusion_planner::FrameBatch direct(const diffusion_planner::Frames& frames,
                                     const std::vector<uint32_t>& indices) {
  const diffusion_planner::FrameBatch batch = frames.allocate(static_cast<int64_t>(indices.size()));
  for (size_t row = 0; row < indices.size(); ++row)
    frames.read(indices[row], batch, static_cast<int64_t>(row));
  return batch;
}

/// Frames of upstream's layout, which have not all of the arrays.
diffusion_planner::FrameOptions upstream() {
  return {.layout = diffusion_planner::FrameLayout::upstream, .sizes = test::tiny_sizes()};
}

}  // namespace

TEST_CASE(
    "diffusion_planner frames: the loader gives each epoch's frames in its order, as they are read "
    "directly") {
  const auto source = fixture();
  const diffusion_planner::Frames frames(list, {.sizes = test::reduced_sizes()});
  REQUIRE(source->size() == 3);
  CHECK(source->description() == frames.description());
  Loader loader(source, {.seed = 5, .batch = 2, .prefetch = 3, .drop_last = false});
  std::set<std::vector<uint32_t>> orders;
  for (uint64_t epoch = 0; epoch < 2; ++epoch) {
    const auto order = epoch_order(5, epoch, 3);
    orders.insert(order);
    const std::vector<uint32_t> first(order.begin(), order.begin() + 2), last(order.begin() + 2, order.end());
    for (const auto& indices : {first, last}) {
      Batch batch = loader.next();
      CHECK(batch.samples() == static_cast<int64_t>(indices.size()));
      CHECK(batch.tensors.size() == 17);
      CHECK(same_samples(diffusion_planner::frame_batch(std::move(batch)), direct(frames, indices)));
    }
  }
  CHECK(orders.size() == 2);  // the epochs are not one another's repetition
  CHECK(loader.consumed() == 6);
  CHECK_FALSE(same_samples(direct(frames, {0, 1}), direct(frames, {1, 0})));
}

TEST_CASE("diffusion_planner frames: a batch is its tensors by name, without a copy") {
  const auto source = fixture();
  const Batch batch = source->allocate(2, false);
  const diffusion_planner::FrameBatch frames = diffusion_planner::frame_batch(batch);
  size_t place = 0;
  diffusion_planner::FrameBatch::fields(frames, [&](std::string_view, const at::Tensor& tensor) {
    CHECK(tensor.is_same(batch.tensors[place++]));
  });
  CHECK(place == 17);
  CHECK(frames.goal_pose.sizes() == at::IntArrayRef{2, 3});
  const std::string text = " tensors; a batch of frames has 17";
  Batch other = batch;
  other.tensors.pop_back();
  CHECK(error_text<std::invalid_argument>([&] { diffusion_planner::frame_batch(other); }) ==
        "diffusion_planner batch: 16" + text);
  other.tensors.resize(18);
  CHECK(error_text<std::invalid_argument>([&] { source->read(0, 0, other, 0); }) ==
        "diffusion_planner batch: 18" + text);
  CHECK_THROWS_AS(source->read(0, 0, batch, 2), std::out_of_range);
  CHECK_THROWS_AS(source->read(3, 0, batch, 0), std::out_of_range);
}

TEST_CASE(
    "diffusion_planner frames: arrays that upstream's files have not stay undefined in the loader's "
    "batches") {
  const test::TemporaryFolder folder;
  const diffusion_planner::FrameBatch samples =
      test::random_samples(diffusion_planner::FrameLayout::upstream, test::tiny_sizes(), 4);
  for (int64_t row = 0; row < 4; ++row) {
    scenes::write_frame(posix_file_system(), folder / (std::to_string(row) + ".npz"), samples, row,
                        {.layout = diffusion_planner::FrameLayout::upstream});
  }
  const auto source = std::make_shared<diffusion_planner::FrameSource>(folder.path(), upstream());
  Batch batch = Loader(source, {.seed = 1, .batch = 4}).next();
  CHECK_FALSE(batch.tensors.front().defined());
  CHECK(batch.samples() == 4);
  CHECK(same_samples(diffusion_planner::frame_batch(std::move(batch)),
                     direct(source->frames(), epoch_order(1, 0, 4))));
}

TEST_CASE("diffusion_planner frames: some can be held out, and a frame that is gone is told by the loader") {
  const test::TemporaryFolder folder;
  const diffusion_planner::FrameBatch samples =
      test::random_samples(diffusion_planner::FrameLayout::upstream, test::tiny_sizes(), 4);
  for (int64_t row = 0; row < 4; ++row) {
    scenes::write_frame(posix_file_system(), folder / (std::to_string(row) + ".npz"), samples, row,
                        {.layout = diffusion_planner::FrameLayout::upstream});
  }
  const auto source = std::make_shared<diffusion_planner::FrameSource>(folder.path(), upstream());
  const DataSplit split = hold_out(source, 1, 7);
  int64_t held = 0;
  for (int64_t i = 1; i < 4; ++i)
    if (held_out_hash(7, "", i) < held_out_hash(7, "", held)) held = i;
  const Batch batch = split.held_out->allocate(1, false);
  split.held_out->read(0, 0, batch, 0);
  CHECK(same_samples(diffusion_planner::frame_batch(batch),
                     direct(source->frames(), {static_cast<uint32_t>(held)})));
  std::filesystem::remove(source->frames().path(held));
  Loader without(split.training, {.batch = 3}), with(source, {.batch = 4});
  CHECK(without.next().samples() == 3);
  CHECK(error_text<DataError>([&] { with.next(); }) ==
        source->frames().path(held) + ": no such file; take it out of the list, or put the frame there");
}

}  // namespace dtk
