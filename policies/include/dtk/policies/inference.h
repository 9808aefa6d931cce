// Passes without gradient that hold no more than they read: rows a few at a time, results in the form in
// which their readers want them, and nothing for a backward pass that does not come.
#pragma once
#include <dtk/policies/options/inference_options.h>
#include <dtk/policies/policy.h>

#include <memory>
#include <string>
#include <vector>

namespace dtk::policies {

/// The rows that every product of a chunk has, at the least, where no size is set and the model says how many
/// a row has: with fewer, a device waits for its memory more than for its arithmetic. Of tokens twice as
/// many, so that the samples that run at a time are not divided once more.
inline constexpr int64_t kChosenRows = 2048;

/// How many rows of a module run at a time; 0: all. By InferenceOptions, of samples or tokens as `rows` says;
/// where that leaves it open, as few as have kChosenRows, and all where the model does not say how many a row
/// has.
int64_t rows_at_a_time(const InferenceOptions& options, std::string_view path, const RowsOf& rows);

/// Throws PolicyError where InferenceOptions::heads were set and the name of none of a model's modules ends
/// so.
void check_heads(const InferenceOptions& options, const std::vector<std::string>& paths);

/// Divides rows and queries only while gradients are off. A result of one tensor that is like its first input
/// is written over it where nobody else holds that: a residual stream is there once.
class InferencePolicy final : public Policy {
 public:
  explicit InferencePolicy(const InferenceOptions& options);
  ~InferencePolicy() override;
  std::string name() const override { return "inference"; }
  /// Inference mode.
  std::unique_ptr<PolicyScope> forward_scope() override;
  PolicyReport report() const override;

 protected:
  void put_in(Seam& seam) override;

 private:
  struct Findings;
  const InferenceOptions options_;
  const std::shared_ptr<Findings> findings_;  // shared with the seam
};

}  // namespace dtk::policies
