// A first configuration for pictures or latents that somebody has.
#pragma once
#include <filesystem>
#include <optional>

#include "toolkit/train/model_family.h"

namespace dtk::dit {

/// Of a folder with one sub-folder of pictures per class, a file of latents, or an IDX file of images beside
/// its labels; nothing for anything else. As ModelFamily::draft().
std::optional<DataDraft> draft_of_images(const std::filesystem::path& data, bool small);

}  // namespace dtk::dit
