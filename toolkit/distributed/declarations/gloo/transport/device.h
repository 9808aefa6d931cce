// Of Gloo's own header: what LibTorch's ProcessGroupGloo.hpp names.
#pragma once

namespace gloo::transport {
class Device;
class UnboundBuffer;
}  // namespace gloo::transport
