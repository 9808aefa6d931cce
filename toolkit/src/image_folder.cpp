#include <dtk/toolkit/errors.h>
#include <dtk/toolkit/image_folder.h>
#include <dtk/toolkit/pixel_source.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <iterator>

namespace dtk {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path, const std::string& what) {
  throw DataError(path.string() + ": " + what);
}

bool is_hidden(const fs::path& path) {
  return path.filename().string().starts_with('.');
}

std::vector<fs::path> visible_entries(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (!is_hidden(it->path())) entries.push_back(it->path());
  }
  if (error) fail(folder, "cannot be listed: " + error.message());
  std::sort(entries.begin(), entries.end());
  return entries;
}

std::vector<fs::path> class_folders(const fs::path& folder) {
  std::error_code error;
  if (!fs::exists(folder, error)) fail(folder, "no such folder; check data.folder");
  if (!fs::is_directory(folder, error))
    fail(folder, "not a folder; data.folder must hold one folder per class");
  std::vector<fs::path> folders;
  for (const fs::path& entry : visible_entries(folder)) {
    if (fs::is_directory(entry, error)) folders.push_back(entry);
  }
  if (folders.empty()) fail(folder, "has no class folders; images must lie in one folder per class");
  return folders;
}

void check_is_image(const fs::path& path) {
  constexpr std::array<const char*, 4> allowed = {".png", ".jpg", ".jpeg", ".bmp"};
  std::string extension = path.extension().string();
  for (char& c : extension) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  std::error_code error;
  const bool known = std::find(allowed.begin(), allowed.end(), extension) != allowed.end();
  if (!known || !fs::is_regular_file(path, error)) {
    fail(path, "not an image; a class folder may hold only .png, .jpg, .jpeg and .bmp files");
  }
}

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(path, "cannot be opened");
  std::string content{std::istreambuf_iterator<char>(file), {}};
  if (file.bad()) fail(path, "reading failed");
  return content;
}

void check_size(const fs::path& path, const ImageSize& seen, const ImageSize& allowed) {
  if (seen == allowed) return;
  fail(path, "the image is " + shape_text(seen.channels, seen.height, seen.width) +
                 " (channels x height x width); allowed: " +
                 shape_text(allowed.channels, allowed.height, allowed.width) +
                 ", as model.channels and model.image_size say");
}

/// Appends the image as (C, H, W).
void append_image(const fs::path& path, const ImageSize& size, std::vector<uint8_t>& pixels) {
  const std::string encoded = read_file(path);
  check_size(path, encoded_image_size(encoded, path.string()), size);
  const Image image = decode_image(encoded, path.string());
  check_size(path, {.channels = image.channels, .height = image.height, .width = image.width}, size);
  const auto channels = static_cast<size_t>(size.channels);
  for (size_t c = 0; c < channels; ++c) {
    for (size_t i = c; i < image.pixels.size(); i += channels) pixels.push_back(image.pixels[i]);
  }
}

std::string folder_name(const fs::path& folder) {
  const fs::path normal = (folder / "").lexically_normal();
  return normal.parent_path().filename().string();
}

}  // namespace

std::unique_ptr<DataSource> open_image_folder(const fs::path& folder, const ImageSize& size) {
  PixelData data;
  data.channels = size.channels;
  data.height = size.height;
  data.width = size.width;
  for (const fs::path& class_folder : class_folders(folder)) {
    const std::vector<fs::path> files = visible_entries(class_folder);
    if (files.empty()) fail(class_folder, "the class folder is empty; add images or remove it");
    for (const fs::path& file : files) {
      check_is_image(file);
      append_image(file, size, data.pixels);
      data.labels.push_back(data.classes);
    }
    ++data.classes;
  }
  data.pixels.shrink_to_fit();
  std::error_code error;
  const bool synthetic = fs::exists(folder / synthetic_marker, error);
  data.description = std::to_string(data.labels.size()) + (synthetic ? " synthetic" : "") + " images " +
                     shape_text(data.channels, data.height, data.width) + ", " +
                     std::to_string(data.classes) + " classes (image folder, " + folder_name(folder) + ")";
  return std::make_unique<PixelSource>(std::move(data));
}

}  // namespace dtk
