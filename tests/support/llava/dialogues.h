// A folder with pictures, dialogues about them and a tokenizer, and runs of a tiny LLaVA on them.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/files/temporary_folder.h"
#include "toolkit/config/config_io.h"
#include "toolkit/data/held_out.h"

namespace dtk::test {

/// "human" and "gpt" in turns, beginning with a question.
nlohmann::json dialogue(const std::string& id, const std::vector<std::string>& pictures,
                        const std::vector<std::string>& turns);

class DialogueFolder {
 public:
  /// Three pictures, "0.png" to "2.png", and a tokenizer of some English and German.
  DialogueFolder();
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  /// Writes a list and returns its path.
  std::string write(const std::string& name, const nlohmann::json& list) const;
  /// Twelve dialogues of several lengths, with no, one and two pictures.
  nlohmann::json some() const;

  /// Of a tiny model (16 tokens a picture) on some(), with lines of the configuration's text and overrides.
  LoadedConfig config(const std::vector<std::string>& overrides = {}) const;

 private:
  const TemporaryFolder folder_;
};

}  // namespace dtk::test
