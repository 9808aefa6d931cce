// The global norm of gradients, taken tensor by tensor while backward has just written them and the
// processor's caches still hold them: a pass of its own over all gradients reads memory again, which costs a
// step on the CPU one to several per cent.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace dtk {

class GradientNorms {
 public:
  /// Hooks itself to parameters on the CPU, leaves that need a gradient; elsewhere norms are taken by
  /// global() alone. Allocates 4 bytes for each megabyte of a parameter, at least 4.
  explicit GradientNorms(const std::vector<at::Tensor>& parameters);
  ~GradientNorms();
  GradientNorms(const GradientNorms&) = delete;
  GradientNorms& operator=(const GradientNorms&) = delete;

  /// L2 norm of all gradients together, a scalar on their device, as they are now: what changed since
  /// backward wrote it is read again. The bits do not depend on the number of threads. In the order of the
  /// parameters.
  at::Tensor global(const std::vector<at::Tensor>& gradients);

 private:
  // A gradient whose parts' norms are taken. The weak pointer keeps no memory, and no other storage gets its
  // address.
  struct Taken {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    int64_t version;
  };
  struct Parameter {
    at::Tensor tensor;
    size_t first_part, parts;
    unsigned hook;
    std::optional<Taken> taken;
  };

  void take(Parameter& parameter, const at::Tensor& gradient);
  static bool is_taken(const Parameter& parameter, const at::Tensor& gradient);

  std::vector<Parameter> parameters_;
  at::Tensor norms_;              // (parts); undefined on devices
  std::vector<at::Tensor> each_;  // its elements
};

}  // namespace dtk
