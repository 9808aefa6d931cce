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
  std::string images;
  std::string labels;
  IfMissing if_missing = IfMissing::error;
  std::string folder;
  Convert convert = Convert::none;
  bool strict_folder = false;
  std::string latents;
  double latent_shift = 0.0;
  double latent_scale = 1.0;
  bool flip = false;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [images, labels, if_missing, folder, convert, strict_folder, latents, latent_shift, latent_scale,
           flip] = self;
    visit("images", images, "", "idx: file of images, .gz or plain");
    visit("labels", labels, "", "idx: file of labels, .gz or plain; latents: .npy file of int64");
    visit("if_missing", if_missing, "",
          "idx: where neither file is there the run ends, or trains on drawn garments and says so");
    visit("folder", folder, "", "images: a folder with one folder of pictures for each class");
    visit(
        "convert", convert, "",
        "images: rgb turns grey, 16 bits, CMYK, palettes and transparency into 8-bit RGB; none refuses them");
    visit("strict_folder", strict_folder, "", "images: a file in folder that is no picture is an error");
    visit("latents", latents, "", "latents: .npy file, or .safetensors with tensors latents and labels");
    visit("latent_shift", latent_shift, "(-inf, inf)", "latents: subtracted from what the autoencoder gave");
    visit("latent_scale", latent_scale, "(0, inf)",
          "latents: factor after that, such as 0.18215 for Stable Diffusion's");
    visit("flip", flip, "", "idx, images: mirror left to right with probability 1/2");
  }
  friend bool operator==(const ImageOptions&, const ImageOptions&) = default;
};

/// What [sample] says of a grid, beside the sampler.
struct GridOptions {
  double guidance = 4.0;
  int64_t cfg_channels = 0;
  std::optional<std::string> classes = std::nullopt;
  int64_t per_class = 8;
  int64_t seed = 0;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [guidance, cfg_channels, classes, per_class, seed] = self;
    visit("guidance", guidance, "[1, 100]", "scale of classifier-free guidance; 1: off");
    visit("cfg_channels", cfg_channels, "[0, inf)",
          "channels that are guided, the first ones; 0: all; 3: as the released DiT code");
    visit("classes", classes, R"((classes by name, number or range: "cat,dog", "0-4" or "all"))",
          "rows of a grid; not set: all classes, at most 20");
    visit("per_class", per_class, "[0, 64]", "images in a row; 0: no grids");
    visit("seed", seed, "[0, inf)", "of the noise that grids begin with, the same for all of a run");
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
