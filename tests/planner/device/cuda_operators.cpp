// cuda_operators MODE
//   kernels     prints the operators with a CUDA kernel in libtorch_cuda, which needs no driver
//   composites  reads them, prints those that a process without it has a body of other operators for
//   unknown     reads names, prints those that this LibTorch has no operator of
//   check       reads them, prints "KIND NAME", what the simulated device does with each of them: own,
//               structured, by_shapes, composite
#include <ATen/core/dispatch/Dispatcher.h>
#include <dlfcn.h>
#include <dtk/planner/simulated_device.h>

#include <functional>
#include <iostream>
#include <optional>
#include <stdexcept>
#include <string>

namespace {

using c10::DispatchKey;

std::optional<c10::OperatorHandle> find(const std::string& name) {
  const size_t dot = name.find('.', name.find("::"));
  const std::string overload = dot == std::string::npos ? "" : name.substr(dot + 1);
  return c10::Dispatcher::singleton().findOp({name.substr(0, dot), overload});
}

int print_kernels() {
  if (dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) throw std::runtime_error(dlerror());
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findOp(name);
    if (!op || !op->hasKernelForDispatchKey(DispatchKey::CUDA)) continue;
    std::cout << name.name << (name.overload_name.empty() ? "" : "." + name.overload_name) << "\n";
  }
  return 0;
}

int print_unknown() {
  for (std::string name; std::getline(std::cin, name);) {
    if (!find(name)) std::cout << name << "\n";
  }
  return 0;
}

// An implicit composite acts before autograd; a structured default comes before an explicit one.
bool is_taken_apart(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd) ||
         (op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd) &&
          !op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutogradNonFunctional));
}

void each_name(const std::function<void(const std::string&, const c10::OperatorHandle&)>& visit) {
  for (std::string name; std::getline(std::cin, name);) {
    const auto op = find(name);
    if (!op) throw std::runtime_error(name + ": libtorch_cpu does not know this operator");
    visit(name, *op);
  }
}

// The dispatcher's own words for what a key leads to.
std::string row(const c10::OperatorHandle& op, const std::string& key) {
  const std::string table = "\n" + op.dumpComputedTable();
  const size_t begin = table.find("\n" + key + ": ");
  return begin == std::string::npos ? "" : table.substr(begin + 1, table.find('\n', begin + 1) - begin - 1);
}

const char* kind(const c10::OperatorHandle& op) {
  const std::string cuda = row(op, "CUDA");
  // An operator with a composite body and no kernel on its device is taken apart before autograd.
  if (row(op, "AutogradCUDA").find("math kernel") != std::string::npos) return "composite";
  if (cuda.find("backend fallback") != std::string::npos) return "by_shapes";
  if (cuda.find("NonFunctional") != std::string::npos) return "structured";
  return cuda.find("[kernel]") != std::string::npos ? "own" : "composite";
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc == 2 ? argv[1] : "";
  try {
    if (mode == "kernels") return print_kernels();
    if (mode == "unknown") return print_unknown();
    if (mode == "check") dtk::planner::register_simulated_devices();
    if (mode != "check" && mode != "composites")
      throw std::runtime_error("kernels, composites, unknown or check");
    each_name([&](const std::string& name, const c10::OperatorHandle& op) {
      if (mode == "check") std::cout << kind(op) << " " << name << "\n";
      if (mode == "composites" && is_taken_apart(op)) std::cout << name << "\n";
    });
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "cuda_operators: " << error.what() << "\n";
    return 1;
  }
}
