// Answers of a trained LLaVA, as dit-sample asks for them.
#pragma once
#include <memory>

#include "toolkit/train/drawing.h"

namespace dtk::llava {

SampleUsage questions_usage();

/// The likeliest answer to each dialogue of --ask, whose last turn is a question: a JSON list of {id, answer}
/// in
/// --out. Throws ConfigError if --out cannot be written or no tokenizer is known, DataError as
/// read_dialogues().
std::unique_ptr<Drawing> draw_answers(FileSystem& files, const SampleSource& source,
                                      const SampleArguments& arguments);

}  // namespace dtk::llava
