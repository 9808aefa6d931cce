// A model family: all that a run has to know of the models that train.model names.
#pragma once
#include <dtk/policies/report.h>

#include <array>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "toolkit/config/config_io.h"
#include "toolkit/config/families.h"
#include "toolkit/data/held_out.h"
#include "toolkit/data/image.h"
#include "toolkit/train/drawing.h"
#include "toolkit/train/export_changes.h"
#include "toolkit/train/trainable_model.h"

namespace dtk {

/// What a run says of its model and of its samples, known from the configuration alone.
struct ModelFacts {
  std::string model = {};        // "DiT-S/4"
  std::string sizes = {};        // "depth 12, width 384, ..."
  std::string smaller = {};      // the keys that make it smaller
  std::string sample_name = {};  // what it is trained on: "images", "frames"
  int64_t tokens = 0;            // of one sample
  std::string drawn = {};        // "80 images in 25 steps": what the run draws when it samples; "": nothing
  std::string classes_key = {};  // says how many classes there are, where labels are read
  std::string count_key = {};    // says how many; 0: none
  std::string count_keys = {};   // all that do, "sample.per_class or sample.classes"
  bool pictures = false;         // what is drawn is kept as pictures; else as tensors
  std::string size_keys = {};    // of a picture: "sample.per_class, sample.classes or model.image_size"
  std::string drawn_note = {};   // what a page says below the pictures
  std::string tensors = {};      // "latents of 4 channels": what samples that are no pictures are
  std::string draw_again = {};   // arguments with which dit-sample draws the same
  bool draws_folder = false;     // dit-sample writes a folder, not a file
  std::string fewer = {};        // how it draws less at once: "fewer at a time with "
};

/// A model that a draft may name: the lines of its table, TOML with comments.
struct ModelDraft {
  std::string name;  // "DiT-S/4"
  std::string table;
};
/// The beginning of a configuration for data that somebody points to (dit-train --init).
struct DataDraft {
  std::string found;               // "300 pictures in 3 classes, half of them wider than 640 pixels"
  std::string name;                // of the run: "photos"
  int64_t samples = 0;             // to train on
  std::string data;                // lines of [data] without batch and validation
  bool holds_out = false;          // data.validation has a use
  std::vector<ModelDraft> models;  // by the cost of a step, ascending; not empty
  std::string rest;                // other tables
};

/// Adapters without what they lie beside: tensors, and what describes them as one JSON object.
struct AdapterFiles {
  std::vector<NamedTensor> tensors;
  std::string config;
};

struct SizedJob {
  RunConfig config = {};
  int64_t tokens = 0;  // of a micro-batch
};
/// What somebody published of a policy, for models of a family.
struct Claim {
  std::string policy;  // its name; "": no policy's
  std::string words;
  std::string source;
  std::string seen = {};                      // what was found of it, where no plan of a job says that
  std::optional<double> lowers_peak_by = {};  // 0.5: to half of the peak without it
  std::optional<double> slower_by = {};       // 0.2: a step takes a fifth longer
  // It is said to fit, or not to fit without the policy, a device of so many bytes, with micro-batches of so
  // many samples.
  std::optional<int64_t> device_bytes = {};
  int64_t samples = 0;
};
/// What somebody published of the memory of passes without gradient, as a line over their count.
struct CountedClaim {
  std::string name;           // of a column: "published"
  std::string source;         // where, of what, and how it was found
  double at_0 = 0, each = 0;  // bytes
  int64_t most = 0;           // the largest count that it is said of; 0: any
  double bytes(int64_t count) const { return at_0 + each * static_cast<double>(count); }
};
/// What is known of modules' cost a token beside what is planned: a law of the bytes that they keep.
struct TokenNote {
  std::string modules = {};           // what their paths begin with
  std::string text = {};              // "law 20h + 8f: 171,016"
  std::optional<int64_t> bytes = {};  // that each keeps a token, by the law
};

class ModelFamily : public ConfiguredFamily {
 public:
  /// As dtk::make_model().
  virtual std::unique_ptr<TrainableModel> make_model(const RunConfig& config, c10::Device device,
                                                     std::optional<at::Generator> generator,
                                                     const models::ParameterMade& made) const = 0;

  /// Opens what [data] names. `before`: of a run that goes on, what its data were, which decides what is held
  /// out (hold_out()); null for a new one. `progress` is told of what may take long. Throws ConfigError and
  /// DataError.
  virtual RunData open_data(const LoadedConfig& loaded, const DataIdentity* before,
                            const OpeningProgress& progress) const = 0;
  /// What this family would train on `data`, a file or a folder; nothing where these are none of its kinds.
  /// `small`: for a machine without a GPU. Throws DataError for data of its kinds that it cannot use.
  virtual std::optional<DataDraft> draft(const std::filesystem::path& /*data*/, bool /*small*/) const {
    return std::nullopt;
  }
  /// The kinds of data of which there is a draft, as a refusal of others names them; "": none.
  virtual std::string drafts() const { return ""; }
  /// What stands for them in a plan; their values are anything, as nothing is computed with them.
  virtual RunData planned_data(const RunConfig& config, int64_t samples) const = 0;

  /// Notes in `config` what a plan has to know of the data, where they are there, such as lengths of samples.
  /// Throws as open_data().
  virtual void measure_data(RunConfig& /*config*/) const {}
  /// What of the data is planned, where batches differ; "": all are alike.
  virtual std::string planned_note(const RunConfig& /*config*/) const { return ""; }

  /// What its modules offer to Seam::keep by name, few, in order: of which `keep = "auto"` and dit-plan
  /// --explain try all sets.
  virtual std::vector<std::string> kept_results() const { return {}; }

  /// What its models are run on where nothing is trained, "frames", of whose passes there are plans; "":
  /// there are none.
  virtual std::string inferred() const { return ""; }
  /// Changes a seam that holds the policies already.
  using PutIn = std::function<void(models::Seam& seam, const models::NamedTensors& parameters,
                                   const std::vector<std::string>& paths)>;
  /// Runs in a simulation what dit-sample runs on `count` of them, whose values are anything; what the
  /// policies say at its end. Throws as with_trained().
  virtual std::vector<policies::PolicyReport> infer_planned(const RunConfig& config, c10::Device device,
                                                            int64_t count, const PutIn& put_in) const;

  /// Of such passes, as claims() of training: what its policy is said to do in them.
  virtual std::vector<Claim> inference_claims(const RunConfig& /*config*/) const { return {}; }
  virtual std::vector<CountedClaim> counted_claims(const RunConfig& /*config*/) const { return {}; }

  virtual ModelFacts facts(const RunConfig& config) const = 0;
  /// The job with about `tokens` in a micro-batch: by default of as many samples as have so many, at least
  /// one; what the data would say of them is left aside.
  virtual SizedJob of_size(const RunConfig& config, int64_t tokens) const;
  /// The job with few tokens in a micro-batch, and with more, which tell together what one costs. By default
  /// of one sample and of two.
  virtual std::array<SizedJob, 2> two_sizes(const RunConfig& config) const;
  /// Those that bear on such a job.
  virtual std::vector<Claim> claims(const RunConfig& /*config*/) const { return {}; }
  virtual std::vector<TokenNote> token_notes(const RunConfig& /*config*/, c10::Device /*device*/) const {
    return {};
  }
  /// Floating-point operations of a training step, a sample; `planned_step`: a plan's for forward and
  /// backward of a step, without what is computed twice, so that what is frozen counts as often as it is
  /// computed. 0 where that is and no formula says them.
  virtual double training_flops_per_sample(const RunConfig& config, int64_t planned_step) const;
  /// Of such samples, of a family whose facts say that they are pictures: one row a class.
  virtual UnpaintedImage picture_of(const RunConfig& config, const std::vector<NamedTensor>& samples,
                                    const std::vector<std::string>& class_names) const;

  /// Families with the same first argument have all the same.
  virtual SampleUsage sample_usage() const = 0;
  /// Throws ConfigError for what cannot be drawn or written: better said before.
  virtual std::unique_ptr<Drawing> drawing(FileSystem& files, const SampleSource& source,
                                           const SampleArguments& arguments) const = 0;
  /// Checks the fit of `weights`, then reads them one after another: what exporting() makes of them, on the
  /// CPU, under the published names and in their order, with what such files may leave out.
  std::vector<NamedTensor> to_export(const Weights& weights, const RunConfig& config,
                                     const ExportChanges& changes = {}) const;
  /// What is written of a tensor; none, one or several.
  using Exporting = std::function<std::vector<NamedTensor>(const StoredTensor&)>;
  /// Of `own`, weights under the published names, which outlive the result. By default each as fp32. Throws
  /// ConfigError for changes that the family, or these weights, do not know.
  virtual Exporting exporting(const Weights& own, const RunConfig& config,
                              const ExportChanges& changes) const;
  /// What of the run's own results the changes do not keep; "": nothing is lost.
  virtual std::string lost_by_export(const RunConfig& /*config*/, const ExportChanges& /*changes*/) const {
    return "";
  }
  /// Of weights with adapters, read as fp32: these alone. Throws ConfigError for a family, or weights,
  /// without.
  virtual AdapterFiles adapter(const Weights& weights, const RunConfig& config) const;
  /// A parameter that is not trained, which weights may leave out. Throws FileError for any other.
  virtual at::Tensor untrained(const RunConfig& config, const std::string& name) const;
  /// Lets `config` name the files beside weights (TrainableModel::files()) in `folder`; `users`: it is not
  /// the one that was saved with them.
  virtual void take_files(FileSystem&, const std::filesystem::path& /*folder*/, bool /*users*/,
                          RunConfig&) const {}
};

/// Of all families; of those with the same first argument, one.
std::vector<SampleUsage> sample_usages();
/// Throws ConfigError if other samples are asked for than those of `family`; `weights`: whose it is.
void check_arguments(const ModelFamily& family, const SampleArguments& arguments, const std::string& weights);

/// The one that `config` names.
const ModelFamily& family_of(const RunConfig& config);
ModelFacts facts_of(const RunConfig& config);

/// "DiT-S/4, 32.58 M parameters: depth 12, width 384, ...".
std::string model_text(const ModelFacts& facts, int64_t parameters);

}  // namespace dtk
