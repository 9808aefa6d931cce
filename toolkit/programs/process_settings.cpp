#include "toolkit/programs/process_settings.h"

#include <dtk/policies/internal/host_memory.h>
#include <malloc.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace dtk {
namespace {

// OpenMP threads that wait for each other spin for milliseconds by default: with one other busy process on
// the machine a step then takes ten times as long. OpenMP reads its environment when the program is loaded,
// so the program starts again with it; a setting of the user's own stays.
void let_waiting_threads_yield() {
#ifdef __linux__
  if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string line((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<char*> arguments;
  for (size_t begin = 0; begin < line.size(); begin = line.find('\0', begin) + 1) {
    arguments.push_back(const_cast<char*>(line.data() + begin));
    if (line.find('\0', begin) == std::string::npos) break;
  }
  if (arguments.empty()) return;
  arguments.push_back(nullptr);
  setenv("GOMP_SPINCOUNT", "2000", 0);
  execv("/proc/self/exe", arguments.data());  // returns only if it failed: then the program is just slower
#endif
}

}  // namespace

// A training step frees what the next step takes again. By default glibc hands such blocks back to the system
// at once, and every step pays for fresh, zeroed pages.
void keep_freed_memory() {
#ifdef __GLIBC__
  constexpr int kLargest = 1 << 30;  // bytes; larger blocks still go back when freed
  mallopt(M_MMAP_THRESHOLD, kLargest);
  mallopt(M_TRIM_THRESHOLD, kLargest);
#endif
}

void leave(int code) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  std::exit(code);  // looks for leaks
#else
  std::fflush(nullptr);
  std::_Exit(code);
#endif
}

void apply_process_settings() {
  let_waiting_threads_yield();
  keep_freed_memory();
  policies::use_host_heap();
}

}  // namespace dtk
