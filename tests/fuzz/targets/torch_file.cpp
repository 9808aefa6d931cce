#include "toolkit/io/torch_file.h"

#include <c10/util/accumulate.h>

#include <string>

#include "fuzz/target.h"
#include "support/files/memory_file_system.h"
#include "support/files/torch_bytes.h"

namespace dtk::fuzz {
namespace {

/// The input is the pickle, beside which two storages of 64 bytes lie, or the whole file.
void read_torch_file(std::string_view input) {
  std::string bytes(input);
  if (!input.starts_with("PK")) {
    const std::string storage(64, '\1');
    bytes = test::zip_bytes({{.name = "m/data.pkl", .data = bytes},
                             {.name = "m/data/0", .data = storage},
                             {.name = "m/data/1", .data = storage}});
  }
  test::MemoryFileSystem files;
  files.create("input")->write(bytes.data(), bytes.size());
  const TorchFile file(files, "input");
  file.content();
  for (const std::string& key : file.keys()) {
    for (const StoredTensor& tensor : file.tensors(key)) tensor.read();
  }
}

}  // namespace

// Values of a pickle take 100 times what they take in it; names of classes have 4 MiB of their own.
const Target torch_file = {read_torch_file, linear<400, 10240>};

}  // namespace dtk::fuzz
