// A program with a model family of its own: the toolkit's sources do not name it.
#include "toolkit/train/model_family.h"

#include "support/catch.h"
#include "support/error_text.h"
#include "support/runs/tiny_run.h"
#include "toolkit/config/config_io.h"
#include "toolkit/core/errors.h"

namespace {

using namespace dtk;

struct OwnTable {
  int64_t width = 3;
  std::optional<double> slope;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [width, slope] = self;
    visit("width", width, "[1, 9]");
    visit("slope", slope, "");
  }
  friend bool operator==(const OwnTable&, const OwnTable&) = default;
};

struct OwnOptions {
  OwnTable own;

  template <class Self, class Visit>
  static void tables(Self& self, Visit&& visit) {
    visit("own", self.own);
  }
  friend bool operator==(const OwnOptions&, const OwnOptions&) = default;
};

/// DiTs under another name, with a table of their own.
class OwnFamily final : public ModelFamily {
 public:
  OwnFamily() { register_family(*this); }
  std::string name() const override { return "own"; }
  std::unique_ptr<OptionTables> new_options() const override {
    return std::make_unique<TablesOf<OwnOptions>>();
  }
  std::string data_kinds() const override { return of_dit().data_kinds(); }
  HeldOut held_out(const RunConfig& config) const override { return of_dit().held_out(config); }
  std::optional<int64_t> heads(const RunConfig& config) const override { return of_dit().heads(config); }
  std::unique_ptr<TrainableModel> make_model(const RunConfig& config, c10::Device device,
                                             std::optional<at::Generator> generator,
                                             const models::ParameterMade& made) const override {
    return of_dit().make_model(config, device, std::move(generator), made);
  }
  RunData open_data(const LoadedConfig& loaded, const DataIdentity* before,
                    const OpeningProgress& progress) const override {
    return of_dit().open_data(loaded, before, progress);
  }
  RunData planned_data(const RunConfig& config, int64_t samples) const override {
    return of_dit().planned_data(config, samples);
  }
  ModelFacts facts(const RunConfig& config) const override { return of_dit().facts(config); }
  SampleUsage sample_usage() const override { return of_dit().sample_usage(); }
  std::unique_ptr<Drawing> drawing(FileSystem& files, const SampleSource& source,
                                   const SampleArguments& arguments) const override {
    return of_dit().drawing(files, source, arguments);
  }

 private:
  static const ModelFamily& of_dit() { return family_of({}); }
};
const OwnFamily own;

TEST_CASE("all model families: the default first, then by name, among them the program's own") {
  std::vector<std::string> names;
  for (const ConfiguredFamily* const family : families()) names.push_back(family->name());
  CHECK(names == std::vector<std::string>{"dit", "diffusion_planner", "llava", "own", "vggt"});
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

LoadedConfig read(const std::string& family, const std::string& line) {
  return parse_config("[train]\nmodel = \"" + family + "\"\nsteps = 1\n[own]\n" + line + "\n", "own.toml",
                      {});
}

std::string refusal(const std::string& family, const std::string& line) {
  return test::error_text<ConfigError>([&] { read(family, line); });
}

TEST_CASE("a family's own table is read, printed and compared as all others") {
  const LoadedConfig loaded = read("own", "width = 5");
  CHECK(loaded.config.families.of<OwnOptions>().own.width == 5);
  CHECK(text_of(loaded.origins.at("own.width")) == "own.toml:5");
  CHECK(print_config(loaded).find("\n[own]\nwidth = 5  # own.toml:5\n# slope is not set\n") !=
        std::string::npos);
  CHECK(parse_config(print_config(loaded), "again.toml", {}).config == loaded.config);
  const LoadedConfig other = read("own", "width = 6");
  CHECK_FALSE(other.config == loaded.config);
  REQUIRE(differences(loaded.config, other.config).size() == 1);
  CHECK(differences(loaded.config, other.config).front().key == "own.width");
}

TEST_CASE("what is wrong with a family's own keys is said as of all others") {
  CHECK(refusal("own", "width = 12") == "own.toml:5:9: own.width = 12 is out of range; allowed: [1, 9]");
  CHECK(refusal("own", "with = 1") == "own.toml:5:1: unknown key own.with; did you mean own.width?");
  CHECK(
      refusal("dit", "width = 5") ==
      "own.toml:5:9: own.width has no use with train.model = \"dit\"; remove it (what own.toml sets is taken "
      "back with --set own.width=default), or change train.model");
  CHECK(refusal("none", "width = 5") ==
        "own.toml:2:9: train.model = \"none\" is not a choice; allowed: dit | diffusion_planner | llava | "
        "own | vggt");
}

TEST_CASE("a family that is registered too late is an error") {
  families();
  CHECK(test::error_text<std::logic_error>([] { register_family(own); }) ==
        "the model family own is registered after the list was read");
}

}  // namespace
