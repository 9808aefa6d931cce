// What a run trains: a model with its loss and its samples. The trainer, validation, trial steps and policies
// know no more of it; what a run says of it, and its data, its family knows (model_family.h).
#pragma once
#include <ATen/core/Generator.h>
#include <c10/core/Device.h>
#include <dtk/models/layers.h>
#include <dtk/models/seam.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "toolkit/config/config.h"
#include "toolkit/data/data_source.h"
#include "toolkit/diffusion/denoiser.h"
#include "toolkit/io/stored_tensor.h"
#include "toolkit/train/shared_samples.h"

namespace dtk::policies {
class Shards;
}

namespace dtk {

class DataSource;
struct Weights;

/// How far a model's samples are from what happened, of a model whose samples continue what they are shown.
struct Score {
  std::string name;
  double value = 0;
};

/// Scores of one model, from sums over batches of any size: those of all are those of each, added up.
class SampleScores {
 public:
  virtual ~SampleScores() = default;
  /// How many sums there are: K.
  virtual int64_t size() const = 0;
  /// Those of what is drawn to continue `batch`, which lies on any device: (K), float64, on the model's.
  /// Without gradients; reads no value on the host.
  virtual at::Tensor sums(Batch batch) const = 0;
  /// Means, of the K sums of all batches; the one to choose a model by first.
  virtual std::vector<Score> read(const std::vector<double>& sums) const = 0;
};

class TrainableModel {
 public:
  virtual ~TrainableModel() = default;

  /// All parameters in a fixed order, under the names they are saved with.
  virtual const models::NamedTensors& parameters() const = 0;
  /// Names of parameters that the model makes of its options, which are not trained and files may leave out.
  virtual std::vector<std::string> derived() const { return {}; }
  /// Names of parameters that are trained with the others and that no loss reaches by construction, such as
  /// those of a layer behind the last that is read.
  virtual std::vector<std::string> unused() const { return {}; }
  /// Tensors of frozen weights that are stored in fewer bits than a parameter, marked as frozen
  /// (policies::mark_frozen); not among parameters().
  virtual models::NamedTensors packed() const { return {}; }
  /// Whether something is neither trained nor derived.
  bool is_partly_frozen() const;
  /// Names and shapes of the weights that a file for this model holds, on any device.
  virtual models::NamedTensors in_files() const { return parameters(); }
  /// Packs those of `weights` that packed() holds; called by load_weights().
  virtual void read_packed(const Weights& /*weights*/) const {}
  /// Modules that run through the seam, in order of execution, each before those within it.
  virtual const std::vector<std::string>& paths() const = 0;
  /// Those of paths() that read the weights below their own path, and that nobody else reads: of several
  /// ranks' weights they gather what is divided, and wait for what is on its way behind a step.
  virtual std::vector<std::string> weight_paths() const { return paths(); }
  virtual models::Seam& seam() = 0;
  c10::Device device() const { return parameters().front().second.device(); }
  /// The same parameters behind a seam of its own, into which nothing is put.
  virtual std::unique_ptr<TrainableModel> with_own_seam() const = 0;

  /// The loss of `batch`, which lies on any device: a scalar, fp32; a mean over its samples, for the driving
  /// model also over what is there in them (losses.h), so that micro-batches count alike. In training
  /// dropout and augmentation act, with draws from the device's default generator and from `noise`, a
  /// generator of the device. Reads no tensor's value on the host.
  virtual at::Tensor loss(Batch batch, const at::Generator& noise, bool training) const = 0;

  /// Whether loss() draws from `noise` for the whole of which its batch is a part, and takes the part's rows:
  /// a batch that is computed in parts then gets the draws that it would get whole, as each part begins with
  /// the same state of `noise`. Else each part draws on, as micro-batches do.
  virtual bool draws_for_whole() const { return false; }

  /// A batch of made-up samples on the device, of the shapes that the run's own have.
  virtual Batch made_up_batch(int64_t samples, const at::Generator& generator) const = 0;

  /// The samples that the run's configuration asks for, on the CPU; empty if `keep_going` gave up. Draws come
  /// from sample.seed alone. `data`: of the run, for models whose samples continue what they are shown. Of
  /// several ranks each draws its batches, or, where `shared` is not heeded, all.
  virtual std::vector<NamedTensor> sample(const DataSource& data, const KeepGoing& keep_going,
                                          const SharedSamples& shared) const = 0;

  /// For validation; null for a model whose samples continue nothing. Must not outlive the model.
  virtual std::unique_ptr<SampleScores> scores() const { return nullptr; }

  /// Name and content of the text files that its checkpoints hold beside the weights: what else it computes
  /// with. A resumed run's are the same.
  virtual std::map<std::string, std::string> files() const { return {}; }

  /// `weights` of any publication of this model under the names of parameters(). Throws ConfigError for names
  /// of none.
  virtual Weights own_names(Weights weights) const;

  /// Throws ConfigError unless `weights` are all trained parameters of this model and no others. The model
  /// may be on the meta device.
  virtual void check_fit(const Weights& weights) const = 0;
};

/// The model that `config` names, on `device`, initialised with draws from `generator` (absent: the device's
/// default generator). Throws std::invalid_argument for options of which no model can be built. `config` is
/// copied. Parameters that a family does not tell `made` of are whole until all are made, also where they
/// are divided.
std::unique_ptr<TrainableModel> make_model(const RunConfig& config, c10::Device device,
                                           std::optional<at::Generator> generator = std::nullopt,
                                           const models::ParameterMade& made = {});

/// Its parameters but for those that are unused: what optimizer and policies have to do with.
models::NamedTensors reached_parameters(const TrainableModel& model);

/// `weights` under the model's own names, with those of their base that they have not themselves.
Weights complete_weights(const TrainableModel& model, const Weights& weights);

/// Parameters that no training changes and that are not derived.
models::NamedTensors frozen_parameters(const TrainableModel& model);

/// Checks the fit of the weights under own_names(), then copies them into the model's parameters, in their
/// dtype and on their device; with `shards`, whose weights may be divided, into its own parts.
void load_weights(const Weights& weights, const TrainableModel& model,
                  const policies::Shards* shards = nullptr);

}  // namespace dtk
