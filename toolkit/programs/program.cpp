#include "program.h"

#include <c10/util/Exception.h>
#include <dtk/policies/report.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <new>
#include <string>

namespace dtk {
namespace {

volatile std::sig_atomic_t stop_signal = 0;

extern "C" void on_stop_signal(int number) {
  stop_signal = number;
  std::signal(number, SIG_DFL);
}

int fail(const char* name, ExitCode code, const std::string& message) {
  std::fprintf(stderr, "%s: %s\n", name, message.c_str());
  return static_cast<int>(code);
}

std::string duration(double seconds) {
  const auto whole = static_cast<long>(seconds + 0.5);
  char text[32];
  if (whole >= 3600) {
    std::snprintf(text, sizeof text, "%ldh%02ldm", whole / 3600, whole / 60 % 60);
  } else {
    std::snprintf(text, sizeof text, "%ld:%02ld", whole / 60, whole % 60);
  }
  return text;
}

std::string status(const Progress& p) {
  char text[200];
  std::snprintf(text, sizeof text, "step %lld  loss %.4f  %.0f images/s  peak %s  %s elapsed, %s left",
                static_cast<long long>(p.step), p.loss, p.images_per_second, readable_bytes(p.peak_bytes).c_str(),
                duration(p.elapsed_seconds).c_str(), duration(p.remaining_seconds).c_str());
  return text;
}

constexpr double kSecondsBetweenLines = 10;

}  // namespace

int run_program(const char* name, const std::function<ExitCode()>& body) {
  try {
    return static_cast<int>(body());
  } catch (const Error& error) {
    return fail(name, error.code, error.what());
  } catch (const policies::PolicyError& error) {
    return fail(name, ExitCode::configuration, error.what());
  } catch (const c10::OutOfMemoryError& error) {
    return fail(name, ExitCode::memory, error.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    return fail(name, ExitCode::memory, "out of host memory");
  } catch (const c10::Error& error) {
    // Only the first line: the rest lists operators and call stacks of LibTorch.
    const std::string text = error.what_without_backtrace();
    return fail(name, ExitCode::failure, text.substr(0, text.find('\n')));
  } catch (const std::exception& error) {
    return fail(name, ExitCode::failure, error.what());
  }
}

ExitCode print_version(const char* name) {
  std::printf("%s %s (LibTorch %s)\n", name, DTK_VERSION, TORCH_VERSION);
  return ExitCode::done;
}

void catch_stop_signals() {
  std::signal(SIGINT, on_stop_signal);
  std::signal(SIGTERM, on_stop_signal);
}

bool stop_requested() { return stop_signal != 0; }

TerminalObserver::TerminalObserver() : terminal_(isatty(STDOUT_FILENO) != 0) {}
TerminalObserver::~TerminalObserver() {
  if (bar_shown_) std::printf("\n");
}

void TerminalObserver::clear_bar() {
  if (bar_shown_) std::printf("\r\033[K");
  bar_shown_ = false;
}

void TerminalObserver::message(const std::string& text) {
  clear_bar();
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

void TerminalObserver::progress(const Progress& progress) {
  if (terminal_) {
    constexpr int kWidth = 20;
    const int filled = static_cast<int>(std::clamp(progress.fraction, 0.0, 1.0) * kWidth);
    const std::string bar = std::string(static_cast<size_t>(filled), '#') + std::string(static_cast<size_t>(kWidth - filled), '.');
    std::printf("\r\033[K[%s] %s", bar.c_str(), status(progress).c_str());
    bar_shown_ = true;
  } else if (progress.elapsed_seconds - last_line_ >= kSecondsBetweenLines || progress.fraction >= 1) {
    last_line_ = progress.elapsed_seconds;
    std::printf("%s\n", status(progress).c_str());
  }
  std::fflush(stdout);
}

}  // namespace dtk
