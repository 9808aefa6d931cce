// The arguments of the programs. Everything that is wrong with them is a ConfigError whose message begins
// with the argument; nothing is printed and nothing exits.
#pragma once
#include <dtk/planner/device_terms.h>

#include <optional>
#include <string>
#include <vector>

#include "toolkit/plan/calibration.h"
#include "toolkit/train/export_changes.h"
#include "toolkit/train/sample_arguments.h"

namespace dtk {

struct TrainArguments {
  std::string config;            // file, or the name of a shipped one; "": that of the run to go on with
  std::vector<std::string> set;  // "data.batch=16", in order, with --out as its key
  std::string resume;            // "": a new run; "latest"; "auto"; or a checkpoint's or a run's folder
  std::string device = "auto";   // auto, cpu, cuda or cuda:INDEX
  std::string init;              // "": not asked for; else the data. `out` is then the file to write, or ""
  std::string out;               // as given
  std::string trace;             // file for a timeline of some steps; "": none
  std::optional<std::string> keys;  // that are asked for begin with this; nothing else was checked
  bool verbose = false;
  bool print_config = false;
  bool doctor = false;   // nothing else was checked
  bool help = false;     // nothing else was checked
  bool version = false;  // likewise
};

/// `argv[0]` is the program's name, as in main.
TrainArguments parse_train_arguments(int argc, const char* const* argv);
/// At most 24 lines of at most 80 columns; the last is an example.
std::string train_help();

struct PlanArguments {
  std::string config;                          // file, or the name of a shipped one
  std::vector<std::string> set;                // "data.batch=16", in order
  PlannedDevice device = PlannedDevice::cuda;  // neither is needed
  std::string max_batch;                       // "": not asked for; else a size, as it was written
  std::string calibrate;             // "": not asked for; else the file to write. `config` is "" with cuda
  std::string calibration;           // "", a file that was written so, or "here"
  planner::DeviceTermOptions terms;  // without those to leave out
  bool table = false;                // at most one of table, explain, claims and max_batch
  bool explain = false;
  bool claims = false;
  std::string report;           // with claims: the folder of a run, or ""
  bool infer = false;           // the job trains nothing, and is of
  std::vector<int64_t> frames;  // so many, ascending; not empty, or with
  std::string max_frames;       // as max_batch
  int64_t world = 1;            // ranks that train the job together
  std::vector<int64_t> worlds;  // empty: not asked for; else as `world`, a row each
  bool json = false;
  bool fold = true;      // leave out passes of a loop that repeat
  bool help = false;     // nothing else was checked
  bool version = false;  // likewise
};

/// --calibration here: the scratch of the job's kernels is measured before it is planned.
inline bool measures_here(const PlanArguments& arguments) {
  return arguments.calibration == "here";
}

PlanArguments parse_plan_arguments(int argc, const char* const* argv);
/// At most 24 lines of at most 80 columns; the last is an example.
std::string plan_help();

struct ExportArguments {
  std::string checkpoint;  // a checkpoint's or a run's folder, or a file of weights
  std::string config;      // file; "": the one saved with the run, or beside the file
  std::string key;         // of the set of weights in it; "": ema where there is one. --raw is "model"
  bool raw = false;        // `key` was given as --raw
  std::string out;         // ends in .safetensors or .pt; "" with
  std::string adapter;     // a folder; "": not asked for
  ExportChanges changes;
  bool overwrite = false;  // where there is such a file
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
