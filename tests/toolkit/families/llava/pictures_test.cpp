// Pictures are what CLIP's processor makes of them, cropped or padded to a square.
#include "toolkit/families/llava/pictures.h"

#include <ATen/ATen.h>

#include "support/catch.h"
#include "support/files/temporary_folder.h"
#include "support/fixture.h"

namespace dtk::llava {

TEST_CASE("pictures of any shape have the values of CLIP's processor, cropped and padded") {
  const test::Fixture fixture = test::read_fixture("clip_pictures");
  const test::TemporaryFolder folder;
  for (const std::string name : {"40x56", "57x31", "28x28", "91x29", "14x15", "29x30"}) {
    const at::Tensor pixels = fixture.at(name + ".image").contiguous();
    Image image{pixels.size(0), pixels.size(1), 3, {}};
    const auto* const bytes = pixels.const_data_ptr<uint8_t>();
    image.pixels.assign(bytes, bytes + pixels.numel());
    const std::string file = folder.write(name + ".png", encode_png(image)).string();
    for (const AspectRatio kind : {AspectRatio::crop, AspectRatio::pad}) {
      CAPTURE(name, static_cast<int>(kind));
      const at::Tensor wanted = fixture.at(name + (kind == AspectRatio::pad ? ".pad" : ".crop"));
      const at::Tensor values = at::empty({3, 28, 28});
      read_picture(file, kind, values);
      // A byte is 0.014: the resampled bytes are equal, and numpy's division rounds otherwise.
      CHECK((values - wanted).abs().max().item<float>() < 1e-6F);
    }
  }
}

}  // namespace dtk::llava
