// What measures memory by phase: exact books of blocks on the CPU, the allocator's statistics on a device.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace dtk::policies {

struct PhasePeak;

class PhaseMeter {
 public:
  virtual ~PhaseMeter() = default;
  /// Starts phase `name`; peaks of a phase entered again are merged. Returns the phase left.
  virtual std::string enter_phase(std::string_view name) = 0;
  /// In the order in which the phases were first entered.
  virtual std::vector<PhasePeak> phases() const = 0;
};

/// Adds a meter that every PhaseScope tells, for the lifetime of the object. From one thread only, while no
/// PhaseScope is alive.
class PhaseMeterRegistration {
 public:
  [[nodiscard]] explicit PhaseMeterRegistration(PhaseMeter& meter);
  ~PhaseMeterRegistration();
  PhaseMeterRegistration(const PhaseMeterRegistration&) = delete;
  PhaseMeterRegistration& operator=(const PhaseMeterRegistration&) = delete;

 private:
  PhaseMeter& meter_;
};

/// The phase last entered, "build" before all others. Any thread.
std::string current_phase();

/// Marks a phase of the job for all meters; phases nest, the inner one counts.
class PhaseScope {
 public:
  [[nodiscard]] explicit PhaseScope(std::string_view name);
  ~PhaseScope();
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  std::string previous_;
};

}  // namespace dtk::policies
