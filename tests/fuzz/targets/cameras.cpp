#include <cstdlib>

#include "fuzz/target.h"
#include "toolkit/families/vggt/scenes.h"

namespace dtk::fuzz {
namespace {

void read_cameras(std::string_view input) {
  const std::vector<vggt::Camera> read = vggt::parse_cameras(input, "input", {"0.png", "1.png"});
  std::vector<std::string> files(read.size(), "any");
  const std::string written = vggt::cameras_json(read, files, "note");
  if (vggt::cameras_json(vggt::parse_cameras(written, "written"), files, "note") != written) std::abort();
}

}  // namespace

const Target cameras = {read_cameras, linear<128, 512>};

}  // namespace dtk::fuzz
