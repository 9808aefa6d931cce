// What of a LLaVA a run trains: train.parts.
#pragma once
#include <dtk/policies/enum_text.h>

#include <array>

#include "toolkit/config/config.h"
#include "toolkit/core/text.h"

namespace dtk::llava {

/// `norm`: the last one of `text`; `head` is of `text` too.
enum class Part { vision, projector, text, lora, norm, head };
constexpr auto enum_texts(Part) {
  return std::array{"vision", "projector", "text", "lora", "norm", "head"};
}

inline bool trains(const RunConfig& config, Part part) {
  return contains(config.train.parts, policies::text_of(part));
}

}  // namespace dtk::llava
