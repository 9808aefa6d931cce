#include "toolkit/data/image_folder.h"

#include <dtk/policies/advice.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <thread>

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

using policies::advise;

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
  std::sort(folders.begin(), folders.end(), [](const fs::path& a, const fs::path& b) {
    return natural_less(a.filename().string(), b.filename().string());
  });
  return folders;
}

constexpr uint64_t max_file_bytes = uint64_t{512}
                                    << 20;  // beyond any picture of as many pixels as are allowed

/// The first bytes of a file, `most` or all of it. Sets `bytes` to its size.
std::string read_file(const fs::path& path, uint64_t most, int64_t& bytes) {
  const std::unique_ptr<ReadableFile> file = open_data(path);
  if (file->size() > max_file_bytes) {
    refuse_data(
        path, fmt::format("has {} bytes; allowed: up to {}; make it smaller", file->size(), max_file_bytes));
  }
  bytes = static_cast<int64_t>(file->size());
  std::string content(std::min(file->size(), most), '\0');
  file->read_into(0, content.data(), content.size());
  return content;
}

struct FolderEntry {
  fs::path path;
  int64_t label;
  int64_t bytes = 0;  // once it was read
};

/// What is wrong with files, each with its path; told together.
class Problems {
 public:
  void add(std::string text) { texts_.push_back(std::move(text)); }
  void add(const fs::path& path, const std::string& what) { add(shown(path) + ": " + what); }

  /// Throws DataError if there are any.
  void check(const fs::path& folder) const {
    if (texts_.empty()) return;
    if (texts_.size() == 1) throw DataError(texts_.front());
    constexpr size_t most = 20;
    std::string message = fmt::format("{}: {} files cannot be used:", shown(folder), texts_.size());
    for (size_t i = 0; i < std::min(most, texts_.size()); ++i) message += "\n  " + texts_[i];
    if (texts_.size() > most) message += fmt::format("\n  and {} more", texts_.size() - most);
    throw DataError(message);
  }

 private:
  std::vector<std::string> texts_;
};

struct Listed {
  std::vector<FolderEntry> images;  // by label, then by name
  int64_t passed_over = 0;          // files that are no images
  std::string first_passed_over;
};

/// Looked at before anything is decoded, which takes longer.
class Lister {
 public:
  explicit Lister(bool strict) : strict_(strict) {}

  Listed list(const fs::path& folder, const std::vector<fs::path>& classes) {
    for (size_t label = 0; label < classes.size(); ++label) {
      const size_t before = listed_.images.size();
      list_class(classes[label], static_cast<int64_t>(label));
      if (listed_.images.size() == before)
        problems_.add(classes[label], "the class folder has no image; add images or remove it");
    }
    problems_.check(folder);
    return std::move(listed_);
  }

 private:
  void list_class(const fs::path& folder, int64_t label) {
    for (const fs::path& entry : visible_entries(folder)) {
      std::error_code error;
      const bool is_link = fs::is_symlink(entry, error);
      if (fs::is_directory(entry, error)) {
        if (strict_ || is_link) {
          pass_over(entry);
        } else {
          list_class(entry, label);
        }
      } else if (!is_image_name(entry)) {
        pass_over(entry);
      } else if (!fs::exists(entry, error)) {
        problems_.add(entry, "a link to a file that is not there; restore the file, or remove the link");
      } else if (!fs::is_regular_file(entry, error)) {
        problems_.add(entry, "not a file that can be read as a whole; a class folder may hold only images");
      } else {
        listed_.images.push_back({entry, label});
      }
    }
  }

  void pass_over(const fs::path& entry) {
    if (strict_) {
      return problems_.add(entry,
                           "not an image; with data.strict_folder = true a class folder may hold only .png, "
                           ".jpg, .jpeg, .webp and .bmp files");
    }
    if (listed_.passed_over++ == 0) listed_.first_passed_over = shown(entry);
  }

  const bool strict_;
  Listed listed_;
  Problems problems_;
};

void check_seen(const fs::path& path, const ImageSize& seen, const ImageSize& wanted) {
  if (seen.channels != wanted.channels) {
    const std::string remedy = wanted.channels == 3
                                   ? advise("data.convert", "\"rgb\"")
                                   : advise("model.channels", "3") + ", for which all are converted";
    refuse_data(
        path,
        fmt::format("the image has {} channel{}; allowed: {}, as model.channels says; convert it, or {}",
                    seen.channels, seen.channels == 1 ? "" : "s", wanted.channels, remedy));
  }
  if (seen == wanted) return;
  constexpr int64_t max_pixels = 100'000'000;  // decoded, an image is as large as its header says
  if (seen.height > max_pixels / seen.width) {
    throw CorruptImage(fmt::format("{}: the image has {} x {} pixels; allowed: up to {}; make it smaller",
                                   shown(path), seen.height, seen.width, max_pixels));
  }
  if (seen.height == 1 && seen.width == 1) {
    throw CorruptImage(shown(path) + ": the image is a single pixel, which stands for no picture; remove it");
  }
  if (wanted.height != wanted.width) {
    throw std::invalid_argument(
        "open_image_folder: only images of exactly the size can be other than square");
  }
}

/// Calls look(encoded) with the first bytes of a file, and, where these do not do, with all of them.
template <class Look>
void look_at_header(const fs::path& path, const Look& look) {
  constexpr uint64_t usual = 1 << 14;  // of a JPEG with a preview the header may lie behind it
  int64_t bytes = 0;
  const std::string begin = read_file(path, usual, bytes);
  try {
    return look(begin);
  } catch (const DataError&) {
    if (bytes == std::ssize(begin)) throw;
  }
  look(read_file(path, max_file_bytes, bytes));
}

/// Writes the image as (C, H, W). Returns the bytes of its file.
int64_t decode_into(const fs::path& path, const ImageSize& size, Convert convert, uint8_t* pixels) {
  int64_t bytes = 0;
  const std::string encoded = read_file(path, max_file_bytes, bytes);
  check_seen(path, encoded_image_size(encoded, shown(path), convert), size);
  Image image = decode_image(encoded, shown(path), convert);
  check_seen(path, {.channels = image.channels, .height = image.height, .width = image.width}, size);
  if (image.height != size.height || image.width != size.width) image = resize_and_crop(image, size.height);
  const auto channels = static_cast<size_t>(size.channels);
  for (size_t c = 0; c < channels; ++c) {
    for (size_t i = c; i < image.pixels.size(); i += channels) *pixels++ = image.pixels[i];
  }
  return bytes;
}

/// Calls look(entry) for each of `entries` by several threads; `what`: for the progress. Returns what was
/// wrong, in their order, which does not depend on the threads; a corrupt image is none where these are
/// skipped: its reason goes to `skipped`.
template <class Look>
Problems look_at(const std::vector<FolderEntry>& entries, const ImageFolderOptions& options, const char* what,
                 std::vector<std::string>& skipped, const Look& look) {
  const auto count = static_cast<int64_t>(entries.size());
  std::vector<std::string> wrong(entries.size());  // each is written by one thread
  std::atomic<int64_t> done = 0;
  const std::thread::id caller = std::this_thread::get_id();
  if (options.progress) options.progress(what, 0, count);
  ThreadTeam(std::min<int64_t>(options.threads, count)).run(count, [&](int64_t number) {
    const auto i = static_cast<size_t>(number);
    try {
      look(i);
    } catch (const CorruptImage& corrupt) {
      (options.skip_corrupt ? skipped : wrong)[i] = corrupt.what();
    } catch (const DataError& error) {
      wrong[i] = error.what();
    }
    ++done;
    if (options.progress && std::this_thread::get_id() == caller) options.progress(what, done, count);
  });
  if (options.progress) options.progress(what, count, count);
  Problems problems;
  for (std::string& text : wrong) {
    if (!text.empty()) problems.add(std::move(text));
  }
  return problems;
}

/// Whatever is wrong with headers is told before any picture is decoded, which takes far longer; or when it
/// is decoded, of those that there was no time for.
void check_headers(const fs::path& folder, const std::vector<FolderEntry>& entries, const ImageSize& size,
                   const ImageFolderOptions& options) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::seconds(30);
  std::vector<std::string> skipped(entries.size());
  look_at(entries, options, "looking at pictures", skipped, [&](size_t i) {
    if (Clock::now() > end) return;
    const fs::path& path = entries[i].path;
    check_seen(path, size_in_header(path, options.convert), size);
  }).check(folder);
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

/// Decodes the images of a folder into `data`, those that are whole together, and takes the others off
/// `entries`.
void decode(const fs::path& folder, std::vector<FolderEntry>& entries, const ImageSize& size,
            const ImageFolderOptions& options, PixelData& data) {
  const auto image_bytes = static_cast<size_t>(size.channels * size.height * size.width);
  check_memory(entries.size(), entries.size() * image_bytes, size);
  data.pixels.resize(entries.size() * image_bytes);
  std::vector<std::string> reasons(entries.size());  // why an image is left out
  look_at(entries, options, "decoding pictures", reasons, [&](size_t i) {
    entries[i].bytes =
        decode_into(entries[i].path, size, options.convert, data.pixels.data() + i * image_bytes);
  }).check(folder);
  size_t kept = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (!reasons[i].empty()) {
      constexpr size_t most = 3;
      ++data.remarks.skipped;
      if (data.remarks.reasons.size() < most) data.remarks.reasons.push_back(reasons[i]);
      continue;
    }
    const size_t to = kept * image_bytes, from = i * image_bytes;
    if (to != from) {
      std::memmove(data.pixels.data() + to, data.pixels.data() + from, image_bytes);
      entries[kept] = std::move(entries[i]);
    }
    ++kept;
  }
  entries.resize(kept);
  data.pixels.resize(kept * image_bytes);
}

/// Labels and names of `entries`, whose pixels `data` holds; they are sorted by label.
void name_samples(const std::vector<FolderEntry>& entries, const std::vector<fs::path>& folders,
                  PixelData& data) {
  auto entry = entries.begin();
  for (size_t label = 0; label < folders.size(); ++label) {
    const std::string folder = folders[label].filename().string();
    ClassDigest digest;
    for (; entry != entries.end() && entry->label == static_cast<int64_t>(label); ++entry) {
      const std::string name = entry->path.lexically_relative(folders[label]).string();
      digest.add(name, 0, entry->bytes);
      data.labels.push_back(entry->label);
      data.sample_names.push_back(folder + "/" + name);
    }
    data.identity.classes.push_back(digest.finish(static_cast<int64_t>(label), printable(shown(folder))));
  }
  data.class_names = names_in(data.identity);
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

ImageSize size_in_header(const fs::path& path, Convert convert) {
  ImageSize size;
  look_at_header(
      path, [&](const std::string& encoded) { size = encoded_image_size(encoded, shown(path), convert); });
  return size;
}

bool is_image_name(const fs::path& path) {
  std::string extension = path.extension().string();
  for (char& c : extension) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return is_one_of(extension, {".png", ".jpg", ".jpeg", ".webp", ".bmp"});
}

int64_t loose_images(const fs::path& folder) {
  std::error_code error;
  int64_t count = 0;
  for (const fs::path& entry : visible_entries(folder))
    count += is_image_name(entry) && fs::is_regular_file(entry, error) ? 1 : 0;
  return count;
}

std::unique_ptr<ImageSource> open_image_folder(const fs::path& folder, const ImageSize& size,
                                               const ImageFolderOptions& options) {
  const std::vector<fs::path> folders = class_folders(folder);
  Listed listed = Lister(options.strict).list(folder, folders);
  std::vector<FolderEntry>& entries = listed.images;
  check_headers(folder, entries, size, options);
  PixelData data;
  data.channels = size.channels;
  data.height = size.height;
  data.width = size.width;
  data.classes = static_cast<int64_t>(folders.size());
  decode(folder, entries, size, options, data);
  name_samples(entries, folders, data);
  check_classes_left(folders, data.labels);
  data.remarks.loose = loose_images(folder);
  data.remarks.passed_over = listed.passed_over;
  data.remarks.first_passed_over = listed.first_passed_over;
  std::error_code error;
  data.remarks.synthetic = fs::exists(folder / synthetic_marker, error);
  data.description =
      fmt::format("{}{} images {}, {} classes (image folder, {})", data.labels.size(),
                  data.remarks.synthetic ? " synthetic" : "",
                  shape_text(data.channels, data.height, data.width), data.classes, folder_name(folder));
  return std::make_unique<PixelSource>(std::move(data));
}

ImageFolderSummary summarise_image_folder(const fs::path& folder, int threads) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::seconds(30);
  ImageFolderSummary summary;
  const std::vector<fs::path> folders = class_folders(folder);
  for (const fs::path& one : folders) summary.classes.push_back(printable(shown(one.filename())));
  const Listed listed = Lister(/*strict=*/false).list(folder, folders);
  std::vector<ImageSize> sizes(listed.images.size());
  std::vector<char> grey(sizes.size());
  const auto count = static_cast<int64_t>(sizes.size());
  ThreadTeam(std::min<int64_t>(threads, count)).run(count, [&](int64_t number) {
    const auto i = static_cast<size_t>(number);
    if (Clock::now() > end) return;
    try {
      look_at_header(listed.images[i].path, [&](const std::string& encoded) {
        const std::string name = shown(listed.images[i].path);
        sizes[i] = encoded_image_size(encoded, name, Convert::rgb);
        grey[i] = encoded_image_size(encoded, name).channels == 1 ? 1 : 0;
      });
    } catch (const DataError&) {  // of another kind, or damaged, which the training will say
    }
  });
  std::vector<int64_t> sides;
  bool all_grey = true;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i].width == 0) continue;
    sides.push_back(std::min(sizes[i].width, sizes[i].height));
    all_grey = all_grey && grey[i] != 0;
  }
  summary.loose = loose_images(folder);
  summary.images = std::ssize(sides);
  summary.passed_over = listed.passed_over + count - summary.images;
  if (sides.empty()) return summary;
  std::nth_element(sides.begin(), sides.begin() + summary.images / 2, sides.end());
  summary.median_side = sides[static_cast<size_t>(summary.images / 2)];
  summary.grey = all_grey;
  return summary;
}

}  // namespace dtk
