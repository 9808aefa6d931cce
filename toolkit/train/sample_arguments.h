// What a user asks of dit-sample: arguments of all models, and those that a model's family has.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace dtk {

/// An argument that not all families have.
struct SampleArgument {
  using Value = std::variant<std::string, bool, int64_t, double>;
  const char* name;          // "guidance"
  Value kind;                // any value of the type that it has
  std::string allowed = "";  // as of a key (config.h): "[1, 100]"
  bool is_flag = false;      // a bool that is true where it is given, and takes no value
};

/// How the samples of a family are asked for.
struct SampleUsage {
  std::vector<SampleArgument> arguments;  // the first says which samples, of one family: it must be given
  std::string value;                      // of that one: "LIST"
  std::string example;                    // likewise: "0,1,2"
  std::string purpose;                    // "for images and latents"
  std::string samples;                    // "samples of its classes"
  std::string model = "";                 // "driving model": what has no samples of other kinds; "": any
  std::string none_of_others = "";        // ", whose trajectories are drawn without noise": why
  std::string out;                        // what --out names: "FILE", "FOLDER"
  std::string example_out;                // "grid.png"
  std::vector<std::string> endings = {};  // of --out; none: any
  std::string help;                       // lines that say the first argument and --out
  std::string options_help = "";          // lines of the others, each the run's where it is not given

  std::string first() const { return arguments.front().name; }
  bool has(const std::string& argument) const;
};

/// Options that are not set come from the [sample] and [train] tables of the run.
struct SampleArguments {
  std::string checkpoint;  // a checkpoint's folder; exactly one of this
  std::string weights;     // and a file of weights is given
  std::string key;         // of the set of weights in that file; "": ema where there is one
  std::string config;      // file; "": the one saved with the run
  std::map<std::string, SampleArgument::Value> own;  // of those that not all families have, each checked
  bool raw = false;                                  // the checkpoint's raw weights instead of its EMA
  std::string out;
  std::string device = "auto";
  std::optional<int64_t> threads;
  bool help = false;     // nothing else was checked
  bool version = false;  // likewise

  /// Absent unless it is given.
  template <class T>
  std::optional<T> given(const std::string& name) const {
    const auto found = own.find(name);
    return found == own.end() ? std::nullopt : std::optional<T>(std::get<T>(found->second));
  }
};

}  // namespace dtk
