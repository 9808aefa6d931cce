#include "toolkit/data/image_folder.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <stdexcept>

#include "toolkit/core/format.h"
#include "toolkit/core/numbers.h"
#include "toolkit/core/text.h"
#include "toolkit/core/thread_team.h"
#include "toolkit/data/image.h"
#include "toolkit/data/pixel_source.h"
#include "toolkit/device/device.h"
#include "toolkit/io/advice.h"
#include "toolkit/io/file_system.h"

namespace dtk {
namespace {

namespace fs = std::filesystem;

bool is_hidden(const fs::path& path) {
  return path.filename().string().starts_with('.');
}

std::vector<fs::path> visible_entries(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (!is_hidden(it->path())) entries.push_back(it->path());
  }
  if (error) refuse_data(folder, "cannot be listed: " + error.message() + "; check its permissions");
  std::sort(entries.begin(), entries.end());
  return entries;
}

std::vector<fs::path> class_folders(const fs::path& folder) {
  std::error_code error;
  if (!fs::exists(folder, error)) refuse_data(folder, "no such folder; check data.folder");
  if (!fs::is_directory(folder, error))
    refuse_data(folder, "not a folder; data.folder must hold one folder per class");
  std::vector<fs::path> folders;
  for (const fs::path& entry : visible_entries(folder)) {
    if (fs::is_directory(entry, error)) folders.push_back(entry);
  }
  if (folders.empty()) refuse_data(folder, "has no class folders; images must lie in one folder per class");
  return folders;
}

void check_is_image(const fs::path& path) {
  constexpr std::array<const char*, 4> allowed = {".png", ".jpg", ".jpeg", ".bmp"};
  std::string extension = path.extension().string();
  for (char& c : extension) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  std::error_code error;
  const bool known = std::find(allowed.begin(), allowed.end(), extension) != allowed.end();
  if (!known || fs::is_directory(path, error)) {
    refuse_data(path, "not an image; a class folder may hold only .png, .jpg, .jpeg and .bmp files");
  }
  if (!fs::exists(path, error)) {
    refuse_data(path, "a link to a file that is not there; restore the file, or remove the link");
  }
  if (!fs::is_regular_file(path, error)) {
    refuse_data(path, "not a file that can be read as a whole; a class folder may hold only images");
  }
}

std::string read_file(const fs::path& path) {
  constexpr uint64_t most = uint64_t{512} << 20;  // beyond any picture of as many pixels as are allowed
  const std::unique_ptr<ReadableFile> file = open_data(path);
  if (file->size() > most)
    refuse_data(path, fmt::format("has {} bytes; allowed: up to {}; make it smaller", file->size(), most));
  std::string content(file->size(), '\0');
  file->read_into(0, content.data(), content.size());
  return content;
}

struct FolderEntry {
  fs::path path;
  int64_t label;
};

/// Looked at before anything is decoded, which takes longer.
std::vector<FolderEntry> list_images(const std::vector<fs::path>& folders) {
  std::vector<FolderEntry> entries;
  for (size_t label = 0; label < folders.size(); ++label) {
    const std::vector<fs::path> files = visible_entries(folders[label]);
    if (files.empty()) refuse_data(folders[label], "the class folder is empty; add images or remove it");
    for (const fs::path& file : files) {
      check_is_image(file);
      entries.push_back({file, static_cast<int64_t>(label)});
    }
  }
  return entries;
}

void check_seen(const fs::path& path, const ImageSize& seen, const ImageSize& wanted) {
  if (seen.channels != wanted.channels) {
    const std::string remedy =
        are_images(seen.channels) ? fmt::format(", or set model.channels = {}", seen.channels) : "";
    refuse_data(path,
                fmt::format("the image has {} channel{}; allowed: {}, as model.channels says; convert it{}",
                            seen.channels, seen.channels == 1 ? "" : "s", wanted.channels, remedy));
  }
  if (seen == wanted) return;
  constexpr int64_t max_pixels = 100'000'000;  // decoded, an image is as large as its header says
  if (seen.height > max_pixels / seen.width) {
    refuse_data(path, fmt::format("the image has {} x {} pixels; allowed: up to {}; make it smaller",
                                  seen.height, seen.width, max_pixels));
  }
  if (seen.height == 1 && seen.width == 1) {
    throw CorruptImage(shown(path) + ": the image is a single pixel, which stands for no picture; remove it");
  }
  if (wanted.height != wanted.width) {
    throw std::invalid_argument(
        "open_image_folder: only images of exactly the size can be other than square");
  }
}

/// Writes the image as (C, H, W).
void decode_into(const fs::path& path, const ImageSize& size, uint8_t* pixels) {
  const std::string encoded = read_file(path);
  check_seen(path, encoded_image_size(encoded, shown(path)), size);
  Image image = decode_image(encoded, shown(path));
  check_seen(path, {.channels = image.channels, .height = image.height, .width = image.width}, size);
  if (image.height != size.height || image.width != size.width) image = resize_and_crop(image, size.height);
  const auto channels = static_cast<size_t>(size.channels);
  for (size_t c = 0; c < channels; ++c) {
    for (size_t i = c; i < image.pixels.size(); i += channels) *pixels++ = image.pixels[i];
  }
}

void check_memory(size_t images, size_t bytes, const ImageSize& size) {
  const auto available = available_bytes();
  if (!available || static_cast<int64_t>(bytes) <= *available) return;
  throw Error(ExitCode::memory,
              fmt::format("{} images {} take {} of memory, and {} are available; train on fewer or smaller "
                          "images, or on latents (data.kind = \"latents\"), which stay in their file",
                          images, shape_text(size.channels, size.height, size.width),
                          readable_bytes(static_cast<int64_t>(bytes)), readable_bytes(*available)));
}

/// Decodes the images of a folder into `data`, those that are whole together, with their labels. The outcome
/// does not depend on how many threads there are: of several errors the one of the first file counts.
void decode(const std::vector<FolderEntry>& entries, const ImageSize& size, const ImageFolderOptions& options,
            PixelData& data) {
  const auto image_bytes = static_cast<size_t>(size.channels * size.height * size.width);
  check_memory(entries.size(), entries.size() * image_bytes, size);
  data.pixels.resize(entries.size() * image_bytes);
  std::vector<std::string> reasons(
      entries.size());  // why an image is left out; each is written by one thread
  const auto count = static_cast<int64_t>(entries.size());
  ThreadTeam(std::min<int64_t>(options.threads, count)).run(count, [&](int64_t number) {
    const auto i = static_cast<size_t>(number);
    try {
      decode_into(entries[i].path, size, data.pixels.data() + i * image_bytes);
    } catch (const CorruptImage& corrupt) {
      if (!options.skip_corrupt) throw;
      reasons[i] = corrupt.what();
    }
  });
  for (size_t i = 0; i < entries.size(); ++i) {
    if (!reasons[i].empty()) {
      constexpr size_t most = 3;
      ++data.remarks.skipped;
      if (data.remarks.reasons.size() < most) data.remarks.reasons.push_back(reasons[i]);
      continue;
    }
    const size_t to = data.labels.size() * image_bytes, from = i * image_bytes;
    if (to != from) std::memmove(data.pixels.data() + to, data.pixels.data() + from, image_bytes);
    data.labels.push_back(entries[i].label);
  }
  data.pixels.resize(data.labels.size() * image_bytes);
}

/// Corrupt files may go, classes may not: the others would be renumbered. `labels` ascend.
void check_classes_left(const std::vector<fs::path>& folders, const std::vector<int64_t>& labels) {
  for (size_t label = 0; label < folders.size(); ++label) {
    if (std::binary_search(labels.begin(), labels.end(), static_cast<int64_t>(label))) continue;
    refuse_data(folders[label],
                "no image of this class folder can be decoded; replace them or remove the folder");
  }
}

std::string folder_name(const fs::path& folder) {
  const fs::path normal = (folder / "").lexically_normal();
  return normal.parent_path().filename().string();
}

}  // namespace

std::unique_ptr<ImageSource> open_image_folder(const fs::path& folder, const ImageSize& size,
                                               const ImageFolderOptions& options) {
  const std::vector<fs::path> folders = class_folders(folder);
  const std::vector<FolderEntry> entries = list_images(folders);
  PixelData data;
  data.channels = size.channels;
  data.height = size.height;
  data.width = size.width;
  data.classes = static_cast<int64_t>(folders.size());
  decode(entries, size, options, data);
  check_classes_left(folders, data.labels);
  std::error_code error;
  data.remarks.synthetic = fs::exists(folder / synthetic_marker, error);
  data.description =
      fmt::format("{}{} images {}, {} classes (image folder, {})", data.labels.size(),
                  data.remarks.synthetic ? " synthetic" : "",
                  shape_text(data.channels, data.height, data.width), data.classes, folder_name(folder));
  return std::make_unique<PixelSource>(std::move(data));
}

}  // namespace dtk
