#include "toolkit/programs/terminal.h"

#include <c10/util/Exception.h>
#include <dtk/policies/collectives.h>
#include <dtk/policies/report.h>
#include <sys/ioctl.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>

#include "toolkit/core/format.h"
#include "toolkit/core/numbers.h"
#include "toolkit/core/text.h"

namespace dtk {
namespace {

volatile std::sig_atomic_t stop_signal = 0;

// The next one, of either kind, ends the process.
extern "C" void on_stop_signal(int number) {
  stop_signal = number;
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

size_t columns_of(int terminal) {
  winsize size = {};
  const bool known = ioctl(terminal, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

void print_error(const char* name, const std::string& message) {
  std::fflush(stdout);  // where both go to one file, the error is the last line
  const std::string text = name + (": " + printable(message));
  std::fprintf(
      stderr, "%s\n",
      isatty(STDERR_FILENO) != 0 ? lines_within(text, columns_of(STDERR_FILENO)).c_str() : text.c_str());
}

std::string status(const Progress& p) {
  const std::string peak = p.peak_bytes ? "  peak " + readable_bytes(*p.peak_bytes) : "";
  return fmt::format("step {}  loss {:.4f}  {} {}/s{}  {} elapsed, {} left", p.step, p.loss,
                     rate(p.images_per_second), p.sample_name, peak, duration(p.elapsed_seconds),
                     duration(p.remaining_seconds));
}

constexpr double kSecondsBetweenLines = 10;

// Shorter than the terminal is wide: a line that wraps cannot be redrawn and scrolls instead.
std::string bar_line(const std::string& text, double fraction, size_t columns) {
  constexpr size_t narrowest = 5, widest = 20, frame = sizeof "[] " - 1;
  const size_t taken = text.size() + frame + 1;
  if (columns < taken + narrowest) return text.substr(0, columns - 1);
  const size_t width = std::min(widest, columns - taken);
  const auto filled = static_cast<size_t>(std::clamp(fraction, 0.0, 1.0) * static_cast<double>(width));
  return fmt::format("[{}{}] {}", std::string(filled, '#'), std::string(width - filled, '.'), text);
}

// Within a handler: of what was thrown.
Ending ending(const char* when_out_of_memory) {
  try {
    throw;
  } catch (const Error& error) {
    return {error.code, error.what()};
  } catch (const policies::PolicyError& error) {
    return {ExitCode::configuration, error.what()};
  } catch (const policies::CollectiveError& error) {
    return {ExitCode::ranks, std::string("another rank failed or does not answer, ") + error.what()};
  } catch (const c10::OutOfMemoryError& error) {
    return {ExitCode::memory, std::string(error.what_without_backtrace()) + "; " + when_out_of_memory};
  } catch (const std::bad_alloc&) {
    return {ExitCode::memory, std::string("out of host memory; ") + when_out_of_memory};
  } catch (const c10::Error& error) {
    return {ExitCode::failure, first_line(error.what_without_backtrace())};
  } catch (const std::exception& error) {
    return {ExitCode::failure, error.what()};
  }
}

}  // namespace

int run_program(const char* name, const char* when_out_of_memory, const std::function<ExitCode()>& body,
                const std::function<Ending(const Ending&)>& said_otherwise) {
  Ending how;
  try {
    const ExitCode code = body();
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
      throw FileError("standard output takes no more; what was printed is not complete");
    return static_cast<int>(code);
  } catch (...) {
    how = ending(when_out_of_memory);
  }
  if (said_otherwise) how = said_otherwise(how);
  if (!how.message.empty()) print_error(name, how.message);
  return static_cast<int>(how.code);
}

std::string rate(double per_second) {
  return per_second < 10 ? fmt::format("{:.2g}", per_second) : fmt::format("{:.0f}", per_second);
}

std::string duration(double seconds) {
  const auto whole = static_cast<long>(seconds + 0.5);
  if (whole >= 3600) return fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

std::string program_version() {
  return fmt::format("{} (LibTorch {})", DTK_VERSION, TORCH_VERSION);
}

void print_version(const char* name) {
  std::printf("%s %s\n", name, program_version().c_str());
}

void catch_stop_signals() {
  std::signal(SIGINT, on_stop_signal);
  std::signal(SIGTERM, on_stop_signal);
}

bool stop_requested() {
  return stop_signal != 0;
}

TerminalObserver::TerminalObserver(bool verbose) : terminal_(isatty(STDOUT_FILENO) != 0), verbose_(verbose) {}
TerminalObserver::~TerminalObserver() {
  end_bar();
}

void TerminalObserver::end_bar() {
  if (bar_shown_) std::printf("\n");
  bar_shown_ = false;
}

void TerminalObserver::clear_bar() {
  if (bar_shown_) std::printf("\r\033[K");
  bar_shown_ = false;
}

void TerminalObserver::show_bar(const std::string& text, double fraction) {
  std::printf("\r\033[K%s", bar_line(text, fraction, columns_of(STDOUT_FILENO)).c_str());
  bar_shown_ = true;
}

void TerminalObserver::message(const std::string& text) {
  clear_bar();
  std::printf("%s\n", printable(text).c_str());
  std::fflush(stdout);
}

void TerminalObserver::progress(const Progress& progress) {
  if (terminal_) {
    show_bar(status(progress), progress.fraction);
  } else {
    std::printf("%s\n", status(progress).c_str());
  }
  std::fflush(stdout);
}

void TerminalObserver::working(const std::string& what, int64_t done, int64_t all) {
  const double now = clock_.seconds();
  if (done == 0) last_working_ = now;
  const std::string text = what + " " + percent_text(done, all);
  if (text == working_) return;
  if (terminal_) {
    show_bar(text, static_cast<double>(done) / static_cast<double>(all));
  } else if (now - last_working_ >= kSecondsBetweenLines) {
    last_working_ = now;
    std::printf("%s\n", text.c_str());
  }
  working_ = text;
  std::fflush(stdout);
}

}  // namespace dtk
