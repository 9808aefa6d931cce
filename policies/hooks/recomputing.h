// Says that this thread runs a segment again; recomputing() of checkpoint.h asks.
#pragma once

namespace dtk::policies {

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

}  // namespace dtk::policies
