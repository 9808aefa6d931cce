// A file apart from process_settings.cpp, for a program that is linked to this one starts again.
#include <dtk/policies/internal/host_memory.h>

#include "toolkit/programs/process_settings.h"

#ifdef __linux__
#include <alloca.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#endif

namespace dtk {

#ifdef __linux__
namespace {

constexpr char kSpinCount[] = "GOMP_SPINCOUNT=2000", kWaitPolicy[] = "OMP_WAIT_POLICY=";

// Up to the "=" of `name`.
__attribute__((no_sanitize("address", "thread", "undefined"))) bool is_set(const char* entry,
                                                                           const char* name) {
  for (; *entry == *name; ++entry, ++name) {
    if (*entry == '=') return true;
  }
  return false;
}

// Where one of the three standard files is closed, the next file that the program opens would take its place,
// and what is printed would be written into it. Not to be read where it is written, and the reverse: so it is
// an error.
__attribute__((no_sanitize("address", "thread", "undefined"))) void fill_standard_files() {
  for (int number = 0; number < 3; ++number) {
    if (syscall(SYS_fcntl, number, F_GETFD) < 0)
      syscall(SYS_openat, AT_FDCWD, "/dev/null", number == 0 ? O_WRONLY : O_RDONLY);
  }
}

// OpenMP threads that wait for each other spin for milliseconds by default: with one other busy process on
// the machine a step then takes ten times as long. OpenMP reads its environment when it is loaded, so the
// program starts again with it. Called before the constructors of all shared libraries, LibTorch's among
// them, which take a sixth of a second; before a sanitizer's too, so it calls nothing of theirs.
__attribute__((no_sanitize("address", "thread", "undefined"))) void start_again(int, char** arguments,
                                                                                char** environment) {
  fill_standard_files();
  size_t count = 0;
  for (; environment[count] != nullptr; ++count) {
    if (is_set(environment[count], kSpinCount) || is_set(environment[count], kWaitPolicy)) return;
  }
  const auto extended = static_cast<char**>(alloca((count + 2) * sizeof(char*)));
  for (size_t i = 0; i < count; ++i) extended[i] = environment[i];
  extended[count] = const_cast<char*>(kSpinCount);
  extended[count + 1] = nullptr;
  execve("/proc/self/exe", arguments, extended);  // where it fails, the program is just slower
}

[[gnu::section(".preinit_array"), gnu::used]] void (*const before_constructors)(int, char**,
                                                                                char**) = &start_again;

}  // namespace
#endif

void apply_process_settings() {
  keep_freed_memory();
  policies::use_host_heap();
}

}  // namespace dtk
