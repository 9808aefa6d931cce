#include "process_settings.h"

#include <malloc.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace dtk {
namespace {

// OpenMP and glibc read their environment when a program is loaded: it has to start again with what it wants.
//
// OpenMP threads that wait for each other spin for milliseconds by default: with one other busy process on
// the machine a step then takes ten times as long. glibc's heap lies on pages of 4 KiB where the system
// leaves it the choice: an optimizer's pass over gigabytes then spends a good part of its time on finding
// them, on virtual machines most of all.
bool set_environment() {
  bool changed = false;
  const auto set = [&](const char* name, const char* value) {
    changed = true;
    setenv(name, value, 1);
  };
  if (std::getenv("GOMP_SPINCOUNT") == nullptr && std::getenv("OMP_WAIT_POLICY") == nullptr)
    set("GOMP_SPINCOUNT", "2000");
#ifdef __GLIBC__
  if (std::getenv("GLIBC_TUNABLES") == nullptr) set("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");
#endif
  return changed;
}

void start_again_with_environment() {
#ifdef __linux__
  if (!set_environment()) return;
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string line((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<char*> arguments;
  for (size_t begin = 0; begin < line.size(); begin = line.find('\0', begin) + 1) {
    arguments.push_back(const_cast<char*>(line.data() + begin));
    if (line.find('\0', begin) == std::string::npos) break;
  }
  if (arguments.empty()) return;
  arguments.push_back(nullptr);
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

void apply_process_settings() {
  start_again_with_environment();
  keep_freed_memory();
}

}  // namespace dtk
