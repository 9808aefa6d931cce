#include "toolkit/families/dit/draft.h"

#include <algorithm>
#include <thread>

#include "toolkit/config/toml_text.h"
#include "toolkit/core/format.h"
#include "toolkit/core/numbers.h"
#include "toolkit/core/text.h"
#include "toolkit/data/idx.h"
#include "toolkit/data/image_folder.h"
#include "toolkit/data/latents.h"
#include "toolkit/families/dit/flops.h"

namespace dtk::dit {
namespace {

namespace fs = std::filesystem;

struct PictureShape {
  int64_t image_size = 0, channels = 0, classes = 0;
};

std::string model_table(models::DitPreset name, const std::string& sizes, const PictureShape& shape) {
  return fmt::format(
      "[model]\nname = \"{}\"{}\nimage_size = {}\nchannels = {}\nclasses = {}\nclass_dropout = 0.1  # for "
      "guidance\n",
      policies::text_of(name), sizes, shape.image_size, shape.channels, shape.classes);
}

/// A small one where no published one is quick enough, then the published ones that the size of the images
/// allows.
std::vector<ModelDraft> models_for(const PictureShape& shape) {
  std::vector<std::pair<int64_t, ModelDraft>> priced;
  const auto add = [&](models::DitOptions model, const std::string& sizes) {
    model.image_size = shape.image_size;
    model.channels = shape.channels;
    model.classes = shape.classes;
    priced.emplace_back(forward_multiply_adds(model),
                        ModelDraft{policies::text_of(model.name), model_table(model.name, sizes, shape)});
  };
  const int64_t patch = shape.image_size % 4 == 0 ? 4 : shape.image_size % 2 == 0 ? 2 : 1;
  models::DitOptions own;
  own.depth = 6;
  own.hidden = 192;
  own.heads = 3;
  own.patch = patch;
  add(own, fmt::format("  # no published size is quick enough here\ndepth = 6\nhidden = 192\nheads = 3\n"
                       "patch = {}",
                       patch));
  for (size_t i = 0; i < enum_texts(models::DitPreset()).size(); ++i) {
    models::DitOptions model;
    model.name = static_cast<models::DitPreset>(i);
    const std::optional<models::DitSize> size = models::published_size(model.name);
    if (!size || shape.image_size % size->patch != 0 || shape.image_size / size->patch < 4) continue;
    add(model,
        fmt::format("  # {} tokens", (shape.image_size / size->patch) * (shape.image_size / size->patch)));
  }
  std::sort(priced.begin(), priced.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  // The own one only below all others.
  const std::string own_name = policies::text_of(own.name);
  const auto custom = std::find_if(priced.begin(), priced.end(),
                                   [&](const auto& one) { return one.second.name == own_name; });
  std::rotate(priced.begin(), custom, custom + 1);
  std::vector<ModelDraft> models;
  for (auto& [cost, draft] : priced) models.push_back(std::move(draft));
  return models;
}

constexpr char kRest[] =
    "[optimizer]\nlr = 3e-4\nbeta2 = 0.99\n\n[schedule]\nwarmup = 100\n\n[policies.ema]\n"
    "decay = 0.999  # an average over some 1,000 steps\n\n[sample]\nper_class = 4\nsteps = 20\nguidance = "
    "2.0\n";

std::string name_of(const fs::path& data) {
  const fs::path normal = (data / "").lexically_normal().parent_path();
  const std::string name = fs::is_directory(data) ? normal.filename().string() : data.stem().stem().string();
  return name.empty() || name == "." || name == ".." ? "mine" : name;
}

/// Images are drawn no larger than this where nothing says that it pays.
int64_t side_for(int64_t median, bool small) {
  const int64_t most = small ? 32 : 64;
  return std::max<int64_t>(8, std::min(most, median / 8 * 8));
}

std::string class_lines(const std::vector<std::string>& names) {
  constexpr size_t most = 20;
  std::string lines;
  for (size_t label = 0; label < std::min(most, names.size()); ++label)
    lines += fmt::format("#   {} {}\n", label, names[label]);
  if (names.size() > most) lines += fmt::format("#   and {} more\n", names.size() - most);
  return lines;
}

DataDraft of_folder(const fs::path& folder, bool small) {
  const int threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const ImageFolderSummary seen = summarise_image_folder(folder, threads);
  if (seen.images == 0) {
    throw DataError(shown(folder) +
                    ": no picture in it can be read; wanted: one folder per class, with .png, .jpg, "
                    ".webp or .bmp files");
  }
  const PictureShape shape{side_for(seen.median_side, small), seen.grey ? 1 : 3, std::ssize(seen.classes)};
  DataDraft draft;
  draft.found =
      fmt::format("{} in {}, {}, half of them at least {} pixels on the shorter side{}",
                  count_text(seen.images, "picture"),
                  seen.classes.size() == 1 ? "1 class" : fmt::format("{} classes", seen.classes.size()),
                  seen.grey ? "all grey" : "in colour", seen.median_side,
                  seen.passed_over > 0 ? fmt::format("; {} other files", seen.passed_over) : "");
  if (seen.loose > 0)
    draft.found +=
        fmt::format("; {} beside the class folders are left out", count_text(seen.loose, "picture"));
  draft.name = name_of(folder);
  draft.samples = seen.images;
  draft.holds_out = true;
  draft.data = fmt::format(
      "# {}. Classes by label:\n{}kind = \"images\"\nfolder = {}\non_corrupt = \"skip\"  # leaves out what "
      "cannot "
      "be decoded, and says how many\nflip = true           # not for letters and digits\n",
      draft.found, class_lines(seen.classes), toml_text(folder.string()));
  draft.models = models_for(shape);
  draft.rest = kRest;
  return draft;
}

DataDraft of_source(const ImageSource& source, const fs::path& data, const std::string& lines) {
  DataDraft draft;
  draft.found = source.description();
  draft.name = name_of(data);
  draft.samples = source.size();
  draft.holds_out = true;
  draft.data = fmt::format("# {}\n{}", draft.found, lines);
  draft.models = models_for({source.height(), source.channels(), source.classes()});
  draft.rest = kRest;
  return draft;
}

/// train-labels-idx1-ubyte for train-images-idx3-ubyte; "" for a name that is none of these.
std::string labels_beside(const fs::path& images) {
  std::string name = images.filename().string();
  const size_t at = name.find("images");
  if (at == std::string::npos) return "";
  name.replace(at, 6, "labels");
  if (const size_t idx = name.find("idx3"); idx != std::string::npos) name.replace(idx, 4, "idx1");
  return (images.parent_path() / name).string();
}

std::optional<DataDraft> of_file(const fs::path& file) {
  const std::string extension = file.extension().string();
  if (extension == ".safetensors" || extension == ".npy") {
    const fs::path labels = file.parent_path() / "labels.npy";
    std::error_code error;
    const bool beside = extension == ".npy" && fs::exists(labels, error);
    const auto source = open_latents({.latents = file, .labels = beside ? labels : fs::path()});
    return of_source(
        *source, file,
        fmt::format("kind = \"latents\"\nlatents = {}\n{}latent_scale = 1.0  # 0.18215 for raw "
                    "latents of Stable Diffusion's autoencoder\n",
                    toml_text(file.string()), beside ? "labels = " + toml_text(labels.string()) + "\n" : ""));
  }
  const std::string labels = labels_beside(file);
  std::error_code error;
  if (labels.empty() || !fs::exists(labels, error)) return std::nullopt;
  const auto source = open_idx(file, labels);
  return of_source(
      *source, fs::absolute(file).parent_path(),
      fmt::format("kind = \"idx\"\nimages = {}\nlabels = {}\n", toml_text(file.string()), toml_text(labels)));
}

/// The images of a training set that lie in the folder.
fs::path idx_in(const fs::path& folder) {
  std::error_code error;
  for (const char* name : {"train-images-idx3-ubyte.gz", "train-images-idx3-ubyte"})
    if (fs::exists(folder / name, error)) return folder / name;
  return {};
}

bool has_folders(const fs::path& folder) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const bool hidden = it->path().filename().string().starts_with('.');
    if (!hidden && it->is_directory(error)) return true;
  }
  return false;
}

}  // namespace

std::optional<DataDraft> draft_of_images(const fs::path& data, bool small) {
  std::error_code error;
  if (!fs::is_directory(data, error)) return of_file(data);
  if (const fs::path idx = idx_in(data); !idx.empty()) return of_file(idx);
  if (!has_folders(data)) {
    if (loose_images(data) == 0) return std::nullopt;
    throw DataError(shown(data) +
                    ": the pictures lie in no class folder; move them into one for each class, or for all: " +
                    shown(data / "all"));
  }
  return of_folder(data, small);
}

}  // namespace dtk::dit
