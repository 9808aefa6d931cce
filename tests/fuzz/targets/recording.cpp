#include "integration/springs_family/recording.h"

#include "fuzz/input_files.h"
#include "fuzz/target.h"

namespace dtk::fuzz {
namespace {

constexpr int64_t kSteps = 4;

void read_recording(std::string_view input) {
  const auto source = springs::open_recording(input_folder().write("recording", input), kSteps);
  const Batch batch = source->allocate(1, false);
  for (const int64_t index : {int64_t{0}, source->size() - 1}) source->read(index, 0, batch, 0);
}

}  // namespace

const Target recording = {read_recording, linear<16, 256>};

}  // namespace dtk::fuzz
