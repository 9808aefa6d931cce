// What measures memory by phase: exact books of blocks on the CPU, the allocator's statistics on a device.
#pragma once
#include <dtk/policies/internal/scoped.h>

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
class PhaseMeterRegistration : NotCopied {
 public:
  [[nodiscard]] explicit PhaseMeterRegistration(PhaseMeter& meter);
  ~PhaseMeterRegistration();

 private:
  PhaseMeter& meter_;
};

/// The phase last entered, "build" before all others. Any thread.
std::string current_phase();

/// " in phase forward", for a message; "" in a process whose job marks no phases: of such a one nobody knows
/// what "build" means. Any thread.
std::string in_phase_text(const std::string& phase);
/// Says that the job marks its phases, of which "build" is the first, as the first PhaseScope does. Any
/// thread.
void name_phases();

/// Marks a phase of the job for all meters; phases nest, the inner one counts.
class PhaseScope : NotCopied {
 public:
  [[nodiscard]] explicit PhaseScope(std::string_view name);
  ~PhaseScope();

 private:
  std::string previous_;
};

}  // namespace dtk::policies
