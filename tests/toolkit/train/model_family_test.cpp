// A program with a model family of its own: the toolkit's sources do not name it.
#include "toolkit/train/model_family.h"

#include "support/catch.h"
#include "support/error_text.h"
#include "support/runs/tiny_run.h"

namespace {

using namespace dtk;

/// DiTs under another name.
class OwnFamily final : public ModelFamily {
 public:
  OwnFamily() { register_family(*this); }
  std::string name() const override { return "own"; }
  bool owns(const std::string& key) const override { return of_dit().owns(key); }
  std::string data_kinds() const override { return of_dit().data_kinds(); }
  HeldOut held_out(const RunConfig& config) const override { return of_dit().held_out(config); }
  std::optional<int64_t> heads(const RunConfig& config) const override { return of_dit().heads(config); }
  std::unique_ptr<TrainableModel> make_model(const RunConfig& config, c10::Device device,
                                             std::optional<at::Generator> generator) const override {
    return of_dit().make_model(config, device, std::move(generator));
  }
  RunData open_data(const LoadedConfig& loaded) const override { return of_dit().open_data(loaded); }
  RunData planned_data(const RunConfig& config, int64_t samples, PlannedValues values) const override {
    return of_dit().planned_data(config, samples, values);
  }
  ModelFacts facts(const RunConfig& config) const override { return of_dit().facts(config); }
  void check_arguments(const SampleArguments&, const std::string&) const override {}
  std::unique_ptr<Drawing> drawing(FileSystem& files, const SampleSource& source,
                                   const SampleArguments& arguments) const override {
    return of_dit().drawing(files, source, arguments);
  }
  std::vector<NamedTensor> to_export(const Weights& weights, const RunConfig& config) const override {
    return of_dit().to_export(weights, config);
  }

 private:
  static const ModelFamily& of_dit() { return family_of({}); }
};
const OwnFamily own;

TEST_CASE("all model families: the default first, then by name, among them the program's own") {
  std::vector<std::string> names;
  for (const ConfiguredFamily* const family : families()) names.push_back(family->name());
  CHECK(names == std::vector<std::string>{"dit", "diffusion_planner", "own"});
}

TEST_CASE("a run's model is of the family that it names") {
  RunConfig config = test::tiny_config();
  config.train.model = "own";
  CHECK(&family_of(config) == &own);
  CHECK_FALSE(make_model(config, at::kMeta)->parameters().empty());
  config.train.model = "none";
  CHECK(test::error_text<std::invalid_argument>([&] { family_of(config); }) ==
        "no model family is called none");
}

TEST_CASE("a family that is registered too late is an error") {
  families();
  CHECK(test::error_text<std::logic_error>([] { register_family(own); }) ==
        "the model family own is registered after the list was read");
}

}  // namespace
