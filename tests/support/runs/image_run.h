// Images that are there already, as a run's data.
#pragma once
#include <memory>
#include <utility>

#include "toolkit/families/dit/data.h"
#include "toolkit/run/run.h"

namespace dtk::test {

/// `loaded` must outlive the run.
inline OpenData images_of(const LoadedConfig& loaded, std::shared_ptr<const ImageSource> images) {
  return [&loaded, images = std::move(images)](const DataIdentity* before, const OpeningProgress&) {
    return dit::image_data(loaded.config, images, before);
  };
}

}  // namespace dtk::test
