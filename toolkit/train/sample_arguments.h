// What a user asks of dit-sample; what of it is of use a model's family says.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dtk {

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

}  // namespace dtk
