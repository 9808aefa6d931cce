// What others call the parameters of a LLaVA.
#pragma once
#include "toolkit/checkpoint/weights.h"

namespace dtk::llava {

/// `weights` under the names of models::Llava, which are those of LLaVA's own files. Others that are known:
/// those of transformers' LlavaForConditionalGeneration, of today ("model.language_model.") and before 4.52
/// ("language_model.model."). Buffers that such files hold, which follow from the sizes, are left out. Throws
/// ConfigError, from the weights' place on, for names of two kinds and for one that no kind has.
Weights with_own_names(Weights weights);

}  // namespace dtk::llava
