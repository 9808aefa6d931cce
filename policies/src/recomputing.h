// Whether this thread runs a segment again, and who must know.
#pragma once
#include <ATen/record_function.h>

#include <cstdint>
#include <string>

namespace dtk::policies {

/// As recomputing(), for policies: not taken for a module that heeds it.
bool is_recomputing();

/// While alive, recomputing() is true on this thread.
class RecomputingScope {
 public:
  [[nodiscard]] RecomputingScope();
  ~RecomputingScope();
  RecomputingScope(const RecomputingScope&) = delete;
  RecomputingScope& operator=(const RecomputingScope&) = delete;

 private:
  const bool previous_;
};

/// Looks for batch norms on this thread that update running statistics, while nobody asks recomputing().
class RunningStatisticsWatch {
 public:
  [[nodiscard]] RunningStatisticsWatch();
  ~RunningStatisticsWatch();
  RunningStatisticsWatch(const RunningStatisticsWatch&) = delete;
  RunningStatisticsWatch& operator=(const RunningStatisticsWatch&) = delete;

  /// The operator's name; "" if there was none, or if recomputing() was asked.
  std::string found() const;

 private:
  static std::unique_ptr<at::ObserverContext> on_operator(const at::RecordFunction& fn);
  const int64_t asked_;
  RunningStatisticsWatch* const outer_;
  std::string operator_;
  at::CallbackHandle handle_;
};

}  // namespace dtk::policies
