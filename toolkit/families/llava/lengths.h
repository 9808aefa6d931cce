// Lengths of dialogues in a file (llava.data.lengths), so that their texts are tokenized for them once.
//
// JSON: {"version": 1, "lists": [{"list": name, "list_sha256", "tokenizer_sha256", "follows_from", "cut",
// "tokens": [per sample], "pictures": [...], "features": [...], "labels": [...]}]}, the newest list first.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "toolkit/config/config.h"
#include "toolkit/core/errors.h"
#include "toolkit/families/llava/sizes.h"
#include "toolkit/io/file_system.h"

namespace dtk::llava {

/// Of all samples of one list.
struct ListLengths {
  std::vector<SampleSize> sizes;
  int64_t cut = 0;  // samples longer than llava.data.max_length
};

/// What the lengths of `list` follow from. A list or tokenizer that is not there has no hash, and is taken to
/// be the one of its name.
struct LengthsKey {
  std::string list, list_sha256, tokenizer_sha256;
  std::string follows_from;  // options
};
LengthsKey lengths_key(FileSystem& files, const RunConfig& config, const std::filesystem::path& list);

/// The file of lengths is at fault, not the list that it tells of.
struct LengthsError : DataError {
  using DataError::DataError;
};

/// Those of `key` in `file`; nothing where there is no such file, or none of them. Throws LengthsError for a
/// file of other things.
std::optional<ListLengths> read_lengths(FileSystem& files, const std::filesystem::path& file,
                                        const LengthsKey& key);

/// Puts them into `file`, beside the newest of other lists. Throws as read_lengths(), and FileError.
void write_lengths(FileSystem& files, const std::filesystem::path& file, const LengthsKey& key,
                   const ListLengths& lengths);

}  // namespace dtk::llava
