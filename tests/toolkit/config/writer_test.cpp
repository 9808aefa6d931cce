#include <algorithm>
#include <set>

#include "support/catch.h"
#include "support/config_text.h"
#include "support/runs/smallest_config.h"
#include "toolkit/config/config_io.h"
#include "toolkit/families/diffusion_planner/options.h"
#include "toolkit/families/dit/options.h"

namespace dit = dtk::dit;
namespace diffusion_planner = dtk::diffusion_planner;
using dtk::LoadedConfig;
using dtk::parse_config;
using dtk::print_config;
using dtk::RunConfig;
using dtk::policies::Enabled;
using dtk::test::read_back;
using dtk::test::smallest;

namespace {

/// Every field that the rules let be off its default together with the others, at values that only an exact
/// text brings back.
RunConfig custom_from_folder() {
  RunConfig config;
  config.train = {.out = "runs/\"a\" \\ b\tc\n\x7f ü #",
                  .seed = 9223372036854775807,
                  .threads = 3,
                  .steps = 1000,
                  .epochs = 9,
                  .seconds = 0.1,
                  .accumulate = 4,
                  .log_every = 7,
                  .checkpoint_every = 11,
                  .sample_every = 13,
                  .keep_checkpoints = 5,
                  .validate_every = 17,
                  .validate_ema = false,  // no EMA below
                  .allow_thread_change = true,
                  .init_from = "weights \"a\".pt",
                  .init_key = "model"};
  dit::options_of(config).model = {.name = dtk::models::DitPreset::custom,
                                   .depth = 2,
                                   .hidden = 24,
                                   .heads = 3,
                                   .patch = 2,
                                   .image_size = 28,
                                   .channels = 3,
                                   .classes = 10,
                                   .class_dropout = 1.0 / 3,
                                   .learn_sigma = false,
                                   .mlp_ratio = 2.5,
                                   .mlp_dropout = 1e-300};
  config.data = {.kind = "images",
                 .samples = 12345,
                 .on_corrupt = dtk::OnCorrupt::skip,
                 .fingerprint = dtk::Fingerprint::contents,
                 .allow_change = true,
                 .validation = 77,
                 .batch = 32,
                 .drop_last = false,
                 .prefetch = 3,
                 .threads = 5};
  dit::options_of(config).data.folder = "set";
  dit::options_of(config).data.convert = dtk::Convert::rgb;
  dit::options_of(config).data.strict_folder = true;
  dit::options_of(config).data.flip = true;
  dit::options_of(config).diffusion.time = dtk::FlowTime::uniform;
  config.optimizer = {.lr = 3e-3,
                      .beta1 = 0.8,
                      .beta2 = 0.99,
                      .eps = 1e-10,
                      .weight_decay = 1e22,
                      .decays = dtk::Decays::matrices,
                      .clip = 0.0};
  config.schedule = {.kind = dtk::ScheduleKind::cosine, .warmup = 20, .final = 0.5};
  config.sample = {.steps = 10, .ema = false};
  dit::options_of(config).sampler.sampler = dtk::SamplerKind::heun;
  dit::options_of(config).grid = {
      .guidance = 2.0, .cfg_channels = 3, .classes = "cat,0-4", .per_class = 2, .seed = 5};
  config.memory.ledger = false;
  config.log = {.tensorboard = false, .report = false, .peak_tflops = 312.5};
  config.distributed = {.backend = dtk::Backend::gloo,
                        .timeout = 12.5,
                        .interface = "eth\"0",
                        .reduce = dtk::policies::GradientSums::native};
  config.policies.precision = {.enabled = Enabled::on,
                               .cpu = dtk::policies::CpuPrecision::probe,
                               .fp32 = {"final_layer", "a\"b\\c, d] # e", "x\n"}};
  config.policies.attention = {.enabled = Enabled::off, .kernel = dtk::policies::AttentionKernel::cudnn};
  config.policies.fusion = {.enabled = Enabled::off, .cuda = true};
  config.policies.shard = {.enabled = Enabled::on,
                           .level = dtk::policies::ShardLevel::parameters,
                           .targets = {"blocks.*", "head"},
                           .min_unit = {4096},
                           .prefetch = 3,
                           .gather = dtk::policies::ShardGather::bf16};
  config.policies.ema = {.enabled = Enabled::off,
                         .decay = 0.995,
                         .warmup = false,
                         .every = 5,
                         .device = dtk::policies::EmaDevice::same,
                         .pinned = false};
  config.policies.checkpoint = {.enabled = Enabled::on,
                                .targets = {},
                                .every = 2,
                                .segment = 3,
                                .keep = dtk::policies::KeepWord::offload,
                                .offload_min_bytes = {4096}};
  return config;
}

/// The fields that the two others have to leave alone.
RunConfig custom_from_latents() {
  RunConfig config = smallest();
  config.data.kind = "latents";
  dit::options_of(config).data.latents = "latents.npy";
  dit::options_of(config).data.labels = "labels.npy";
  dit::options_of(config).data.latent_shift = 0.0609;
  dit::options_of(config).data.latent_scale = 0.18215;
  config.data.validation = 5;
  config.train.validate_ema = true;
  config.train.on_not_finite = dtk::NotFinite::skip;
  config.train.max_skipped = 3;
  config.train.slow_step = 7;
  return config;
}

/// The fields that custom_from_folder() had to leave alone.
RunConfig published_from_idx() {
  RunConfig config = smallest();
  dit::options_of(config).data.images = "images.gz";
  dit::options_of(config).data.labels = "labels.gz";
  dit::options_of(config).data.if_missing = dit::IfMissing::drawn;
  config.train.epochs = 20;
  config.schedule.kind = dtk::ScheduleKind::epochs;  // leaves schedule.final without use
  config.epoch_schedule = {.warmup = 2, .lowered = true, .overshooting_resume = true};
  config.memory.budget = dtk::ByteSize{9223372036854775807};
  config.memory.on_over_budget = dtk::OnOverBudget::warn;
  config.memory.on_out_of_memory = dtk::OnOutOfMemory::escalate;
  config.memory.split = 3;
  config.policies.precision.cpu = dtk::policies::CpuPrecision::bf16;
  config.policies.checkpoint.keep = std::vector<std::string>{"fc2_out", "aten::mm"};
  config.policies.ema.enabled = Enabled::on;
  return config;
}

/// The fields that mean something for other objectives only.
RunConfig original_objective() {
  RunConfig config = smallest();
  dit::options_of(config).diffusion = {
      .objective = dtk::Prediction::epsilon, .steps = 400, .betas = dtk::BetaKind::cosine};
  dit::options_of(config).sampler.sampler = dtk::SamplerKind::ddim;
  config.sample.steps = 30;
  dit::options_of(config).sampler.respacing = "10,20";
  dit::options_of(config).sampler.eta = 0.1;
  dit::options_of(config).sampler.clip_x0 = true;
  return config;
}

/// Each key of a table away from its default.
struct Changed {
  void operator()(const std::string&, bool& value, const auto&...) const { value = !value; }
  void operator()(const std::string&, int64_t& value, const auto&...) const { value = 2 * value + 1; }
  void operator()(const std::string&, double& value, const auto&...) const { value = 0.5 * value + 0.0625; }
  void operator()(const std::string&, std::array<double, 4>& value, const auto&...) const {
    value = {0.0, 0.5, 1e-30, 2.0};
  }
  void operator()(const std::string&, std::optional<int64_t>& value, const auto&...) const { value = 20; }
  void operator()(const std::string&, std::optional<double>& value, const auto&...) const { value = 0.7; }
  void operator()(const std::string&, std::optional<bool>& value, const auto&...) const { value = true; }
  void operator()(const std::string&, std::string&, const auto&...) const {}
  void operator()(const std::string&, dtk::policies::TextEnum auto&, const auto&...) const {}
};

RunConfig driving() {
  RunConfig config;
  config.train.model = "diffusion_planner";
  config.train.steps = 1;
  diffusion_planner::Options::tables(diffusion_planner::options_of(config), [](const char*, auto& options) {
    std::remove_reference_t<decltype(options)>::fields(options, Changed());
  });
  // The only ones that go with the others.
  diffusion_planner::options_of(config).model.use_ego_history = true;
  diffusion_planner::options_of(config).process.prefix = true;
  diffusion_planner::options_of(config).process.velocity = false;
  diffusion_planner::options_of(config).loss.squared_error = false;
  diffusion_planner::options_of(config).loss.integrated = diffusion_planner::LossOptions().integrated;
  diffusion_planner::options_of(config).loss.integrated_window =
      diffusion_planner::LossOptions().integrated_window;
  diffusion_planner::options_of(config).augmentation.rebuilt = 11;
  config.data.kind = "frames";
  diffusion_planner::options_of(config).data.frames = "frames";
  diffusion_planner::options_of(config).data.held_out = "held \"out\".json";
  diffusion_planner::options_of(config).data.normalization = "scales.json";
  diffusion_planner::options_of(config).sample.frames = 3;
  config.policies.checkpoint.targets = {"decoder.*"};
  config.policies.precision.fp32 = {"decoder"};
  return config;
}

/// The fields that driving() has to leave alone.
RunConfig driving_by_velocities() {
  RunConfig config;
  config.train.model = "diffusion_planner";
  config.train.steps = 1;
  diffusion_planner::options_of(config).model.use_ego_history = false;
  diffusion_planner::options_of(config).process.velocity = true;
  diffusion_planner::options_of(config).loss.integrated = 0.3;
  diffusion_planner::options_of(config).loss.integrated_window = 7;
  config.data.kind = "frames";
  return config;
}

/// What the published driving model of this preset has otherwise.
RunConfig upstream_driving() {
  RunConfig config;
  config.train.model = "diffusion_planner";
  config.train.steps = 1;
  diffusion_planner::options_of(config).model.preset = dtk::models::DiffusionPlannerPreset::up;
  diffusion_planner::options_of(config).process.prefix = false;
  diffusion_planner::options_of(config).loss.squared_error = true;
  diffusion_planner::options_of(config).augmentation.probability = 0;
  diffusion_planner::options_of(config).augmentation.smooth = false;
  config.data.kind = "frames";
  return config;
}

RunConfig adapted_llava() {
  return read_back(R"([train]
model = "llava"
steps = 1
parts = ["projector", "lora"]
[llava]
projector = "linear"
tap = -1
base = "nf4"
double_quant = false
loss_chunk = 7
[llava.vision]
hidden = 96
mlp = 80
depth = 5
heads = 3
image = 70
patch = 7
[llava.text]
hidden = 96
mlp = 88
depth = 3
heads = 3
vocabulary = 777
norm_eps = 1e-6
rope_theta = 5000.0
[llava.lora]
r = 3
alpha = 5.0
dropout = 0.25
targets = ["q_proj"]
[llava.data]
conversations = "a.json"
held_out = "b.json"
folder = "pictures"
tokenizer = "t.model"
system = "A chat."
image_first = true
max_length = 77
pad = "max"
aspect_ratio = "pad"
lengths = "l.json"
[llava.template]
system_end = "\n"
question_begin = "Q: "
question_end = "\nA:"
answer_begin = "  "
answer_end = "!"
end_token = false
[data]
kind = "conversations"
order = "grouped"
[optimizer]
rates = ["model.mm_projector: 2e-5"]
)");
}

RunConfig published_llava() {
  return read_back(
      "[train]\nmodel = \"llava\"\nsteps = 1\nparts = [\"projector\"]\n[llava]\npreset = \"7b\"\n"
      "[llava.data]\nconversations = \"a.json\"\ntokenizer = \"t.model\"\nstyle = \"plain\"\n");
}

RunConfig custom_vggt() {
  return read_back(R"([train]
model = "vggt"
[vggt]
image = 56
patch = 7
hidden = 96
heads = 3
encoder = 5
depth = 7
registers = 3
trunk = 3
features = 40
widths = [4, 8, 12, 16]
taps = [0, 2, 4, 6]
camera = false
depths = false
points = true
[vggt.data]
scenes = "scenes"
frames = 3
height = 63
width = 70
[vggt.loss]
camera = 4.0
depth = 2.0
confidence = 0.3
gradient = 0.5
[vggt.infer]
narrow_heads = true
[data]
kind = "scenes"
[policies.inference]
enabled = true
gradients = true
taps = "tapped"
frame_chunk = 1
token_chunk = 2
query_chunk = 3
head_chunk = 4
heads = ["tail"]
)");
}

RunConfig published_vggt() {
  return read_back(
      "[train]\nmodel = \"vggt\"\n[vggt]\npreset = \"1b\"\n"
      "[policies.inference]\nnarrow_weights = false\n");
}

}  // namespace

TEST_CASE("config writer: what is printed reads back equal") {
  for (const RunConfig& config :
       {smallest(), custom_from_folder(), custom_from_latents(), published_from_idx(), original_objective(),
        driving(), driving_by_velocities(), upstream_driving(), adapted_llava(), published_llava(),
        custom_vggt(), published_vggt()}) {
    const std::string text = print_config({config, {}});
    INFO(text);
    CHECK(read_back(text) == config);
    CHECK(print_config({read_back(text), {}}) == text);
  }
}

TEST_CASE("config writer: the round trip above covers every field off its default") {
  std::set<std::string> covered;
  for (const RunConfig& config :
       {custom_from_folder(), custom_from_latents(), published_from_idx(), original_objective(), driving(),
        driving_by_velocities(), upstream_driving(), adapted_llava(), published_llava(), custom_vggt(),
        published_vggt()}) {
    for (const auto& difference : differences(RunConfig(), config)) covered.insert(difference.key);
  }
  std::set<std::string> missing;
  for (const RunConfig& config : {smallest(), driving()}) {
    for (const auto& [key, origin] : parse_config(print_config({config, {}}), "c", {}).origins) {
      if (covered.count(key) == 0) missing.insert(key);
    }
  }
  CHECK(missing ==
        std::set<std::string>{"diffusion_planner.process.prediction"});  // which has one choice only
}

TEST_CASE("config writer: the whole text") {
  const LoadedConfig loaded = parse_config(
      "[train]\nseconds = 300\n"
      "[model]\n"
      "name = \"DiT-S/4\"\n"
      "[optimizer]\n"
      "eps = 1e-8\n",
      "configs/base.toml", {"data.batch=32"});
  CHECK(print_config(loaded) == R"([train]
model = "dit"  # default
out = "runs/run"  # default
seed = 0  # default
# threads is not set
# steps is not set
# epochs is not set
seconds = 300.0  # configs/base.toml:2
accumulate = 1  # default
log_every = 10  # default
checkpoint_every = 0  # default
sample_every = 0  # default
keep_checkpoints = 2  # default
validate_every = 0  # default
validate_ema = false  # default
on_not_finite = "stop"  # default
# most_skipped has no effect: train.on_not_finite = "stop"
slow_step = 5.0  # default
allow_thread_change = false  # default
init_from = ""  # default
init_key = ""  # default

[model]
name = "DiT-S/4"  # configs/base.toml:4
# depth = 12 (DiT-S/4)
# hidden = 384 (DiT-S/4)
# heads = 6 (DiT-S/4)
# patch = 4 (DiT-S/4)
image_size = 32  # default
channels = 4  # default
classes = 1000  # default
class_dropout = 0.1  # default
learn_sigma = false  # default: rectified flow predicts no variance
mlp_ratio = 4.0  # default
mlp_dropout = 0.0  # default

[diffusion]
objective = "rectified_flow"  # default
time = "logit_normal"  # default
# steps has no effect: diffusion.objective = "rectified_flow"
# betas has no effect: diffusion.objective = "rectified_flow"

[data]
kind = "idx"  # default
# samples is not set
on_corrupt = "error"  # default
fingerprint = "names"  # default
allow_change = false  # default
validation = 0  # default
batch = 32  # --set
drop_last = true  # default
order = "shuffled"  # default
prefetch = 2  # default
# threads is not set
images = ""  # default
labels = ""  # default
if_missing = "error"  # default
folder = ""  # default
convert = "none"  # default
strict_folder = false  # default
latents = ""  # default
latent_shift = 0.0  # default
latent_scale = 1.0  # default
flip = false  # default

[optimizer]
lr = 1e-04  # default
beta1 = 0.9  # default
beta2 = 0.999  # default
eps = 1e-08  # configs/base.toml:6
weight_decay = 0.0  # default
decays = "all"  # default
clip = 1.0  # default
rates = []  # default

[schedule]
kind = "cosine"  # default
warmup = 0  # default
final = 0.01  # default

[sample]
steps = 25  # default: usual with euler
ema = true  # default
sampler = "euler"  # default: usual with objective rectified_flow
# respacing is not set
# eta has no effect: sample.sampler = "euler"
# clip_x0 has no effect: sample.sampler = "euler"
guidance = 4.0  # default
cfg_channels = 0  # default
# classes is not set
per_class = 8  # default
seed = 0  # default

[memory]
ledger = true  # default
# budget is not set
on_over_budget = "refuse"  # default
on_out_of_memory = "stop"  # default
split = 1  # default

[log]
tensorboard = true  # default
report = true  # default
# peak_tflops is not set

[distributed]
backend = "auto"  # default
timeout = 600.0  # default
interface = ""  # default
reduce = "ordered"  # default

[policies.precision]
enabled = "default"  # default
cpu = "probe"  # default
fp32 = ["final_layer"]  # default: where the DiT's output leaves

[policies.attention]
enabled = "default"  # default
kernel = "flash"  # default

[policies.fusion]
enabled = "default"  # default
cuda = false  # default

[policies.shard]
enabled = "default"  # default
level = "optimizer"  # default
targets = ["*"]  # default
min_unit = 1048576  # default
# prefetch has no effect: policies.shard.level = "optimizer"
# gather has no effect: policies.shard.level = "optimizer"

[policies.ema]
enabled = "default"  # default
decay = 0.9999  # default
warmup = true  # default
every = 1  # default
device = "cpu"  # default
pinned = true  # default

[policies.checkpoint]
enabled = "default"  # default
targets = ["blocks.*"]  # default: the DiT's blocks
every = 1  # default
segment = 1  # default
keep = "block"  # default
# offload_min_bytes has no effect: policies.checkpoint.keep = "block"

[policies.inference]
enabled = "default"  # default
gradients = false  # default
narrow_weights = true  # default
taps = "projected"  # default
# frame_chunk is not set
# token_chunk is not set
# query_chunk is not set
# head_chunk is not set
heads = ["head"]  # default
)");
}
