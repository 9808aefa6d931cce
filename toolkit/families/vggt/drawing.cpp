#include "toolkit/families/vggt/drawing.h"

#include <dtk/policies/enum_text.h>

#include <algorithm>

#include "toolkit/config/locations.h"
#include "toolkit/config/rules.h"
#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/core/numbers.h"
#include "toolkit/core/text.h"
#include "toolkit/families/vggt/inference.h"
#include "toolkit/families/vggt/options.h"
#include "toolkit/families/vggt/pictures.h"
#include "toolkit/families/vggt/scene_files.h"
#include "toolkit/io/json.h"
#include "toolkit/train/apply_policies.h"

namespace dtk::vggt {
namespace {

void choose_heads(models::VggtOptions& model, const std::string& list) {
  model.camera = model.depths = model.points = false;
  for (const std::string& part : split(list, ',')) {
    const auto head = policies::parse_enum<Head>(part);
    if (!head)
      throw ConfigError(fmt::format("--heads {}: {} is no head; allowed: {}", list, in_quotes(part),
                                    policies::choices_of<Head>()));
    model.camera |= head == Head::camera;
    model.depths |= head == Head::depth;
    model.points |= head == Head::points;
  }
}

class SceneDrawing final : public Drawing {
 public:
  SceneDrawing(FileSystem& files, const SampleSource& source, const SampleArguments& arguments)
      : source_(source), out_(arguments.out), confidence_(arguments.given<double>("confidence")) {
    check_policies();
    SceneFiles::check_folder(files, out_, source_.random);
    models::VggtOptions& model = options_of(source_.config).model;
    if (const auto heads = arguments.given<std::string>("heads")) {
      std::vector<std::string>& fp32 = source_.config.policies.precision.fp32;
      const bool is_default = fp32 == models::head_paths(model);
      choose_heads(model, *heads);
      if (is_default) fp32 = models::head_paths(model);
    }
    const models::VggtOptions sizes = models::resolved(model);
    const std::string folder = arguments.given<std::string>("images").value();
    pictures_ = std::make_shared<const Pictures>(folder, *sizes.patch, *sizes.image,
                                                 arguments.given<bool>("as-is").value_or(false));
    if (confidence_ && !has_points())
      throw ConfigError(
          fmt::format("--confidence {}: without points there is nothing to choose; name the heads "
                      "camera and depth, or points, or leave it out",
                      *confidence_));
  }

  std::string counted() const override { return count_text(pictures_->size(), "frame"); }
  std::string remark() const override { return remark_; }
  std::vector<std::string> notes() const override {
    std::vector<std::string> lines;
    if (source_.random) lines.emplace_back(kRandomNote);
    for (const std::string& policy : asked_for_training())
      lines.push_back("policies." + policy + ".enabled = true is for training; nothing is trained here");
    lines.push_back(pictures_->description());
    const auto& tensors = source_.weights.tensors;
    const auto tracks = std::count_if(tensors.begin(), tensors.end(),
                                      [](const auto& one) { return one.name.starts_with("track_head."); });
    if (tracks > 0)
      lines.push_back(fmt::format("track_head: {} tensors are not read, no such head is built", tracks));
    return lines;
  }

  bool draw_to(FileSystem& files, c10::Device device, const KeepGoing& keep_going) const override try {
    const Scene scene{pictures_->size(), pictures_->height(), pictures_->width(),
                      [this](int64_t first, int64_t count) { return pictures_->read(first, count); }};
    SceneFiles found(files, out_, pictures_, source_.random);
    if (!infer(source_.config, device, source_.random ? nullptr : &source_.weights, scene, found, keep_going))
      return false;
    remark_ = found.finish(confidence_);
    return true;
  } catch (const policies::PolicyError& error) {
    throw located(error, source_.locations);
  }

 private:
  bool has_points() const {
    const models::VggtOptions& model = options_of(source_.config).model;
    return model.points || (model.camera && model.depths);
  }

  std::vector<std::string> asked_for_training() const {
    std::vector<std::string> names;
    for (const policies::PolicyKind* const kind : policies::policy_kinds()) {
      if (!kind->acts_without_gradient() && kind->enabled(source_.config.policies) == policies::Enabled::on)
        names.push_back(kind->name());
    }
    return names;
  }
  // In a configuration that trains nothing.
  void check_policies() const {
    const std::vector<std::string> names = asked_for_training();
    if (names.empty() || has_end(source_.config.train)) return;
    const std::string key = "policies." + names.front() + ".enabled";
    const auto place = source_.locations.find(key);
    throw ConfigError(
        (place == source_.locations.end() ? "" : place->second + ": ") + key +
        " = true has no effect where nothing is trained: no backward pass, so that 0 bytes are kept for "
        "one; remove it");
  }

  SampleSource source_;
  const std::filesystem::path out_;
  const std::optional<double> confidence_;
  std::shared_ptr<const Pictures> pictures_;
  mutable std::string remark_;
};

}  // namespace

SampleUsage pictures_usage() {
  return {.arguments = {{"images", std::string()},
                        {"heads", std::string()},
                        {"as-is", bool{}, "", /*is_flag=*/true},
                        {"confidence", double{}, "[1, inf)"}},
          .value = "DIR",
          .example = "pictures",
          .purpose = "for VGGT",
          .samples = "cameras and depths of pictures",
          .model = "VGGT",
          .none_of_others = ", of which cameras and depths are inferred",
          .out = "FOLDER",
          .example_out = "scene",
          .help = "  --images DIR          VGGT's pictures;  --heads LIST  --as-is  --confidence C\n"};
}

std::unique_ptr<Drawing> draw_scene(FileSystem& files, const SampleSource& source,
                                    const SampleArguments& arguments) {
  return std::make_unique<SceneDrawing>(files, source, arguments);
}

}  // namespace dtk::vggt
