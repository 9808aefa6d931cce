// What a product takes on the CPU besides its result: scratch, which the ledger sees, and what MKL and oneDNN
// take from the C library and keep, which it does not.
//
// The heap is asked before and after each call (mallinfo2), so what a library frees before its call ends is
// in neither figure.
#include <ATen/Parallel.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <dtk/policies/internal/event_log.h>
#include <dtk/policies/memory_ledger.h>
#include <malloc.h>

#include <cstdio>
#include <cstdlib>

#include "toolkit/programs/terminal.h"

namespace {

using namespace dtk;

int64_t heap_bytes() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

struct Taken {
  int64_t scratch = 0, kept = 0;
};

Taken matrix_product(const at::Tensor& a, const at::Tensor& b) {
  policies::MemoryAccounts& accounts = policies::cpu_accounts();
  accounts.start_event_log();
  const int64_t before = heap_bytes();
  const at::Tensor result = at::mm(a, b);
  const int64_t after = heap_bytes();
  const auto phases = policies::event_log(accounts.stop_event_log(), accounts.phase_names());
  return {phases.front().scratch, after - before - static_cast<int64_t>(result.nbytes())};
}

ExitCode measure(int threads) {
  at::set_num_threads(threads);
  const policies::CountingAllocatorGuard counting;
  std::printf("bytes beside the result of a product, %d thread(s)\n", threads);
  std::printf("%-8s %20s %6s %10s %22s\n", "type", "product", "call", "scratch", "kept outside of LibTorch");
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    for (const int64_t rows : {64, 1000}) {
      const auto options = at::TensorOptions().dtype(type);
      const at::Tensor a = at::zeros({rows, 384}, options), b = at::zeros({384, 1536}, options);
      for (int call = 1; call <= 3; ++call) {
        const Taken taken = matrix_product(a, b);
        std::printf("%-8s %10lld x384x1536 %6d %10lld %22lld\n", type == at::kFloat ? "fp32" : "bf16",
                    static_cast<long long>(rows), call, static_cast<long long>(taken.scratch),
                    static_cast<long long>(taken.kept));
      }
    }
  }
  return ExitCode::done;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program("library-memory", "this machine cannot hold the products", [&] {
    const int threads = argc == 2 ? std::atoi(argv[1]) : 1;
    if (argc > 2 || threads < 1) throw ConfigError("wanted: nothing, for 1 thread, or a number of threads");
    return measure(threads);
  });
}
