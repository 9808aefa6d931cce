// The plug-in beside the program's operators, as open_cuda_kernels() brings them together: LibTorch takes
// what it registers, and no operator is left without a kernel. Nothing is run.
#include <ATen/core/dispatch/Dispatcher.h>
#include <dtk/models/ops.h>

#include <set>
#include <string>
#include <tuple>

#include "models/ops/cuda/register.cpp"
#include "support/catch.h"

namespace {

// Named, so that the library's object files, with the schemas, are part of the program.
[[gnu::used]] const std::tuple kNamed{&dtk::ops::norm_modulate, &dtk::ops::gated_add, &dtk::ops::bias_gelu,
                                      &dtk::ops::rms_norm,      &dtk::ops::silu_mul,  &dtk::ops::rotate};

std::set<std::string> operators_with(c10::DispatchKey key) {
  std::set<std::string> names;
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (op && name.name.starts_with("dtk::") && op->hasKernelForDispatchKey(key)) names.insert(name.name);
  }
  return names;
}

}  // namespace

TEST_CASE("each operator with a kernel for the CPU has one for CUDA") {
  REQUIRE_NOTHROW(dtk_cuda_kernels_register());
  CHECK(operators_with(c10::DispatchKey::CPU).size() >= 13);  // two each, and one in place
  CHECK(operators_with(c10::DispatchKey::CUDA) == operators_with(c10::DispatchKey::CPU));
}
