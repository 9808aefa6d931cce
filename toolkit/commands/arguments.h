// The arguments of the programs. Everything that is wrong with them is a ConfigError whose message begins
// with the argument; nothing is printed and nothing exits.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "toolkit/train/sample_arguments.h"

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
