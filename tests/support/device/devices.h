// The devices that tests plan for, by their names in tests.
#pragma once
#include <c10/core/Device.h>

namespace dtk::test {

inline const c10::Device kCpu(c10::kCPU), kCuda(c10::kCUDA, 0);

}  // namespace dtk::test
