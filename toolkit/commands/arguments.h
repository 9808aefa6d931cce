// The arguments of the programs. Everything that is wrong with them is a ConfigError whose message begins
// with the argument; nothing is printed and nothing exits.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dtk {

struct TrainArguments {
  std::string config;            // file
  std::vector<std::string> set;  // "data.batch=16", in order
  std::string resume;            // "": a new run; "latest"; or a checkpoint folder
  std::string device = "auto";   // auto, cpu, cuda or cuda:INDEX
  bool print_config = false;
  bool help = false;     // nothing else was checked
  bool version = false;  // likewise
};

/// `argv[0]` is the program's name, as in main.
TrainArguments parse_train_arguments(int argc, const char* const* argv);
/// At most 24 lines of at most 80 columns; the last is an example.
std::string train_help();

/// Options that are not set come from the [sample] and [train] tables of the run.
struct SampleArguments {
  std::string checkpoint;                // a checkpoint's folder; exactly one of this
  std::string weights;                   // and a file of weights is given
  std::string key;                       // of the set of weights in that file; "": ema where there is one
  std::string config;                    // file; "": the one saved with the run
  std::vector<int64_t> classes;          // one row of samples each, repetitions allowed; or
  std::string frames;                    // a folder or a JSON list, for the driving planner; "": classes
  std::optional<double> guidance;        // classifier-free guidance scale; 1: off
  std::optional<int64_t> cfg_channels;   // channels guided; 0: all
  std::optional<std::string> sampler;    // euler, heun, ddpm or ddim
  std::optional<int64_t> steps;          // sampler steps
  std::optional<std::string> respacing;  // which steps of the diffusion (respacing.h)
  std::optional<double> eta;             // share of ddpm's noise in ddim
  std::optional<bool> clip_x0;           // predicted images are limited to [-1, 1]
  std::optional<int64_t> seed;           // of the noise
  int64_t per_class = 1;
  bool raw = false;  // the checkpoint's raw weights instead of its EMA
  std::string out;   // ends in .png, .safetensors or .npy; with frames a folder
  std::string device = "auto";
  std::optional<int64_t> threads;
  bool help = false;     // nothing else was checked
  bool version = false;  // likewise
};

struct ExportArguments {
  std::string checkpoint;  // a checkpoint's or a run's folder, or a file of weights
  std::string config;      // file; "": the one saved with the run, or beside the file
  std::string key;         // of the set of weights in it; "": ema where there is one. --raw is "model"
  bool raw = false;        // `key` was given as --raw
  std::string out;         // ends in .safetensors or .pt
  bool help = false;       // nothing else was checked
  bool version = false;    // likewise
};

SampleArguments parse_sample_arguments(int argc, const char* const* argv);
/// At most 24 lines of at most 80 columns; the last is an example.
std::string sample_help();

ExportArguments parse_export_arguments(int argc, const char* const* argv);
/// At most 24 lines of at most 80 columns; the last is an example.
std::string export_help();

}  // namespace dtk
