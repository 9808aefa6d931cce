#include "toolkit/programs/plan_child.h"

#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <vector>

#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/plan/start_plan.h"
#include "toolkit/programs/terminal.h"
#include "toolkit/report/plan_summary.h"

extern char** environ;

namespace dtk {
namespace {

constexpr std::chrono::milliseconds kLooksForChild{5};

[[noreturn]] void fail_with_errno(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

// Without a name but for the path, under which a child may open it too.
class MemoryFile {
 public:
  MemoryFile() : number_(memfd_create("dit-plan", 0)) {
    if (number_ < 0) fail_with_errno("memfd_create");
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { ::close(number_); }

  int number() const { return number_; }
  std::string path() const { return fmt::format("/proc/self/fd/{}", number_); }
  void write(const std::string& text) const {
    if (!(std::ofstream(path(), std::ios::binary) << text << std::flush)) fail_with_errno("write");
  }
  std::string text() const {
    std::ifstream file(path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  const int number_;
};

struct Answer {
  int exit_code = 0;
  std::string out, error;
};

Answer run(const std::vector<std::string>& command) {
  const MemoryFile out, error;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out.number(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, error.number(), STDERR_FILENO);
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t child = 0;
  const int failed = posix_spawn(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) throw std::system_error(failed, std::generic_category(), "cannot start " + command[0]);
  int status = 0;
  pid_t ended = 0;
  while ((ended = waitpid(child, &status, WNOHANG)) <= 0) {
    if (ended < 0 && errno != EINTR) fail_with_errno("waitpid");
    if (stop_requested()) ::kill(child, SIGKILL);
    std::this_thread::sleep_for(kLooksForChild);
  }
  // A signal to both processes may end the child first.
  if (stop_requested()) throw std::runtime_error("stopped by a signal");
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), out.text(), error.text()};
}

StartPlan ask(const std::string& program, const StartPlanRequest& request) {
  const MemoryFile question;
  question.write(start_plan_request_json(request));
  const Answer answer = run({program, kStartPlanArgument, question.path()});
  if (answer.exit_code == static_cast<int>(ExitCode::done)) return read_start_plan(answer.out, program);
  return {std::nullopt, answer.error.empty() ? fmt::format("{} ended with {}", program, answer.exit_code)
                                             : first_line(answer.error)};
}

}  // namespace

StartPlan plan_in_child(const LoadedConfig& loaded, c10::Device device) try {
  const std::string program =
      (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "dit-plan").string();
  StartPlanRequest request{loaded, device.is_cpu() ? "cpu" : "cuda:0"};
  // A budget of the CPU counts the scratch of its kernels too, which only a measurement tells. Without one
  // the plan is still worth having.
  request.measured = device.is_cpu() && loaded.config.memory.budget;
  StartPlan plan = ask(program, request);
  if (plan.memory || !plan.refusal.empty() || !request.measured) return plan;
  request.measured = false;
  return ask(program, request);
} catch (const std::exception& error) {
  return {std::nullopt, error.what()};
}

}  // namespace dtk
