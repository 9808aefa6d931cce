#include "toolkit/io/safetensors.h"

#include <string>

#include "fuzz/target.h"
#include "support/files/memory_file_system.h"

namespace dtk::fuzz {
namespace {

void read_safetensors(std::string_view input) {
  test::MemoryFileSystem files;
  files.create("input")->write(input.data(), input.size());
  for (const StoredTensor& tensor : open_safetensors(files, "input")) tensor.read();
}

}  // namespace

const Target safetensors = {read_safetensors, linear<128, 256>};

}  // namespace dtk::fuzz
