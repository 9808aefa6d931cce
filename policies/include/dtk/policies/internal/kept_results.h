// What a segment of checkpoint.h keeps besides its inputs: results that are named in the model's code, and
// results of chosen operators. The recomputation takes them instead of running the operators that made them.
#pragma once
#include <ATen/core/Tensor.h>

#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace dtk::policies {

/// Marks `value`, which a segment computes, by a name under which it may be kept; returns it. Costs next to
/// nothing, and does nothing outside of segments and where nobody keeps that name.
///
/// Kept is what the operator that made the value returned: its memory, of which the value may be a view, and,
/// where nothing ran in between, its other results (of fused attention the log-sum-exp).
///
/// Throws c10::Error where the name is kept but the segment did not make the value (an input, a parameter) or
/// by a cast, where it was changed in place since it was made, and where other operators ran since one of
/// several results was made.
at::Tensor named(std::string_view name, at::Tensor value);

/// A choice of results; may be shared by segments and threads.
class KeptResults {
 public:
  /// Each entry is a name, as named() has it, or an operator of LibTorch in full: "aten::addmm", which means
  /// all its overloads. Operators that are made of others cannot be kept, but those that they are made of.
  /// Throws PolicyError for an operator that LibTorch has not (with near names), that is made of others, or
  /// that returns no new tensor (views, changes in place), and for casts.
  explicit KeptResults(const std::vector<std::string>& entries);

  bool keeps_name(std::string_view name) const { return names_.count(name) > 0; }
  bool keeps_operator(std::string_view name) const { return operators_.count(name) > 0; }
  bool has_names() const { return !names_.empty(); }

  /// Notes what a segment's forward pass had.
  void met_name(std::string_view name);
  void met_operator(std::string_view name);
  /// Throws PolicyError for entries that no segment so far had, with near ones that there were; from then on
  /// nothing is noted. `key`: where the entries stand.
  void check_met(const std::string& key);

 private:
  using Texts = std::set<std::string, std::less<>>;
  Texts names_, operators_;
  mutable std::mutex mutex_;
  bool checked_ = false;
  Texts met_names_, met_operators_;
};

}  // namespace dtk::policies
