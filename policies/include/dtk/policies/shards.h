// Which elements of a model's parameters each of several ranks updates. A rank then needs moments, sums of
// gradients and an average of these alone, and takes the other weights from those that update them.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>
#include <dtk/policies/collectives.h>
#include <dtk/policies/internal/scoped.h>
#include <dtk/policies/options/shard_options.h>
#include <dtk/policies/policy.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtk::policies {

/// Neighbours among the parameters, one after the other, each from a multiple of 64 elements on.
struct ParameterUnit {
  struct Member {
    size_t index;  // in Shards::parameters()
    int64_t offset, elements;
  };
  std::vector<Member> members;
  int64_t elements = 0;    // a multiple of 64
  std::string label;       // "blocks.0.qkv.weight and 3 more"
  bool is_target = false;  // lies in modules that are targets

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
  // Modules that run through the seam, by path, in the order of execution. Not empty: weights are read in
  // them, or within PolicySet::forward_scope() where they lie in none; those that other ranks update come
  // while other modules run.
  std::vector<std::string> modules = {};
  // Those of them, by pattern, in which or below which a module's weights wait for it; others are read as if
  // they lay in no module. No unit has weights of both.
  std::vector<std::string> targets = {"*"};
  // parameters: the weights are divided, too, where anything is; those of a module are whole while it runs,
  // and while its gradients are computed. Each pass with gradients then runs each module once, at each rank,
  // in this order.
  ShardLevel level = ShardLevel::optimizer;
  // Units of divided weights that are gathered before their module's turn: while another runs they are on
  // their way, and take their bytes. The turns of a backward pass are those of the one before.
  int64_t prefetch = 1;
  // bf16: divided matrices of the targets are sent so, and are then, as fp32, what bf16 holds of them; so are
  // tensors of more dimensions, not vectors.
  ShardGather gather = ShardGather::fp32;
};

/// For one thread. All ranks call gather() and add_up(), give and take parts, and run modules of divided
/// weights, in the same order.
class Shards : NotCopied {
 public:
  /// Of one rank, which has all.
  explicit Shards(const NamedTensors& parameters, const ShardLayout& layout = {});
  /// `parameters`: of one model, in the same order at each rank; what needs no gradient is left alone. Throws
  /// PolicyError for one that is not fp32 and contiguous or a target that is no module, std::invalid_argument
  /// where none is trained, or weights are to be divided among no modules. Where anything is divided,
  /// parameters become views of their unit's storage. That of weights which are divided, or on their way
  /// behind a step, has no memory while nobody uses them: what reads one then throws c10::Error. Takes the
  /// bytes of a unit beside the parameters. Parameters on the meta device are laid out, and placed later.
  Shards(c10::intrusive_ptr<c10d::Backend> group, const NamedTensors& parameters,
         const ShardLayout& layout = {});
  ~Shards();

  /// A parameter that was laid out on the meta device, where its tensor is: each is placed before anything
  /// else is asked of this. A unit is divided as soon as all its parameters are there, so that no more than
  /// one unit is whole while a model is made. Not so for one that is placed already; what is not trained is
  /// left alone. Throws std::invalid_argument for another shape, or another tensor than that laid out.
  void place(const std::string& name, const at::Tensor& parameter);

  /// Whether this rank updates a part only.
  bool divides() const { return divides_; }
  /// Whether a rank has the weights of the others only while it uses them.
  bool divides_weights() const { return divides_weights_; }
  /// Whether weights may be on their way behind a step, until arrive() or settle().
  bool gathers_late() const { return divides_ && !divides_weights_ && !turns_.empty(); }
  /// As what divided matrices of the targets are sent.
  ShardGather sends() const { return sends_; }
  /// Those of ShardLayout::modules whose weights come when they run, in their order.
  const std::vector<std::string>& targets() const { return targets_; }
  int64_t rank() const { return collectives_ ? collectives_->rank() : 0; }
  int64_t ranks() const { return collectives_ ? collectives_->ranks() : 1; }
  /// Null: one rank.
  Collectives* collectives() const { return collectives_.get(); }

  /// Those that are trained.
  const NamedTensors& parameters() const { return parameters_; }
  /// What this rank updates of each: (elements), maybe none, a view that needs a gradient of its own; where
  /// nothing is divided, the parameter. Of divided weights it is memory of its own; of late ones it must not
  /// outlive this and the parameters. For an optimizer, and for Ema.
  const NamedTensors& own() const { return divides_ ? own_ : parameters_; }
  /// Elements of the parameter, counted as if it were flat, that are its own() here.
  ParameterPart own_part(size_t parameter) const;
  const std::vector<ParameterUnit>& units() const { return units_; }
  /// Where the parts of a unit end, by rank.
  const std::vector<int64_t>& ends(size_t unit) const { return ends_[unit]; }

  /// After each rank has updated its own: the weights of the others, in their place. Divided weights are let
  /// go instead, and gathered again by who uses them.
  void gather();
  /// The same, begun: until it is settled, or those of a module have arrived, nobody reads the others'
  /// weights or writes the own. Divided weights are let go instead.
  void begin_gather();
  void arrive(std::string_view module);
  void settle() const;

  /// A forward pass begins: weights that lie in no module have arrived; divided ones are whole until all
  /// their gradients are there, or until let_go().
  void begin_pass();
  /// While alive, divided weights of a module are whole: those that lie in no module within it. Gathers what
  /// is not, in the order of the units, and before that lets go what nobody uses; then begins to gather what
  /// comes next. In a recomputation they
  /// stay until all their gradients are there. Throws PolicyError for a module whose turn it is not.
  class Use : NotCopied {
   public:
    [[nodiscard]] Use(Shards& shards, std::string_view module);
    ~Use();

   private:
    Shards& shards_;
    const std::vector<size_t>& units_;
  };
  /// A backward pass comes to the module: its weights are whole until all their gradients are there. Throws
  /// PolicyError if forward left a module out.
  void use_in_backward(std::string_view module);
  /// Divided weights go, also those that a pass did not come to an end with.
  void let_go();

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

  /// Calls `take` with one part after the other of what is `own` of a parameter at the ranks, such as a
  /// moment, in their order; the others give_part() theirs meanwhile. Takes the bytes of one such part.
  void each_part(size_t parameter, const at::Tensor& own,
                 const std::function<void(const at::Tensor& part)>& take) const;
  /// To rank `to`, which calls each_part(). What is not on the parameters' device is copied there first.
  void give_part(const at::Tensor& own, int64_t to) const;
  /// Its place in parameters() and own(); nothing where it is not trained.
  std::optional<size_t> index_of(const std::string& name) const;

 private:
  struct Home;
  class Order;

  void lay_out(const NamedTensors& parameters, const ShardLayout& layout);
  void make_homes();
  void move_in(size_t parameter);
  void divide(size_t unit);
  void watch_gradients(size_t unit);
  void name_users(const std::vector<std::string>& modules);
  const std::vector<size_t>& units_of(std::string_view module) const;
  void take_turn(std::string_view module);
  void make_whole(const std::vector<size_t>& units, Order* order);
  bool is_expected(size_t unit, const Order* order) const;
  void begin_gather(size_t unit);
  void finish_gather(size_t unit) const;
  void take_memory(size_t unit);
  void gather_ahead(const Order& order);
  void let_go(size_t unit);
  void accumulated(size_t unit);
  void list_norm_parts(int64_t parts);
  ParameterPart part_of(size_t parameter, int64_t rank) const;
  int64_t begin_of_part(size_t unit, int64_t rank) const;

  std::unique_ptr<Collectives> collectives_;
  bool divides_ = false, divides_weights_ = false;
  ShardGather sends_ = ShardGather::fp32;
  NamedTensors parameters_, own_;
  std::vector<ParameterUnit> units_;
  std::vector<std::vector<int64_t>> ends_;        // by unit and rank
  std::vector<std::pair<size_t, size_t>> place_;  // by parameter: unit, member
  std::vector<NormPart> own_norm_parts_;
  int64_t norm_parts_ = 0;
  int64_t prefetch_ = 0;
  std::vector<std::string> targets_;
  std::vector<std::unique_ptr<Home>> homes_;  // by unit, where anything is divided
  // The units that a module uses itself.
  std::map<std::string, std::vector<size_t>, std::less<>> units_of_;
  std::unique_ptr<Order> with_gradients_, without_gradients_;  // of passes
  Order* order_ = nullptr;                                     // of the pass
  std::vector<std::string> turns_;                             // modules that have units
  size_t next_turn_ = 0;                                       // of the pass
  std::shared_ptr<const void> alive_;                          // of the calls from backward
};

}  // namespace dtk::policies
