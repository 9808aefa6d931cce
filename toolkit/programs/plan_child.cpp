#include "toolkit/programs/plan_child.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "toolkit/core/errors.h"
#include "toolkit/plan/start_plan.h"
#include "toolkit/report/plan_summary.h"

extern char** environ;

namespace dtk {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() { close(); }
  void close() {
    if (number_ >= 0) ::close(std::exchange(number_, -1));
  }
  int number() const { return number_; }

 private:
  int number_;
};

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

struct Pipe {
  Descriptor out, in;
};

Pipe make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) fail("pipe");
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

// A file without a name, which the child opens as /proc/self/fd/<number>.
Descriptor file_with(const std::string& text) {
  Descriptor file(memfd_create("request", 0));
  if (file.number() < 0) fail("memfd_create");
  for (size_t done = 0; done < text.size();) {
    const ssize_t count = write(file.number(), text.data() + done, text.size() - done);
    if (count < 0 && errno != EINTR) fail("write");
    if (count > 0) done += static_cast<size_t>(count);
  }
  return file;
}

// Both streams at once, so that neither fills up while the other is waited for.
void read_all(const Descriptor& a, std::string& from_a, const Descriptor& b, std::string& from_b) {
  pollfd waiting[2] = {{a.number(), POLLIN, 0}, {b.number(), POLLIN, 0}};
  std::string* const texts[2] = {&from_a, &from_b};
  for (int open = 2; open > 0;) {
    if (poll(waiting, 2, -1) < 0 && errno != EINTR) fail("poll");
    for (int i = 0; i < 2; ++i) {
      if ((waiting[i].revents & (POLLIN | POLLHUP | POLLERR)) == 0) continue;
      char buffer[65536];
      const ssize_t count = read(waiting[i].fd, buffer, sizeof buffer);
      if (count > 0) texts[i]->append(buffer, static_cast<size_t>(count));
      if (count == 0 || (count < 0 && errno != EINTR)) {
        waiting[i].fd = -1;
        --open;
      }
    }
  }
}

struct Answer {
  int exit_code = 0;
  std::string out, error;
};

Answer run(const std::vector<std::string>& command) {
  Pipe out = make_pipe(), error = make_pipe();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out.in.number(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, error.in.number(), STDERR_FILENO);
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t child = 0;
  const int failed = posix_spawn(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) throw std::system_error(failed, std::generic_category(), "cannot start " + command[0]);
  out.in.close();
  error.in.close();
  Answer answer;
  read_all(out.out, answer.out, error.out, answer.error);
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) fail("waitpid");
  }
  answer.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return answer;
}

StartPlan ask(const std::string& program, const StartPlanRequest& request) {
  const Descriptor question = file_with(start_plan_request_json(request));
  const Answer answer =
      run({program, kStartPlanArgument, "/proc/self/fd/" + std::to_string(question.number())});
  if (answer.exit_code == static_cast<int>(ExitCode::done)) return read_start_plan(answer.out, program);
  return {std::nullopt, answer.error.empty() ? program + " ended with " + std::to_string(answer.exit_code)
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
  if (plan.memory || !request.measured) return plan;
  request.measured = false;
  return ask(program, request);
} catch (const std::exception& error) {
  return {std::nullopt, error.what()};
}

}  // namespace dtk
