// dit-plan: the memory that a configured training job takes, before it is run.
#include <sys/prctl.h>

#include <csignal>
#include <cstdio>
#include <string>

#include "toolkit/commands/plan.h"
#include "toolkit/core/text.h"
#include "toolkit/io/file_system.h"
#include "toolkit/plan/start_plan.h"
#include "toolkit/programs/installed.h"
#include "toolkit/programs/process_settings.h"
#include "toolkit/programs/terminal.h"

namespace {

using namespace dtk;

void print(const std::string& text) {
  std::printf("%s", printable(text).c_str());
}

ExitCode plan(int argc, const char* const* argv) {
  FileSystem& files = posix_file_system();
  if (argc == 3 && std::string(argv[1]) == kStartPlanArgument) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // nobody else waits for the answer
    print(start_plan_json(files.read(argv[2])));
    return ExitCode::done;
  }
  PlanArguments arguments = parse_plan_arguments(argc, argv);
  if (print_text_only(arguments, "dit-plan", plan_help)) return ExitCode::done;
  if (!arguments.config.empty()) arguments.config = config_file(arguments.config);
  run_plan(arguments, files, print);
  return ExitCode::done;
}

}  // namespace

int main(int argc, char** argv) {
  dtk::keep_freed_memory();
  const int code = dtk::run_program("dit-plan", "this machine cannot hold the plan itself",
                                    [&] { return plan(argc, argv); });
  dtk::leave(code);
}
