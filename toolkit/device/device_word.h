// The words for a device, free of LibTorch.
#pragma once
#include <dtk/policies/enum_text.h>

#include <array>

namespace dtk {

/// What may stand for a device beside "cuda:i".
enum class DeviceWord { automatic, cpu, cuda };
constexpr auto enum_texts(DeviceWord) {
  return std::array{"auto", "cpu", "cuda"};
}

}  // namespace dtk
