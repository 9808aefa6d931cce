// What show-trajectories measures by, and what it reads off a frame.
#include <ATen/ATen.h>

#include "diffusion_planner/frame_kind.h"
#include "diffusion_planner/frame_writer.h"
#include "diffusion_planner/frames.h"
#include "diffusion_planner/path_error.h"
#include "diffusion_planner/scene_set.h"
#include "support/catch.h"
#include "support/error_text.h"
#include "support/files/temporary_folder.h"
#include "toolkit/core/errors.h"
#include "toolkit/io/file_system.h"

namespace {

using namespace dtk;
using namespace dtk::diffusion_planner;

/// A file with a frame of zeros.
std::filesystem::path zeros(const test::TemporaryFolder& folder, const scenes::SceneSet& set) {
  const std::filesystem::path file = folder / "frame.npz";
  scenes::write_frame(posix_file_system(), file, scenes::empty_frames(set.layout, set.sizes, 1), 0,
                      {.layout = set.layout});
  return file;
}

}  // namespace

TEST_CASE("constant velocity goes straight on from where the vehicle is") {
  at::Tensor state = at::zeros({2, 10});
  state[0][4] = 3, state[0][5] = -1;
  state[1][0] = 5, state[1][1] = 6, state[1][5] = 2, state[1][6] = 9;  // the acceleration is not kept
  const at::Tensor way = scenes::constant_velocity(state, 20);
  REQUIRE(way.sizes() == at::IntArrayRef({2, 20, 2}));
  CHECK(at::allclose(way[0][0], at::tensor({0.3F, -0.1F})));
  CHECK(at::allclose(way[0][19], at::tensor({6.0F, -2.0F})));
  CHECK(at::allclose(way[1][9], at::tensor({5.0F, 8.0F})));
}

TEST_CASE("path errors are mean distances over frames, whatever the batches") {
  scenes::PathError none;
  CHECK(none.average() == 0);
  CHECK(none.final() == 0);
  const at::Tensor truth = at::zeros({3, 2, 3});
  at::Tensor path = at::zeros({3, 2, 4});
  path[0][0][0] = 3, path[0][0][1] = 4;  // 5 m, then 0
  path[1][1][1] = -2;                    // 0 m, then 2
  path.narrow(2, 2, 2).fill_(77);        // headings do not count
  scenes::PathError whole, parts;
  whole.add(path, truth);
  parts.add(path.narrow(0, 0, 1), truth.narrow(0, 0, 1));
  parts.add(path.narrow(0, 1, 2), truth.narrow(0, 1, 2));
  for (const scenes::PathError& error : {whole, parts}) {
    CHECK(error.frames() == 3);
    CHECK(error.average() == Approx((2.5 + 1 + 0) / 3));
    CHECK(error.final() == Approx(2.0 / 3));
  }
  CHECK(test::error_text<std::invalid_argument>([&] { whole.add(path, truth.narrow(1, 0, 1)); }) ==
        "PathError: path and truth have to be (N, T, 2 or more) with the same N and T");
}

TEST_CASE("a frame's file tells its layout and sizes") {
  for (const char* const name : {"reduced", "H", "UP"}) {
    INFO(name);
    scenes::SceneSet set = scenes::scene_set(name).value();
    set.sizes.past = 17, set.sizes.lanes = 9;
    const test::TemporaryFolder folder;
    const scenes::FrameKind kind = scenes::frame_kind(zeros(folder, set));
    CHECK(kind.layout == set.layout);
    CHECK(kind.sizes == set.sizes);
  }
  const test::TemporaryFolder folder;
  scenes::SceneSet large = scenes::scene_set("reduced").value();
  large.sizes.line_strings = 4097;
  const std::filesystem::path file = zeros(folder, large);
  CHECK(test::error_text<DataError>([&] { scenes::frame_kind(file); }) ==
        file.string() +
            ": array \"line_strings\" has the shape (4097, 20, 4); allowed: 3 sizes from 1 to 4096; make the "
            "frame again");
}
