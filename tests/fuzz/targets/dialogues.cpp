#include <cstdlib>

#include "fuzz/input_files.h"
#include "fuzz/target.h"
#include "toolkit/checkpoint/base.h"
#include "toolkit/checkpoint/shards.h"
#include "toolkit/families/llava/dialogue.h"

namespace dtk::fuzz {
namespace {

/// The first byte chooses: dialogues of either style, with or without answers, a list of shards, or
/// base.json.
void read_dialogue_files(std::string_view input) {
  if (input.empty()) return;
  const int choice = static_cast<unsigned char>(input[0]) % 6;
  const std::string content(input.substr(1));
  if (choice == 4) {
    read_shard_index(posix_file_system(), input_folder().write("model.safetensors.index.json", content));
  } else if (choice == 5) {
    parse_base(content, "base.json");
  } else {
    const auto style = choice % 2 == 0 ? llava::DialogueStyle::plain : llava::DialogueStyle::v1;
    for (const llava::Dialogue& one :
         llava::read_dialogues(input_folder().write("list.json", content), style, choice >= 2)) {
      if (one.turns.empty()) std::abort();
    }
  }
}

}  // namespace

const Target dialogues = {read_dialogue_files, linear<256, 1024>};

}  // namespace dtk::fuzz
