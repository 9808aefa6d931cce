// That matrices which were sent as bf16 are read rounded by whoever reads them: else gather = "bf16" would
// change results.
#pragma once
#include <dtk/policies/shards.h>

#include <string>
#include <string_view>

#include "hooks/operator_watch.h"

namespace dtk::policies {

/// Watches the operators of a module. One that reads a matrix as it is, and not autocast's copy, ends it with
/// PolicyError. `outer`: that watches besides.
class RoundedReads final : public OperatorScope {
 public:
  RoundedReads(const Shards& shards, std::string_view module,
               OperatorScope* outer = OperatorScope::innermost());
  void run(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) override;
  void mark(std::string_view name, const at::Tensor& value) override;

 private:
  /// The matrix that `tensor` shows, by name; "": none that was rounded.
  std::string shown_by(const at::Tensor& tensor) const;

  const Shards& shards_;
  const std::string module_;
  OperatorScope* const outer_;
};

}  // namespace dtk::policies
