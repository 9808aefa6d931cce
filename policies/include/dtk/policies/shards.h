// Which elements of a model's parameters each of several ranks updates. A rank then needs moments, sums of
// gradients and an average of these alone, and takes the other weights from those that update them.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>
#include <dtk/policies/collectives.h>
#include <dtk/policies/internal/scoped.h>
#include <dtk/policies/policy.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace dtk::policies {

/// Neighbours among the parameters, one after the other, each from a multiple of 64 elements on.
struct ParameterUnit {
  struct Member {
    size_t index;  // in Shards::parameters()
    int64_t offset, elements;
  };
  std::vector<Member> members;
  int64_t elements = 0;  // a multiple of 64
  std::string label;     // "blocks.0.qkv.weight and 3 more"

  /// Ends of so many parts: of C cells of 64 elements, part r is those of [ceil(r C / n), ceil((r + 1) C /
  /// n)).
  std::vector<int64_t> ends(int64_t parts) const;
};

/// A part of a parameter.
struct ParameterPart {
  int64_t begin = 0, elements = 0;
};

struct ShardLayout {
  // False: a rank has all of moments, gradients and averages.
  bool divides = true;
  int64_t min_unit = int64_t{1} << 20;  // bytes; neighbours are one unit until they have so many
  // Parts of each unit whose gradients' norms are taken apart; a multiple of the ranks that divide it. With
  // as many as a step has micro-batches the norm's bits are the same at any such number. 0: the ranks.
  int64_t norm_parts = 0;
};

/// For one thread. All ranks call gather(), add_up() and each_part() in the same order.
class Shards : NotCopied {
 public:
  /// Of one rank, which has all.
  explicit Shards(const NamedTensors& parameters, const ShardLayout& layout = {});
  /// `parameters`: of one model, in the same order at each rank; what needs no gradient is left alone. Throws
  /// PolicyError for one that is not fp32 and contiguous, std::invalid_argument where none is trained.
  Shards(c10::intrusive_ptr<c10d::Backend> group, const NamedTensors& parameters,
         const ShardLayout& layout = {});
  ~Shards();

  /// Whether this rank updates a part only.
  bool divides() const { return divides_; }
  int64_t rank() const { return collectives_ ? collectives_->rank() : 0; }
  int64_t ranks() const { return collectives_ ? collectives_->ranks() : 1; }
  /// Null: one rank.
  Collectives* collectives() const { return collectives_.get(); }

  /// Those that are trained.
  const NamedTensors& parameters() const { return parameters_; }
  /// What this rank updates of each: (elements), maybe none, a view that needs a gradient of its own; where
  /// nothing is divided, the parameter. For an optimizer, and for Ema.
  const NamedTensors& own() const { return divides_ ? own_ : parameters_; }
  ParameterPart own_part(size_t parameter) const;
  const std::vector<ParameterUnit>& units() const { return units_; }
  /// Where the parts of a unit end, by rank.
  const std::vector<int64_t>& ends(size_t unit) const { return ends_[unit]; }

  /// After each rank has updated its own: the weights of the others, unit by unit. Takes the bytes of one
  /// unit.
  void gather();

  /// Parts whose norms are taken apart, in the same order at any number of ranks.
  struct NormPart {
    size_t parameter;    // its part lies in own()[parameter]
    ParameterPart part;  // of own()[parameter], as if that were flat
    int64_t index;       // of norm_parts()
  };
  const std::vector<NormPart>& own_norm_parts() const { return own_norm_parts_; }
  int64_t norm_parts() const { return norm_parts_; }
  /// `values` of a few elements become the sums over the ranks; of one rank they are.
  void add_up(at::Tensor& values);

  /// At the leader, rank 0, calls `take` with one part after the other of what is `own` of a parameter at the
  /// ranks, such as a moment, in their order; the others give theirs. Takes the bytes of one such part.
  void each_part(size_t parameter, const at::Tensor& own,
                 const std::function<void(const at::Tensor& part)>& take) const;
  std::optional<size_t> index_of(const std::string& name) const;

 private:
  void lay_out(const NamedTensors& parameters, const ShardLayout& layout);
  void divide();
  void list_norm_parts(int64_t parts);
  ParameterPart part_of(size_t parameter, int64_t rank) const;

  std::unique_ptr<Collectives> collectives_;
  bool divides_ = false;
  NamedTensors parameters_, own_;
  std::vector<ParameterUnit> units_;
  std::vector<std::vector<int64_t>> ends_;        // by unit and rank
  std::vector<std::pair<size_t, size_t>> place_;  // by parameter: unit, member
  std::vector<NormPart> own_norm_parts_;
  int64_t norm_parts_ = 0;
};

}  // namespace dtk::policies
