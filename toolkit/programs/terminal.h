// What the programs share: exit codes, signals, the terminal.
#pragma once
#include <cstdio>
#include <functional>
#include <string>

#include "toolkit/core/errors.h"
#include "toolkit/run/run.h"

namespace dtk {

/// How a program ends that does not come to its end.
struct Ending {
  ExitCode code = ExitCode::failure;
  std::string message;
};

/// Runs `body`; prints what it throws to standard error as "<name>: <message>". `when_out_of_memory` is the
/// advice that such a message ends with. Returns the exit code. `said_otherwise`, if given, may put another
/// ending in the place of one; without a message nothing is printed.
int run_program(const char* name, const char* when_out_of_memory, const std::function<ExitCode()>& body,
                const std::function<Ending(const Ending&)>& said_otherwise = {});

/// "0.1.0 (LibTorch 2.15.0)"
std::string program_version();
/// "dit-train 0.1.0 (LibTorch 2.15.0)"
void print_version(const char* name);

/// Prints what --help or --version asks for; false if neither is given.
template <class Arguments>
bool print_text_only(const Arguments& arguments, const char* name, std::string (*help)()) {
  if (arguments.help) std::fputs(help().c_str(), stdout);
  if (arguments.version && !arguments.help) print_version(name);
  return arguments.help || arguments.version;
}

/// "1:05" (minutes and seconds), "2h07m".
std::string duration(double seconds);
/// "1234", below ten with two digits: "0.035".
std::string rate(double per_second);

/// From now on SIGINT and SIGTERM ask for a stop instead of ending the process; a second one ends it.
void catch_stop_signals();
bool stop_requested();

/// Messages as lines; progress as a bar that redraws itself on a terminal, as a line for each line of the log
/// elsewhere.
class TerminalObserver : public RunObserver {
 public:
  /// `verbose`: details are messages too.
  explicit TerminalObserver(bool verbose = true);
  ~TerminalObserver() override;
  void message(const std::string& text) override;
  void detail(const std::string& text) override {
    if (verbose_) message(text);
  }
  void progress(const Progress& progress) override;
  void working(const std::string& what, int64_t done, int64_t all) override;

  /// What is printed from now on goes below the bar.
  void end_bar();

 private:
  void show_bar(const std::string& text, double fraction);
  void clear_bar();
  const bool terminal_, verbose_;
  bool bar_shown_ = false;
  std::string working_;        // as it was last told
  double last_working_ = 0.0;  // by clock_: the last plain line of it, or its begin
  SteadyClock clock_;
};

}  // namespace dtk
