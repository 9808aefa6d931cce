// Why recomputing modules in backward does or does not lower a job's peak: what each of them keeps, what it
// would keep as a segment, and where the peak lies. Of any model, by counting planned runs.
//
//   const Explanation why = explain(at::kCPU, [](const Run& run) {
//     Net net(run);                                  // modules as run("conv1", fn, {x})
//     claim_state(net.named_parameters());           // once: names what lives from step to step
//     for (int i = 0; i < 2; ++i) step(net);         // within PhaseScopes: "forward", "backward", ...
//   }, {.recompute = segment});                      // such as dtk::policies' own
//   print(text_of(why));
//
// Saved bytes are those of storages that autograd holds when backward asks for the first of them, each once,
// without parameters; of several forward passes, the one that saves most. Peaks are those of simulate().
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <dtk/planner/simulate.h>
#include <dtk/policies/seam.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dtk::planner {

/// A module that the job ran, and what it would be as a segment that keeps its inputs only.
struct SegmentGain {
  std::string path;
  int64_t saves = 0;   // bytes that its operators save
  int64_t inputs = 0;  // bytes of its inputs' storages
  int64_t gain = 0;    // fewer bytes saved by all if it alone is a segment; below 0: more
  std::string reason;  // why it gains nothing; "" where it does
  friend bool operator==(const SegmentGain&, const SegmentGain&) = default;
};

/// What backward keeps that it did not find kept: the most at once.
struct HeldInBackward {
  int64_t bytes = 0;
  std::string path;  // module
};

/// The largest storage of a parameter that is not frozen, and the temporaries of that size.
struct LargestParameter {
  std::string name;  // as policies::name_parameter() was told; else its owner's label
  int64_t bytes = 0;
  int64_t temporaries = 0;             // alive at once, at the most
  std::string phase;                   // there
  std::vector<std::string> operators;  // that made them
};

/// Where the sum rose to a phase's peak.
struct PeakPlace {
  std::string operation;  // "aten::mm", or the owner's label; "" where nothing was allocated in the phase
  std::string path;       // module; "" outside of all
  bool backward = false;  // in its backward pass
};

/// Of what is alive at an instant without living from step to step, the most of one operator.
struct LargestAlive {
  policies::Category category = policies::Category::temporaries;
  std::string operation;  // that made it, "aten::sqrt"; of data its owner's label
  int64_t bytes = 0;      // 0: there is nothing
};
LargestAlive largest_alive(const policies::MemorySums& alive);

/// A planned run, and what it kept for backward.
struct Observed {
  SimulationResult plan;
  bool with_gradients = false;  // autograd saved something
  bool backward = false;        // and backward asked for it
  int64_t saved = 0;
  int64_t outside = 0;   // of that, held by operators outside of all modules
  int64_t entering = 0;  // of that, inputs of modules that none of them made, and not `outside`
  /// Of `saved`, what one module alone holds, with what it runs; of operators outside of all modules, by the
  /// path that they named. The rest several hold, or operators without a path.
  std::map<std::string, int64_t> kept_by;
  std::vector<SegmentGain> segments;  // in the order in which they ran first
  HeldInBackward recomputed_held;     // by recomputed segments
  HeldInBackward fetched;             // from host memory
  /// As recomputed_held, of the instants at which a module of that path had just recomputed something.
  std::map<std::string, int64_t> recomputed_held_by;
  LargestParameter largest;
  std::map<std::string, PeakPlace> places;  // by phase

  /// No choice of modules to recompute saves more bytes than this.
  int64_t max_gain() const { return saved - outside - entering; }
};

/// A way to run the job otherwise.
struct Alternative {
  std::string name;
  std::string problem;            // why it cannot be; then nothing below
  policies::PhasePeak peak = {};  // of its plan
};

struct Explanation {
  Observed plain;                         // nothing recomputed
  std::optional<Observed> recomputed;     // with segments
  std::string segments;                   // which: "all of them"
  bool recomputes = false;                // the job in question is the one with segments
  std::vector<Alternative> alternatives;  // the lowest peak first

  /// The job in question.
  const Observed& job() const { return recomputes && recomputed ? *recomputed : plain; }
};

/// A job that runs each of its modules, in every step, through the function that it is given.
using ExplainedJob = std::function<void(const policies::Run& run)>;

struct ExplainOptions {
  policies::Run recompute;  // runs a module as a segment; null: the plain plan only
  bool recomputes = false;  // the job in question does so
  std::vector<std::pair<std::string, std::function<void()>>> alternatives;
  SimulationOptions simulation = {};
};

/// Plans `job` plainly, with each module a segment, and `options.alternatives`. The saved-tensor ledger is
/// there already. A job that runs no backward pass is explained as one. Takes the event log of the device's
/// books. Throws as simulate().
Explanation explain(c10::Device device, const ExplainedJob& job, const ExplainOptions& options = {});

/// What `plan` does, watched: it calls simulate() for `device`, and its modules run through
/// policies::run_observed(), which a PolicySet puts into its seam.
Observed observe(c10::Device device, const std::function<SimulationResult()>& plan);

/// Books parameters and their gradients under their names, and buffers under "buffers". Where nobody
/// does, they are state that is nobody's. What else lives from step to step needs an OwnerScope where it is
/// made.
void claim_state(const std::vector<std::pair<std::string, at::Tensor>>& parameters,
                 const std::vector<std::pair<std::string, at::Tensor>>& buffers = {});

/// The label that claim_state() gives to buffers, beside the parameters.
inline constexpr char kBuffersLabel[] = "buffers";

/// The most bytes that a phase's peak has of each category of state, which lives from step to step whatever
/// the segments are, by its name; buffers apart from the parameters. Without those of 0 bytes.
std::vector<std::pair<std::string, int64_t>> state_of(const Observed& observed);

/// For a terminal of 80 columns.
std::string text_of(const Explanation& why);

/// What a peak without the bytes of one category could be lowered by at the most: another phase's peak
/// remains.
struct CategoryBound {
  policies::Category category;
  int64_t bytes = 0;
};
/// The most first; without those that bound nothing above 0.
std::vector<CategoryBound> category_bounds(const std::vector<policies::PhasePeak>& phases);

}  // namespace dtk::planner
