#include <ATen/ops/empty.h>

#include "toolkit/core/format.h"
#include "toolkit/families/vggt/claims.h"
#include "toolkit/families/vggt/configuration.h"
#include "toolkit/families/vggt/drawing.h"
#include "toolkit/families/vggt/inference.h"
#include "toolkit/families/vggt/options.h"
#include "toolkit/families/vggt/scenes.h"
#include "toolkit/families/vggt/trainable.h"

namespace dtk::vggt {
namespace {

int64_t tokens_of_frame(const RunConfig& config) {
  const Options& options = options_of(config);
  const models::VggtOptions model = models::resolved(options.model);
  return (options.data.height / *model.patch) * (options.data.width / *model.patch) + model.special_tokens();
}

class Family final : public Configuration {
 public:
  std::unique_ptr<TrainableModel> make_model(const RunConfig& config, c10::Device device,
                                             std::optional<at::Generator> generator,
                                             const models::ParameterMade& made) const override {
    return std::make_unique<TrainableVggt>(config, device, std::move(generator), models::VggtTypes(), made);
  }

  RunData open_data(const LoadedConfig& loaded, const DataIdentity* before,
                    const OpeningProgress&) const override {
    return open_scenes(loaded, before);
  }
  RunData planned_data(const RunConfig& config, int64_t samples) const override {
    return planned_scenes(config, samples);
  }

  std::string inferred() const override { return "frames"; }
  std::vector<policies::PolicyReport> infer_planned(const RunConfig& config, c10::Device device,
                                                    int64_t count, const PutIn& put_in) const override {
    const SceneOptions& data = options_of(config).data;
    const Scene scene{count, data.height, data.width, [&](int64_t, int64_t frames) {
                        return at::empty({frames, 3, data.height, data.width}, at::kFloat);
                      }};
    Results none;
    return *infer(config, device, nullptr, scene, none, nullptr, put_in);
  }

  std::vector<std::string> kept_results() const override { return {"attn_out"}; }
  std::vector<Claim> inference_claims(const RunConfig&) const override { return vggt::inference_claims(); }
  std::vector<CountedClaim> counted_claims(const RunConfig& config) const override {
    return vggt::counted_claims(config);
  }

  ModelFacts facts(const RunConfig& config) const override {
    const Options& options = options_of(config);
    const models::VggtOptions model = models::resolved(options.model);
    return {.model = "VGGT " + policies::text_of(model.preset),
            .sizes = fmt::format(
                "encoder of {} layers, {} pairs of blocks, width {}, {} heads; {} tokens a frame of "
                "{} x {}",
                *model.encoder, *model.depth, *model.hidden, *model.heads, tokens_of_frame(config),
                options.data.height, options.data.width),
            .smaller = "vggt.hidden, vggt.encoder and vggt.depth",
            .sample_name = "scenes",
            .tokens = options.data.frames * tokens_of_frame(config),
            .tensors = "cameras and depths",
            .draws_folder = true};
  }

  SampleUsage sample_usage() const override { return pictures_usage(); }
  std::unique_ptr<Drawing> drawing(FileSystem& files, const SampleSource& source,
                                   const SampleArguments& arguments) const override {
    return draw_scene(files, source, arguments);
  }
};

}  // namespace

const ModelFamily& family() {
  static const Family one;
  return one;
}

}  // namespace dtk::vggt
