// AdamW through LibTorch's fused operator, with clipping and the check for non-finite gradients on the
// device.
#pragma once
#include <ATen/core/Tensor.h>
#include <dtk/policies/shards.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "toolkit/config/config.h"
#include "toolkit/io/stored_tensor.h"

namespace dtk {

class AdamW {
 public:
  /// Allocates both moments now (8 bytes per parameter), fp32, on the parameters' device. Parameters that
  /// need no gradient are left alone.
  /// Throws ConfigError for options.rates that are none, of no parameter, or of one that has a rate already.
  AdamW(const OptimizerOptions& options, const std::vector<std::pair<std::string, at::Tensor>>& parameters,
        NotFinite on_not_finite = NotFinite::stop);
  /// Of what this rank updates, with moments of it alone; all ranks call prepare() and look_back() together,
  /// and have one norm and one flag. `shards` must outlive this.
  AdamW(const OptimizerOptions& options, policies::Shards& shards, NotFinite on_not_finite);

  /// One update with the parameters' gradients at rate `lr`. Reads no value on the host: once a gradient was
  /// not finite, a flag on the device makes this and, unless such steps are skipped, all later updates do
  /// nothing. `loss`, a scalar on the device, is looked at too where they are; then every step is measured.
  /// Without clipping nothing in an update needs the gradients' norm; `measured` = false then spares the
  /// reading of all of them, and what is not finite reaches weights and moments, which look_back() notices.
  /// Throws std::logic_error naming a parameter without gradient.
  void step(double lr, bool measured = true, const at::Tensor& loss = {}) {
    prepare(measured, loss);
    apply(lr);
  }
  /// The first half of step(), which takes all memory that the second needs: where it throws, no weight, no
  /// moment and no count has changed.
  void prepare(bool measured = true, const at::Tensor& loss = {});
  /// The second half. Takes no memory.
  void apply(double lr);

  /// Raises the flag if a gradient of a step that was not measured was not finite: the first moments keep
  /// that for good. Reads them all; nothing to do if every step was measured.
  void look_back();

  /// Names of parameters whose gradient is not there.
  std::vector<std::string> without_gradient() const;
  /// Frees all gradients.
  void release_gradients();

  /// Global norm of the gradients of the last step that was measured and not skipped, before clipping: a
  /// scalar on the device.
  const at::Tensor& gradient_norm() const { return gradient_norm_; }
  /// 1 if a gradient of a measured step, or by look_back() of any step before it, was not finite, else 0: a
  /// scalar on the device. Where steps are skipped: of the last step, by gradient or loss.
  const at::Tensor& stopped() const { return stopped_; }
  bool skips() const { return on_not_finite_ == NotFinite::skip; }

  /// Moments and step count, live tensors, named "exp_avg.<parameter>", "exp_avg_sq.<parameter>", "step":
  /// moments of what this rank updates.
  std::vector<NamedTensor> state() const;
  /// The same as a file holds it: moments of all, which the ranks give one after the other.
  std::vector<WrittenTensor> written_state() const;
  /// Reads one tensor at a time. Throws FileError listing what is missing, misshapen or unknown.
  void restore(const std::vector<StoredTensor>& state);

 private:
  AdamW(const OptimizerOptions& options, std::unique_ptr<policies::Shards> alone, policies::Shards* given,
        NotFinite on_not_finite);
  at::Tensor norm_of(const std::vector<at::Tensor>& tensors) const;
  std::vector<at::Tensor> gradients() const;
  void measure(const std::vector<at::Tensor>& gradients, const at::Tensor& loss);
  void stop_unless_finite(const at::Tensor& norm);

  /// Parameters that are updated at one rate, by a factor of what apply() is given, and decay alike.
  struct Group {
    double factor, weight_decay;
    std::vector<size_t> members;
  };
  static std::vector<Group> groups_of(const OptimizerOptions& options, const std::vector<std::string>& names);
  /// With vectors in groups of their own, which do not decay.
  std::vector<Group> without_decay_of_vectors(const std::vector<Group>& groups) const;
  void apply_to(const Group& group, double lr);

  const std::unique_ptr<policies::Shards> alone_;  // unless they were given
  policies::Shards& shards_;
  const OptimizerOptions options_;
  const NotFinite on_not_finite_;
  std::vector<std::string> names_;
  std::vector<Group> groups_;                                  // one, of all, without options.rates
  std::vector<at::Tensor> parameters_, exp_avg_, exp_avg_sq_;  // what this rank has of each
  at::Tensor step_;  // one count shared by all parameters: they are always updated together
  at::Tensor gradient_norm_, stopped_;
  // From prepare() to apply():
  std::vector<at::Tensor> gradients_;
  at::Tensor counts_;                  // 1 if the step does, else 0
  std::optional<at::Tensor> divisor_;  // of gradients, by which they are clipped without a pass over them
  bool looks_back_ = false;            // steps were not measured since look_back()
};

}  // namespace dtk
