// A LLaVA whose projector and adapters are trained, small enough to be planned in a moment; it has no data.
#pragma once
#include <string>
#include <vector>

#include "toolkit/config/config_io.h"

namespace dtk::test {

inline LoadedConfig small_llava(const std::vector<std::string>& overrides) {
  return parse_config(R"(
train.model = "llava"
train.threads = 1
train.parts = ["projector", "lora"]
train.steps = 3
llava.lora.r = 2
llava.vision = {hidden = 16, mlp = 32, depth = 2, heads = 2, image = 28, patch = 14}
llava.text = {hidden = 32, mlp = 56, depth = 3, heads = 2, vocabulary = 40}
llava.data.max_length = 24
)",
                      "small.toml", overrides);
}

}  // namespace dtk::test
