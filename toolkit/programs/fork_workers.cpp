#include "toolkit/programs/fork_workers.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <iterator>
#include <utility>

namespace dtk {
namespace {

constexpr size_t kMaxCopies = 4;

bool is_only_thread() {
  std::error_code error;
  const std::filesystem::directory_iterator threads("/proc/self/task", error);
  return !error && std::distance(begin(threads), end(threads)) == 1;
}

size_t processors() {
  cpu_set_t allowed;
  return sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? static_cast<size_t>(CPU_COUNT(&allowed)) : 1;
}

bool write_all(int file, const void* data, size_t bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = write(file, from, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    from += written;
    bytes -= static_cast<size_t>(written);
  }
  return true;
}

bool read_all(int file, void* data, size_t bytes) {
  char* to = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = read(file, to, bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    to += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

struct Copy {
  pid_t process = -1;
  int results = -1;  // each an index, a length, and so many bytes
};

// The pieces that nobody has begun, as their numbers in a pipe: it hands each to one reader. Pieces differ in
// length, so who is done takes the next.
std::optional<int> queue_of(size_t count) {
  std::array<int, 2> ends;
  if (pipe2(ends.data(), O_NONBLOCK) != 0) return std::nullopt;
  for (uint64_t i = 0; i < count; ++i) {
    if (!write_all(ends[1], &i, sizeof i)) break;  // a full pipe: what is left is the caller's
  }
  close(ends[1]);
  return ends[0];
}

// Leaves by _exit: what the caller has in its buffers is not printed twice, and nobody's destructors run.
[[noreturn]] void work_and_leave(int queue, int results, const std::function<std::string(size_t)>& work) {
  uint64_t i = 0;
  while (read_all(queue, &i, sizeof i)) {
    std::string text;
    try {
      text = work(i);
    } catch (const std::exception&) {
      continue;  // the caller finds out why
    }
    const std::array<uint64_t, 2> head = {i, text.size()};
    if (!write_all(results, head.data(), sizeof head) || !write_all(results, text.data(), text.size())) break;
  }
  _exit(0);
}

std::optional<Copy> start(int queue, const std::function<std::string(size_t)>& work) {
  std::array<int, 2> ends;
  if (pipe(ends.data()) != 0) return std::nullopt;
  const pid_t process = fork();
  if (process == 0) {
    close(ends[0]);
    work_and_leave(queue, ends[1], work);
  }
  close(ends[1]);
  if (process > 0) return Copy{process, ends[0]};
  close(ends[0]);
  return std::nullopt;
}

// Whether there was one more.
bool take_result(const Copy& copy, std::vector<std::optional<std::string>>& results) {
  std::array<uint64_t, 2> head;
  if (!read_all(copy.results, head.data(), sizeof head)) return false;
  std::string text(head[1], '\0');
  if (!read_all(copy.results, text.data(), text.size())) return false;
  results.at(head[0]) = std::move(text);
  return true;
}

void finish(const Copy& copy) {
  close(copy.results);
  while (waitpid(copy.process, nullptr, 0) < 0 && errno == EINTR) {
  }
}

// From whichever has one: a pipe holds few results, and a copy whose pipe is full stands still.
void collect(std::vector<Copy> copies, std::vector<std::optional<std::string>>& results) {
  while (!copies.empty()) {
    std::vector<pollfd> waiting;
    for (const Copy& copy : copies) waiting.push_back({copy.results, POLLIN, 0});
    if (poll(waiting.data(), waiting.size(), -1) < 0) {
      if (errno == EINTR) continue;
      break;
    }
    for (size_t i = copies.size(); i-- > 0;) {
      if (waiting[i].revents == 0 || take_result(copies[i], results)) continue;
      finish(copies[i]);
      copies.erase(copies.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  for (const Copy& copy : copies) finish(copy);
}

}  // namespace

std::vector<std::optional<std::string>> side_by_side(size_t count,
                                                     const std::function<std::string(size_t)>& work) {
  std::vector<std::optional<std::string>> results(count);
  const size_t copies = std::min({count, processors(), kMaxCopies});
  if (copies < 2 || !is_only_thread()) return results;
  const auto queue = queue_of(count);
  if (!queue) return results;
  std::vector<Copy> started;
  for (size_t i = 0; i < copies; ++i) {
    if (const auto copy = start(*queue, work)) started.push_back(*copy);
  }
  close(*queue);
  collect(std::move(started), results);
  return results;
}

}  // namespace dtk
