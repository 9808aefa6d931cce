// Of Gloo's own header: what LibTorch's ProcessGroupGloo.hpp names. Only LibTorch makes and reads one.
#pragma once
#include <chrono>

namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

}  // namespace gloo
