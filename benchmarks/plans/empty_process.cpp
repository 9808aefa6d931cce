// Loads LibTorch, asks it one thing, so that the linker keeps it, and returns: what any program on it takes.
#include <ATen/Parallel.h>

int main() {
  return at::get_num_threads() > 0 ? 0 : 1;
}
