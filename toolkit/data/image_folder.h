// A folder of images, one sub-folder per class.
#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "toolkit/data/image.h"
#include "toolkit/data/image_source.h"

namespace dtk {

/// Name of the file that marks an image folder as drawn by a program; description() then says "synthetic".
inline constexpr const char* synthetic_marker = "SYNTHETIC.txt";

struct ImageFolderOptions {
  bool skip_corrupt =
      false;            // leave out files that cannot be decoded, and tell of them (DataSource::remarks)
  int threads = 1;      // that decode
  bool strict = false;  // anything but images in a class folder is an error
  Convert convert = Convert::none;
  OpeningProgress progress = {};
};

/// Opens `folder`/<class>/<image>.png|jpg|jpeg|webp|bmp, also in folders within the classes'. Class folders
/// sorted by name (natural_less(): "2" comes before "10") are classes 0, 1, ...; samples are sorted by class,
/// then by path (byte order). An image of exactly `size` is taken as it is; another is resized and cropped to
/// it (image.h), which needs a square `size`. Channels are converted as `options` say. Values are scaled to
/// [-1, 1]. Images are decoded here, once, and stay in memory as bytes, C·H·W for each, with its name. Plain
/// files beside the class folders and names that start with a dot are passed over, as are, and counted, all
/// other files among the images and folders behind a link, unless `options` are strict.
///
/// Headers are looked at before the first image is decoded, for up to 30 seconds. Throws DataError naming the
/// folder or the files, 20 of them and how many more: a class without images, a file that is damaged (with
/// skip_corrupt only if no image of a class is left), a single pixel, an animation, and what is not
/// converted: 16 bits per channel, CMYK, other channels than `size`; Error with ExitCode::memory if the bytes
/// exceed the memory that is available.
std::unique_ptr<ImageSource> open_image_folder(const std::filesystem::path& folder, const ImageSize& size,
                                               const ImageFolderOptions& options = {});

/// Whether a file that is called so is taken for a picture: *.png, *.jpg, *.jpeg, *.webp, *.bmp, in any case.
bool is_image_name(const std::filesystem::path& path);

/// Of a picture as it would be decoded; the first bytes of its file are read, and all where these do not do.
/// Throws DataError naming it.
ImageSize size_in_header(const std::filesystem::path& path, Convert convert);

/// Pictures, by their names, that lie in the folder itself. Throws DataError if it cannot be listed.
int64_t loose_images(const std::filesystem::path& folder);

/// What a folder of images holds, by headers only.
struct ImageFolderSummary {
  std::vector<std::string> classes;  // by label, as messages show them
  int64_t images = 0;                // whose headers can be read
  int64_t passed_over = 0;           // files that are no images, or whose headers cannot be read
  int64_t loose = 0;                 // pictures beside the class folders
  int64_t median_side = 0;           // of the shorter sides, pixels
  bool grey = false;                 // all of them
};
/// Looks for up to 30 seconds, at every image or, of many, at those that come first. Throws DataError as
/// open_image_folder() for a folder without class folders.
ImageFolderSummary summarise_image_folder(const std::filesystem::path& folder, int threads);

}  // namespace dtk
