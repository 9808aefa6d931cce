// The configuration of a run: plain structs, one per table of the TOML file.
//
// Each struct has one list of its fields, `fields(self, visit)`; reading, printing, comparing and checking
// all walk it. An entry is visit(name, member, allowed, meaning): `allowed` is an interval for numbers
// ("[1, inf)", "[0, 1)"), a choice for strings ("idx | images"), what a string is for in brackets ("(names of
// classes)") or "" for anything, and messages quote it as is; `meaning` is what --keys says of it.
// An enum has its choice itself (enum_text.h). An std::optional member that is not set is printed as a
// comment, not as a key.
#pragma once
#include <dtk/policies/internal/gradient_sums.h>
#include <dtk/policies/options/policy_options.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "toolkit/config/families.h"
#include "toolkit/config/family_options.h"

namespace dtk {

/// A number of bytes, in TOML a whole number or a text such as "24GB", "1.5 GiB" or "24e9"; or "80%" of the
/// memory of the device that a run trains on, which resolve_budget() turns into bytes.
struct ByteSize {
  int64_t bytes = 0;
  double percent = 0;  // in (0, 100] while `bytes` is not known; else 0
  friend bool operator==(const ByteSize&, const ByteSize&) = default;
};

/// What becomes of a step whose loss or gradient is NaN or infinite: it ends the run, or changes nothing.
enum class NotFinite { stop, skip };
constexpr auto enum_texts(NotFinite) {
  return std::array{"stop", "skip"};
}

struct TrainOptions {
  std::string model = "dit";
  std::vector<std::string> parts = {};
  std::string out = "runs/run";
  int64_t seed = 0;
  std::optional<int64_t> threads;
  std::optional<int64_t> steps;
  std::optional<int64_t> epochs;
  std::optional<double> seconds;
  int64_t accumulate = 1;
  int64_t log_every = 10;
  int64_t checkpoint_every = 0;
  int64_t sample_every = 0;
  int64_t keep_checkpoints = 2;
  int64_t validate_every = 0;
  bool validate_ema = false;
  NotFinite on_not_finite = NotFinite::stop;
  int64_t max_skipped = 10;
  double slow_step = 5;
  bool allow_thread_change = false;
  std::string init_from;
  std::string init_key;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [model, parts, out, seed, threads, steps, epochs, seconds, accumulate, log_every, checkpoint_every,
           sample_every, keep_checkpoints, validate_every, validate_ema, on_not_finite, max_skipped,
           slow_step, allow_thread_change, init_from, init_key] = self;
    visit("model", model, family_choices(), "family of what is trained");
    visit("parts", parts, "parts of the model, which its family names",
          "what of it is trained, by names of its family; not set: all, or what the family says");
    visit("out", out, "", "run folder; one that already holds a run is refused");
    visit("seed", seed, "[0, inf)", "from which all random numbers follow but those of sample.seed");
    visit("threads", threads, "[1, 1024]",
          "CPU threads; not set: OMP_NUM_THREADS, or all cores, which ranks of a machine share");
    visit("steps", steps, "[1, inf)",
          "optimizer steps; of steps, epochs and seconds the first that is reached ends the run");
    visit("epochs", epochs, "[1, 1000000]", "passes through the training data");
    visit("seconds", seconds, "(0, inf)", "of training by the clock");
    visit("accumulate", accumulate, "[1, inf)",
          "micro-batches of an optimizer step; data.batch must be divisible by it");
    visit("log_every", log_every, "[1, inf)",
          "steps between log lines, with steps 1, 2, 5, 10, 20, 50, ... before the first; losses of other "
          "steps are not read");
    visit("checkpoint_every", checkpoint_every, "[0, inf)",
          "steps between checkpoints; 0: only at the end and when stopped");
    visit("sample_every", sample_every, "[0, inf)", "steps between samples; 0: only at the end");
    visit("keep_checkpoints", keep_checkpoints, "[1, inf)", "complete checkpoints that stay, the newest");
    visit("validate_every", validate_every, "[0, inf)",
          "steps between validations; 0: only at the end; needs held-out samples");
    visit("validate_ema", validate_ema, "", "validate with the averaged weights, not those that are trained");
    visit("on_not_finite", on_not_finite, "",
          "a step with a loss or gradient of NaN or infinity ends the run, or changes nothing");
    visit("most_skipped", max_skipped, "[1, inf)",
          "steps in a row that may change nothing; one more ends the run");
    visit("slow_step", slow_step, "(1, inf)", "steps that take so many times their median are told of");
    visit("allow_thread_change", allow_thread_change, "",
          "go on with other train.threads: the result is then not the same to the bit");
    visit("init_from", init_from, "",
          "weights to begin with: a file, or a folder of a checkpoint, a run or adapters");
    visit("init_key", init_key, "", "which set of weights in it; \"\": the average where there is one");
  }
  friend bool operator==(const TrainOptions&, const TrainOptions&) = default;
};

/// A file that cannot be decoded: the run ends, or it is left out.
enum class OnCorrupt { error, skip };
constexpr auto enum_texts(OnCorrupt) {
  return std::array{"error", "skip"};
}

/// What of the samples is compared when a run goes on: what they are called and how large their files are, or
/// also every value, for which all are read once at each start.
enum class Fingerprint { names, contents };
constexpr auto enum_texts(Fingerprint) {
  return std::array{"names", "contents"};
}

/// In which order an epoch visits the samples: any, or so that those of a batch are about as long, where
/// samples have lengths.
enum class DataOrder { shuffled, grouped };
constexpr auto enum_texts(DataOrder) {
  return std::array{"shuffled", "grouped"};
}

struct DataOptions {
  std::string kind = "idx";
  std::optional<int64_t> samples;
  OnCorrupt on_corrupt = OnCorrupt::error;
  Fingerprint fingerprint = Fingerprint::names;
  bool allow_change = false;
  int64_t validation = 0;
  int64_t batch = 16;
  bool drop_last = true;
  DataOrder order = DataOrder::shuffled;
  int64_t prefetch = 2;
  std::optional<int64_t> threads;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [kind, samples, on_corrupt, fingerprint, allow_change, validation, batch, drop_last, order,
           prefetch, threads] = self;
    visit("kind", kind, data_kind_choices(), "what the samples are; each family has its own kinds");
    visit("samples", samples, "[1, inf)", "made-up ones: how many; others: how many there must be");
    visit("on_corrupt", on_corrupt, "", "a file that cannot be decoded ends the run, or is left out");
    visit("fingerprint", fingerprint, "",
          "what a resumed run compares: names and sizes of files, or also what is in them");
    visit("allow_change", allow_change, "", "go on with data that have changed");
    visit("validation", validation, "[0, inf)", "samples held out, never trained on");
    visit("batch", batch, "[1, inf)", "samples of an optimizer step");
    visit("drop_last", drop_last, "", "leave out samples at the end of an epoch that do not fill a batch");
    visit("order", order, "",
          "of an epoch: shuffled, or grouped so that samples of a batch are about as long");
    visit("prefetch", prefetch, "[1, 64]", "micro-batches that are read ahead");
    visit("threads", threads, "[1, 256]",
          "that read samples; not set: 1 where the CPU trains, else train.threads, at most 16");
  }
  friend bool operator==(const DataOptions&, const DataOptions&) = default;
};

/// What weight_decay is of: every parameter, or not those of one dimension, norms and biases.
enum class Decays { all, matrices };
constexpr auto enum_texts(Decays) {
  return std::array{"all", "matrices"};
}

struct OptimizerOptions {
  double lr = 1e-4;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  Decays decays = Decays::all;
  double clip = 1.0;
  // Parameters with a rate of their own, which follows the same schedule: "blocks.0: 2e-5". A
  // pattern is a parameter's name or the path of what it lies in; * stands for one component.
  std::vector<std::string> rates = {};

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [lr, beta1, beta2, eps, weight_decay, decays, clip, rates] = self;
    visit("lr", lr, "(0, inf)", "learning rate");
    visit("beta1", beta1, "[0, 1)", "AdamW: decay of the mean of gradients");
    visit("beta2", beta2, "[0, 1)", "AdamW: decay of the mean of their squares");
    visit("eps", eps, "(0, inf)", "AdamW: added to the root of the mean of squares");
    visit("weight_decay", weight_decay, "[0, inf)",
          "AdamW: part of a weight that a step takes away, times the rate");
    visit("decays", decays, "", "what decays: every parameter, or not norms and biases");
    visit("clip", clip, "[0, inf)",
          "largest norm of all gradients together; 0: none, and gradients are checked only where they are "
          "logged or saved");
    visit("rates", rates, "patterns with a rate, such as \"blocks.0: 2e-5\"",
          "parameters with a rate of their own");
  }
  friend bool operator==(const OptimizerOptions&, const OptimizerOptions&) = default;
};

/// The rate with schedule.kind = "epochs", the same within an epoch of train.epochs (lr_schedule.h).
struct EpochScheduleOptions {
  int64_t warmup = 5;
  bool lowered = false;

  // As the original driving model does it: a run that is resumed within the warm-up begins at the whole
  // rate and then exceeds it.
  bool overshooting_resume = false;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [warmup, lowered, overshooting_resume] = self;
    visit("warmup", warmup, "[1, inf)",
          "epochs, from a tenth of the rate in the first to all of it in the last");
    visit("lowered", lowered, "", "a tenth of the rate in the last 10 epochs, a hundredth in the last 5");
    visit("overshooting_resume", overshooting_resume, "",
          "as the original driving model resumes within the warm-up: at more than the rate");
  }
  friend bool operator==(const EpochScheduleOptions&, const EpochScheduleOptions&) = default;
};

/// After warm-up: cosine to `final` over the run, or constant; epochs: by whole epochs, as [schedule.epochs]
/// says.
enum class ScheduleKind { cosine, constant, epochs };
constexpr auto enum_texts(ScheduleKind) {
  return std::array{"cosine", "constant", "epochs"};
}

struct ScheduleOptions {
  ScheduleKind kind = ScheduleKind::cosine;
  int64_t warmup = 0;
  double final = 0.01;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [kind, warmup, final_fraction] = self;
    visit("kind", kind, "", "how the rate goes on behind the warm-up; epochs: as [schedule.epochs] says");
    visit("warmup", warmup, "[0, inf)", "steps in which the rate grows linearly; cosine and constant");
    visit("final", final_fraction, "[0, 1]", "cosine: last rate, as a part of optimizer.lr");
  }
  friend bool operator==(const ScheduleOptions&, const ScheduleOptions&) = default;
};

struct SampleOptions {
  int64_t steps = 25;
  bool ema = true;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [steps, ema] = self;
    visit("steps", steps, "[1, 10000]", "of the sampler");
    visit("ema", ema, "", "sample with the averaged weights");
  }
  friend bool operator==(const SampleOptions&, const SampleOptions&) = default;
};

/// What happens to a run that by its plan needs more than the budget or the device has: it is refused before
/// it reads data, exit 3; or warned, and begins.
enum class OnOverBudget { refuse, warn };
constexpr auto enum_texts(OnOverBudget) {
  return std::array{"refuse", "warn"};
}

/// What becomes of a run whose step was refused memory: it ends, exit 3; or that step is taken back, and the
/// run goes on with a choice that takes less (run/escalation.h).
enum class OnOutOfMemory { stop, escalate };
constexpr auto enum_texts(OnOutOfMemory) {
  return std::array{"stop", "escalate"};
}

struct MemoryOptions {
  bool ledger = true;
  std::optional<ByteSize> budget;
  OnOverBudget on_over_budget = OnOverBudget::refuse;
  OnOutOfMemory on_out_of_memory = OnOutOfMemory::stop;
  // Each micro-batch goes through the model in so many parts at most, equal ones but for the last, one after
  // another; what is read for it stays the same, and what is drawn where the family says so
  // (TrainableModel::draws_for_whole).
  int64_t split = 1;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [ledger, budget, on_over_budget, on_out_of_memory, split] = self;
    visit("ledger", ledger, "", "count every byte by owner and phase; false: no memory.json");
    visit("budget", budget, "(0, inf)",
          "on a CPU of all tensors, to the byte; on CUDA of what LibTorch's allocator may reserve");
    visit("on_over_budget", on_over_budget, "",
          "a run that is planned to need more than there is is refused, or begins with a warning");
    visit("on_out_of_memory", on_out_of_memory, "",
          "a step that is refused memory ends the run, or the run goes on with what takes less");
    visit("split", split, "[1, inf)",
          "parts, one after another, in which a micro-batch goes through the model");
  }
  friend bool operator==(const MemoryOptions&, const MemoryOptions&) = default;
};

struct LogOptions {
  bool tensorboard = true;  // some 100 bytes a log line, and the grids
  bool report = true;
  std::optional<double> peak_tflops;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [tensorboard, report, peak_tflops] = self;
    visit("tensorboard", tensorboard, "", "write event files below train.out");
    visit("report", report, "", "write report.html at the end and at each checkpoint");
    visit("peak_tflops", peak_tflops, "(0, inf)",
          "peak of the device, of which MFU is a part; not set: known of some GPUs");
  }
  friend bool operator==(const LogOptions&, const LogOptions&) = default;
};

enum class Backend { automatic, nccl, gloo };
constexpr auto enum_texts(Backend) {
  return std::array{"auto", "nccl", "gloo"};
}

/// Of a run on several ranks (distributed/); without effect on one.
struct DistributedOptions {
  Backend backend = Backend::automatic;
  double timeout = 600;
  std::string interface = "";
  policies::GradientSums reduce = policies::GradientSums::ordered;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [backend, timeout, interface, reduce] = self;
    visit("backend", backend, "", "what moves tensors between ranks; auto: nccl on GPUs, gloo on CPUs");
    visit("timeout", timeout, "[1, 86400]", "seconds that a rank waits for another");
    visit("interface", interface, "", "network interface of gloo; \"\": that of the host's name");
    visit("reduce", reduce, "",
          "how gradients are summed: in one rank's order, so that their number changes no bit; native: each "
          "rank adds its own first, and less is sent");
  }
  friend bool operator==(const DistributedOptions&, const DistributedOptions&) = default;
};

struct RunConfig {
  TrainOptions train;
  FamilyOptions families;
  DataOptions data;
  OptimizerOptions optimizer;
  ScheduleOptions schedule;
  EpochScheduleOptions epoch_schedule;
  SampleOptions sample;
  MemoryOptions memory;
  LogOptions log;
  DistributedOptions distributed;
  policies::PolicyOptions policies;

  /// Visits every table in the order it is printed: visit(table name, struct). `families` stands for its
  /// tables of other names; what it has of these follows theirs (keys.h).
  template <class Self, class Visit>
  static void tables(Self& self, Visit&& visit) {
    auto& [train, families, data, optimizer, schedule, epoch_schedule, sample, memory, log, distributed,
           policy_options] = self;
    visit("train", train);
    visit("", families);
    visit("data", data);
    visit("optimizer", optimizer);
    visit("schedule", schedule);
    visit("schedule.epochs", epoch_schedule);
    visit("sample", sample);
    visit("memory", memory);
    visit("log", log);
    visit("distributed", distributed);
    policies::PolicyOptions::tables(policy_options, [&](const char* name, auto& options) {
      visit(std::string("policies.") + name, options);
    });
  }
  friend bool operator==(const RunConfig&, const RunConfig&) = default;
};

/// Samples of a micro-batch, which the loader reads together.
inline int64_t samples_of_micro_batch(const RunConfig& config) {
  return config.data.batch / config.train.accumulate;
}

/// Samples that go through the model together in training, at most.
inline int64_t samples_at_once(const RunConfig& config) {
  return (samples_of_micro_batch(config) + config.memory.split - 1) / config.memory.split;
}

}  // namespace dtk
