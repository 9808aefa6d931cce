// Arguments of a program as text, and the checks that programs share.
#pragma once
#include "toolkit/core/errors.h"

#ifndef CXXOPTS_NO_REGEX
#error link dtk_cxxopts: all files of a program have to read cxxopts.hpp alike
#endif
#include <algorithm>
#include <charconv>
#include <cxxopts.hpp>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "toolkit/config/keys.h"
#include "toolkit/config/toml_text.h"
#include "toolkit/core/format.h"
#include "toolkit/core/range.h"
#include "toolkit/core/suggestions.h"
#include "toolkit/core/text.h"
#include "toolkit/device/device_word.h"

namespace dtk {

[[noreturn]] inline void fail_argument(const std::string& place, const std::string& message) {
  throw ConfigError(place + ": " + message);
}

struct Option {
  std::string name;
  enum Kind { flag, value, optional_value, repeated } kind;
};

/// What was given, as text: checking stays here because cxxopts' messages name neither what is allowed nor
/// the nearest option, and it lets a repeated option's last value win.
class Given {
 public:
  /// `known`: all options but help and version, which every program has.
  Given(const char* program, std::vector<Option> known, int argc, const char* const* argv) {
    known.insert(known.end(), {{"help", Option::flag}, {"version", Option::flag}});
    cxxopts::Options options(program);
    for (const Option& option : known) {
      const auto value = cxxopts::value<std::string>();
      if (option.kind == Option::flag) value->implicit_value("true");
      if (option.kind == Option::optional_value) value->implicit_value("");
      options.add_options()(option.name == "help" ? "h,help" : option.name, "", value);
    }
    options.allow_unrecognised_options();
    const std::vector<std::string> joined = with_optional_values(known, argc, argv);
    std::vector<const char*> words;
    for (const std::string& word : joined) words.push_back(word.c_str());
    const cxxopts::ParseResult result = parse(options, static_cast<int>(words.size()), words.data());
    for (const auto& argument : result.arguments()) values_[argument.key()].push_back(argument.value());
    if (has("help") || has("version")) return;
    for (const Option& option : known) check_counts(option);
    refuse_leftovers(program, known, result.unmatched());
  }

  bool has(const std::string& name) const { return values_.count(name) > 0; }

  std::vector<std::string> all(const std::string& name) const {
    return has(name) ? values_.at(name) : std::vector<std::string>();
  }

  std::string text(const std::string& name, const std::string& otherwise = "") const {
    return has(name) ? values_.at(name).front() : otherwise;
  }

  /// Of an argument that is given, by the type of its value; numbers within the limits of the configuration's
  /// field of the same meaning.
  std::string value_of(const std::string& name, const std::string&, const std::string& choices) const {
    const std::string word = text(name);
    if (!choices.empty() && !is_choice(choices, word)) not_allowed(place(name), word, wanted(word, choices));
    return word;
  }
  bool value_of(const std::string& name, const bool&, const std::string&) const {
    const std::string word = text(name);
    if (word != "true" && word != "false") not_allowed(place(name), word, wanted(true, ""));
    return word == "true";
  }
  template <class Number>
  Number value_of(const std::string& name, const Number&, const std::string& allowed) const {
    return parse_number<Number>(place(name), text(name), allowed);
  }

  std::string place(const std::string& name) const { return fmt::format("--{} {}", name, text(name)); }

 private:
  [[noreturn]] static void not_allowed(const std::string& place, const std::string& text,
                                       const std::string& what_is) {
    fail_argument(place, fmt::format("\"{}\" is not allowed; wanted: {}", text, what_is));
  }

  template <class Number>
  static Number parse_number(const std::string& place, const std::string& text, const std::string& allowed) {
    Number number{};
    const char* const end = text.data() + text.size();
    const auto result = std::from_chars(text.data(), end, number);
    const bool is_number = result.ec == std::errc() && result.ptr == end;
    if (!is_number || !parse_interval(allowed).contains(static_cast<double>(number)))
      not_allowed(place, text, wanted(number, allowed));
    return number;
  }

  // "--keys data" as "--keys=data": cxxopts looks for a value that may be left out behind "=" only.
  static std::vector<std::string> with_optional_values(const std::vector<Option>& known, int argc,
                                                       const char* const* argv) {
    std::vector<std::string> words(argv, argv + argc);
    for (const Option& option : known) {
      if (option.kind != Option::optional_value) continue;
      for (size_t i = 1; i + 1 < words.size(); ++i) {
        if (words[i] != "--" + option.name || words[i + 1].starts_with('-')) continue;
        words[i] += "=" + words[i + 1];
        words.erase(words.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      }
    }
    return words;
  }

  static cxxopts::ParseResult parse(cxxopts::Options& options, int argc, const char* const* argv) {
    try {
      return options.parse(argc, argv);
    } catch (const cxxopts::exceptions::missing_argument&) {
      fail_argument(argv[argc - 1], "needs a value");
    } catch (const cxxopts::exceptions::exception& error) {
      throw ConfigError(error.what());
    }
  }

  static void refuse_leftovers(const std::string& program, const std::vector<Option>& known,
                               const std::vector<std::string>& leftovers) {
    if (leftovers.empty()) return;
    const std::string& first = leftovers.front();
    if (!first.starts_with("-")) {
      fail_argument(first, "an argument that belongs to no option; see " + program + " --help");
    }
    const size_t dashes = first.find_first_not_of('-');
    const std::string name =
        dashes == std::string::npos ? "" : first.substr(dashes, first.find('=') - dashes);
    std::vector<std::string> names;
    for (const Option& option : known) names.push_back(option.name);
    std::vector<std::string> near = near_names(name, names);
    for (std::string& candidate : near) candidate = "--" + candidate;
    const std::string hint =
        near.empty() ? "see " + program + " --help" : "did you mean " + listed(near, " or ") + "?";
    fail_argument(first, "unknown option; " + hint);
  }

  void check_counts(const Option& option) const {
    const std::vector<std::string> seen = all(option.name);
    const std::string name = "--" + option.name;
    if (option.kind != Option::repeated && seen.size() > 1) {
      fail_argument(name, "given " + std::to_string(seen.size()) + " times; give it once");
    }
    for (const std::string& value : seen) {
      if (option.kind == Option::flag && value != "true") fail_argument(name + "=" + value, "takes no value");
      if (option.kind == Option::optional_value) continue;
      if (option.kind != Option::flag && (value.empty() || value.starts_with("--"))) {
        fail_argument(name, "needs a value" + (value.empty() ? "" : "; seen: " + value));
      }
    }
  }

  std::map<std::string, std::vector<std::string>> values_;
};

/// Whether --help or --version is given; nothing else is read or checked then.
template <class Arguments>
bool wants_text_only(const Given& given, Arguments& arguments) {
  arguments.help = given.has("help");
  arguments.version = given.has("version");
  return arguments.help || arguments.version;
}

inline std::string required_config(const Given& given, const std::string& program) {
  if (!given.has("config")) {
    fail_argument("--config FILE is missing", "write for example " + program + " --config base");
  }
  return given.text("config");
}

/// Of --device; "auto" where it is not given.
inline std::string checked_device(const Given& given) {
  const std::string device = given.text("device", "auto");
  const bool indexed = device.starts_with("cuda:") && device.size() > 5 && device.size() < 9 &&
                       device.find_first_not_of("0123456789", 5) == std::string::npos;
  if (indexed || policies::parse_enum<DeviceWord>(device)) return device;
  fail_argument(given.place("device"),
                "no such device; allowed: auto, cpu, cuda, or cuda:INDEX such as cuda:0");
}

/// Of --out.
inline void check_ending(const Given& given, const std::vector<std::string>& endings) {
  const std::string out = given.text("out");
  const auto has = [&](const std::string& ending) {
    return out.size() > ending.size() && out.ends_with(ending);
  };
  if (std::any_of(endings.begin(), endings.end(), has)) return;
  fail_argument(given.place("out"),
                "unknown kind of file; allowed: a name that ends in " + listed(endings, " or "));
}

}  // namespace dtk
