#include "toolkit/programs/process_settings.h"

#include <malloc.h>

#include <cstdio>
#include <cstdlib>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define DTK_SANITIZED 1
#elif defined(__has_feature)
#define DTK_SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define DTK_SANITIZED 0
#endif

namespace dtk {

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
#if DTK_SANITIZED
  std::exit(code);  // looks for leaks
#else
  std::fflush(nullptr);
  std::_Exit(code);
#endif
}

}  // namespace dtk
