// draw-garments OUT_FOLDER [--per-class N]: a synthetic image folder for dit-train, for machines without a
// real data set. The same arguments draw the same images.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "garments/garment_shapes.h"
#include "support/arguments.h"
#include "toolkit/core/errors.h"
#include "toolkit/data/image_folder.h"

namespace {

namespace fs = std::filesystem;

constexpr uint64_t seed = 1;

void write_file(const fs::path& path, const std::string& content) {
  std::ofstream file(path, std::ios::binary);
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
  file.close();
  if (!file) throw dtk::FileError(path.string() + ": writing failed; is the disk full?");
}

void draw_all(const fs::path& folder, int64_t per_class) {
  for (size_t garment = 0; garment < garments::class_names.size(); ++garment) {
    const fs::path class_folder = folder / garments::class_names[garment];
    fs::create_directories(class_folder);
    for (int64_t number = 0; number < per_class; ++number) {
      char name[32];
      std::snprintf(name, sizeof name, "%06lld.png", static_cast<long long>(number));
      const dtk::Image image =
          garments::draw(static_cast<int64_t>(garment), seed, static_cast<uint64_t>(number));
      write_file(class_folder / name, dtk::encode_png(image));
    }
  }
  write_file(folder / dtk::synthetic_marker,
             "These images were drawn by draw-garments from simple shapes. They are not photographs.\n");
}

/// Draws under a temporary name first, so that OUT_FOLDER is complete whenever it exists.
void run(fs::path out, int64_t per_class) {
  if (!out.has_filename()) out = out.parent_path();  // "garments/"
  if (per_class < 1 || per_class > 100000) {
    throw dtk::ConfigError("--per-class: " + std::to_string(per_class) +
                           " is out of range; allowed: 1 to 100000");
  }
  if (fs::exists(out)) {
    throw dtk::ConfigError(out.string() + ": already exists; remove it or choose another folder");
  }
  const fs::path partial = out.string() + ".partial";
  fs::remove_all(partial);
  draw_all(partial, per_class);
  fs::rename(partial, out);
  std::cout << "drew " << per_class * static_cast<int64_t>(garments::class_names.size())
            << " synthetic images in " << out.string() << "\n";
}

cxxopts::Options make_options() {
  cxxopts::Options options("draw-garments",
                           "Draws a synthetic image folder of ten kinds of garment, 28x28, grey.");
  options.add_options()("out", "folder to create", cxxopts::value<std::string>())(
      "per-class", "images per class", cxxopts::value<int64_t>()->default_value("400"), "N")("h,help",
                                                                                             "this text");
  options.parse_positional("out");
  options.positional_help("OUT_FOLDER");
  return options;
}

void run_command_line(int argc, char** argv) {
  const cxxopts::Options options = make_options();
  const cxxopts::ParseResult arguments = examples::parsed(options, argc, argv);
  if (arguments.count("help") != 0) {
    std::cout << options.help();
    return;
  }
  if (arguments.count("out") == 0) throw dtk::ConfigError("OUT_FOLDER is missing; see --help");
  run(arguments["out"].as<std::string>(), arguments["per-class"].as<int64_t>());
}

}  // namespace

int main(int argc, char** argv) {
  return examples::exit_code_of("draw-garments", [&] { run_command_line(argc, argv); });
}
