// The plug-in's registration beside the operators of the programs: LibTorch refuses a kernel whose C++
// signature is not that of the operator's other kernels.
#include <ATen/core/dispatch/Dispatcher.h>

#include "support/catch.h"

extern "C" void dtk_cuda_kernels_register();

TEST_CASE("what has a kernel for the CPU has one for CUDA") {
  dtk_cuda_kernels_register();
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  int count = 0;
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (name.getNamespace() != "dtk" || !op || !op->hasKernelForDispatchKey(c10::DispatchKey::CPU)) continue;
    CAPTURE(name.name);
    CHECK(op->hasKernelForDispatchKey(c10::DispatchKey::CUDA));
    ++count;
  }
  CHECK(count >= 13);  // two each, and one in place
}
