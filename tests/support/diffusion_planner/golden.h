// The original driving model's numbers, and how far from them an implementation may be.
#pragma once
#include <ATen/ATen.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "support/catch.h"
#include "support/fixture.h"

namespace dtk::test {

inline double largest(const at::Tensor& tensor) {
  return tensor.numel() == 0 ? 0.0 : tensor.abs().max().item<double>();
}

class OriginalNumbers {
 public:
  OriginalNumbers() : tensors_(read_fixture("diffusion_planner/golden")) {
    std::ifstream(std::string(DTK_FIXTURES) + "/diffusion_planner/golden.json") >> notes_;
  }

  /// Whole numbers and flags keep their type.
  at::Tensor at(const std::string& name, at::ScalarType type) const {
    const at::Tensor& tensor = tensors_.at(name);
    return tensor.is_floating_point() ? tensor.to(type) : tensor;
  }
  bool has(const std::string& name) const { return tensors_.has(name); }
  const nlohmann::json& notes() const { return notes_; }

  /// In fp32 four times the original's own error plus 1e-6 of the largest value; in float64 1e-9 of it, or
  /// where the original's float64 is not stored, its own error.
  void check(const std::string& name, const at::Tensor& value) const {
    const auto& errors = notes_["tolerance"]["err_fp32_vs_fp64"];
    REQUIRE(errors.contains(name));
    const double error = errors[name][0].get<double>();
    const bool wide = value.scalar_type() == at::kDouble, stored = has(name + ".fp64");
    const at::Tensor wanted = tensors_.at(wide && stored ? name + ".fp64" : name);
    check(name, value, wanted, error);
  }
  /// The same of an original that errs by `error`.
  void check(const std::string& name, const at::Tensor& value, const at::Tensor& wanted, double error) const {
    INFO(name << " in " << value.scalar_type());
    REQUIRE(value.sizes() == wanted.sizes());
    const bool wide = value.scalar_type() == at::kDouble;
    const double size = largest(wanted);
    const double tolerance = !wide                                 ? 4 * error + 1e-6 * size
                             : wanted.scalar_type() == at::kDouble ? 1e-9 * size
                                                                   : error * (1 + 1e-6) + 1e-9 * size;
    CHECK(largest(value.to(at::kDouble) - wanted.to(at::kDouble)) <= tolerance);
    ++checked_;
  }

  int checked() const { return checked_; }

 private:
  Fixture tensors_;
  nlohmann::json notes_;
  mutable int checked_ = 0;
};

}  // namespace dtk::test
