// replay CORPUS [TARGET...]: reads each file of CORPUS/TARGET with its target, of all where none is named,
// and compares the memory that it took with what the target may take. Exit code 1 where one takes more, reads
// no file, or is slower than SECONDS; a reader that breaks ends the process.
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "fuzz/target.h"

namespace {

std::atomic<int64_t> taken{0}, max_taken{0};

void count(void* block) {
  if (block == nullptr) return;
  const int64_t now = taken += static_cast<int64_t>(malloc_usable_size(block));
  for (int64_t most = max_taken; now > most && !max_taken.compare_exchange_weak(most, now);) {
  }
}

void count_back(void* block) {
  if (block != nullptr) taken -= static_cast<int64_t>(malloc_usable_size(block));
}

}  // namespace

#ifdef DTK_COUNT_MEMORY
// In place of the C library's, for this program and all libraries that it loads (glibc: "Replacing malloc").
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);

void* malloc(size_t bytes) {
  void* const block = __libc_malloc(bytes);
  count(block);
  return block;
}
void* calloc(size_t number, size_t bytes) {
  void* const block = __libc_calloc(number, bytes);
  count(block);
  return block;
}
void* realloc(void* old, size_t bytes) {
  const auto before = old == nullptr ? 0 : static_cast<int64_t>(malloc_usable_size(old));
  void* const block = __libc_realloc(old, bytes);
  if (block == nullptr && bytes > 0) return nullptr;  // the old one is still there
  taken -= before;
  count(block);
  return block;
}
void* memalign(size_t alignment, size_t bytes) {
  void* const block = __libc_memalign(alignment, bytes);
  count(block);
  return block;
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  return memalign(alignment, bytes);
}
int posix_memalign(void** result, size_t alignment, size_t bytes) {
  *result = memalign(alignment, bytes);
  return *result == nullptr ? 12 : 0;  // ENOMEM
}
void free(void* block) {
  count_back(block);
  __libc_free(block);
}
}
#endif

namespace {

namespace fs = std::filesystem;
using dtk::fuzz::Target;

struct Named {
  std::string name;
  const Target* target;
};

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

constexpr double kMaxSeconds = 20;

/// Whether `input` was read in time and within memory.
bool replay(const Named& named, const fs::path& path) {
  std::fprintf(stderr, "%s ", path.c_str());  // the last line of a process that breaks
  const std::string input = bytes_of(path);
  dtk::fuzz::attempt(*named.target, input);  // what is made once does not count
  const int64_t allowed = named.target->max_bytes(input), before = taken;
  max_taken = before;
  const auto start = std::chrono::steady_clock::now();
  const bool accepted = dtk::fuzz::attempt(*named.target, input);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const int64_t bytes = max_taken - before;
  std::fprintf(stderr, "%s, %zu bytes, %.3f s, %lld of %lld bytes of memory\n",
               accepted ? "taken" : "refused", input.size(), seconds, static_cast<long long>(bytes),
               static_cast<long long>(allowed));
  if (bytes > allowed) std::fprintf(stderr, "  takes more memory than allowed\n");
  if (seconds > kMaxSeconds) std::fprintf(stderr, "  takes longer than %.0f s\n", kMaxSeconds);
  return bytes <= allowed && seconds <= kMaxSeconds;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "Usage: replay CORPUS [TARGET...]\n");
    return 2;
  }
#define DTK_FUZZ_NAMED(name) {#name, &dtk::fuzz::name},
  const std::vector<Named> all = {DTK_FUZZ_TARGETS(DTK_FUZZ_NAMED)};
  const std::vector<std::string> wanted(argv + 2, argv + argc);
  int files = 0, wrong = 0;
  for (const Named& named : all) {
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), named.name) == wanted.end()) continue;
    const fs::path folder = fs::path(argv[1]) / named.name;
    std::vector<fs::path> paths;
    std::error_code none;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, none))
      paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    if (paths.empty() && !wanted.empty()) {
      std::fprintf(stderr, "%s holds no file\n", folder.c_str());
      ++wrong;
    }
    for (const fs::path& path : paths) wrong += replay(named, path) ? 0 : 1;
    files += static_cast<int>(paths.size());
  }
  std::printf("%d files, %d wrong\n", files, wrong);
  return files > 0 && wrong == 0 ? 0 : 1;
}
