#include <string>

#include "fuzz/target.h"
#include "support/files/memory_file_system.h"
#include "toolkit/families/diffusion_planner/normalization.h"

namespace dtk::fuzz {
namespace {

void read_scales(std::string_view input) {
  test::MemoryFileSystem files;
  files.create("input")->write(input.data(), input.size());
  using namespace diffusion_planner;
  const auto scales = read_normalization(files, "input", FrameLayout::version_2, {});
  const std::string text = normalization_text(scales);
  files.create("written")->write(text.data(), text.size());
  if (normalization_text(read_normalization(files, "written", FrameLayout::version_2, {})) != text)
    std::abort();
}

}  // namespace

const Target scales = {read_scales, linear<128, 512>};

}  // namespace dtk::fuzz
