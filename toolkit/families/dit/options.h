// Options of a DiT's training beside those of all runs: model, objective, images, grids. Free of LibTorch.
#pragma once
#include <dtk/models/dit_options.h>

#include <cstdint>
#include <optional>
#include <string>

#include "toolkit/config/config.h"
#include "toolkit/config/options_of.h"
#include "toolkit/data/convert.h"
#include "toolkit/diffusion/options.h"

namespace dtk::dit {

/// data.kind: MNIST-style files; a folder per class; latents of an autoencoder; made-up samples of the
/// model's shape.
enum class ImageKind { idx, images, latents, synthetic };
constexpr auto enum_texts(ImageKind) {
  return std::array{"idx", "images", "latents", "synthetic"};
}

/// data.if_missing: where the files of `idx` are not there, a run ends, or trains on drawn garments and says
/// so.
enum class IfMissing { error, drawn };
constexpr auto enum_texts(IfMissing) {
  return std::array{"error", "drawn"};
}

/// What [data] says of images.
struct ImageOptions {
  std::string images;                       // idx: image file, .gz or plain
  std::string labels;                       // idx: label file, .gz or plain; latents: .npy file of int64
  IfMissing if_missing = IfMissing::error;  // idx: for want of both files
  std::string folder;                       // images: folder with one sub-folder per class
  Convert convert = Convert::none;          // images: of other kinds than the model's; rgb with 3 channels
  bool strict_folder = false;               // images: anything else among them is an error
  std::string latents;        // latents: .npy, or .safetensors with tensors "latents" and "labels"
  double latent_shift = 0.0;  // latents: taken off what the autoencoder gave, as that of FLUX.1 wants
  double latent_scale = 1.0;  // latents: factor after that, e.g. 0.18215 for Stable Diffusion's autoencoder
  bool flip = false;          // idx, images: mirror left to right with probability 1/2

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [images, labels, if_missing, folder, convert, strict_folder, latents, latent_shift, latent_scale,
           flip] = self;
    visit("images", images, "");
    visit("labels", labels, "");
    visit("if_missing", if_missing, "");
    visit("folder", folder, "");
    visit("convert", convert, "");
    visit("strict_folder", strict_folder, "");
    visit("latents", latents, "");
    visit("latent_shift", latent_shift, "(-inf, inf)");
    visit("latent_scale", latent_scale, "(0, inf)");
    visit("flip", flip, "");
  }
  friend bool operator==(const ImageOptions&, const ImageOptions&) = default;
};

/// What [sample] says of a grid, beside the sampler.
struct GridOptions {
  double guidance = 4.0;     // classifier-free guidance scale; 1: off
  int64_t cfg_channels = 0;  // channels guided; 0: all; 3: as the released DiT code
  // Rows of a grid; absent: all of the model's classes, but no more than the first 20.
  std::optional<std::string> classes = std::nullopt;
  int64_t per_class = 8;  // images per class in a grid; 0: no grids
  int64_t seed = 0;       // noise of a grid, the same for all grids of a run

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [guidance, cfg_channels, classes, per_class, seed] = self;
    visit("guidance", guidance, "[1, 100]");
    visit("cfg_channels", cfg_channels, "[0, inf)");
    visit("classes", classes, R"((classes by name, number or range: "cat,dog", "0-4" or "all"))");
    visit("per_class", per_class, "[0, 64]");
    visit("seed", seed, "[0, inf)");
  }
  friend bool operator==(const GridOptions&, const GridOptions&) = default;
};

/// `options`, acting where they do in a DiT if nobody says.
inline policies::PolicyOptions policy_defaults(policies::PolicyOptions options = {}) {
  options.checkpoint.targets = {models::dit_checkpoint_target};
  options.precision.fp32 = {models::dit_fp32_end};
  return options;
}

struct Options {
  models::DitOptions model;
  DiffusionOptions diffusion;
  ImageOptions data;
  SamplerOptions sampler;
  GridOptions grid;

  template <class Self, class Visit>
  static void tables(Self& self, Visit&& visit) {
    auto& [model, diffusion, data, sampler, grid] = self;
    visit("model", model);
    visit("diffusion", diffusion);
    visit("data", data);
    visit("sample", sampler);
    visit("sample", grid);
  }
  friend bool operator==(const Options&, const Options&) = default;
};

inline constexpr OptionsOf<Options> options_of;

/// Throws std::bad_optional_access if it is another family's, which the rules refuse.
inline ImageKind image_kind(const RunConfig& config) {
  return policies::parse_enum<ImageKind>(config.data.kind).value();
}

}  // namespace dtk::dit
