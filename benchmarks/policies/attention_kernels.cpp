// Time and memory of the fused attention kernels of a CUDA device, forward and backward.
#include <ATen/ATen.h>
#include <ATen/SDPBackend.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dtk/policies/attention.h>
#include <dtk/policies/guards.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdio>
#include <cxxopts.hpp>
#include <optional>
#include <vector>

#include "support/bench_setup.h"
#include "toolkit/core/clock.h"
#include "toolkit/device/device.h"

namespace {

using namespace dtk;
using policies::AttentionKernel;

struct Shape {
  const char* of;
  int64_t samples, heads, tokens, width;
};
constexpr Shape kShapes[] = {{"DiT-XL/2 at 256 px", 64, 16, 256, 72},
                             {"DiT-XL/2 at 512 px", 16, 16, 1024, 72},
                             {"DiT-B/2 at 256 px", 128, 12, 256, 64},
                             {"DiT-S/2 at 512 px", 64, 6, 1024, 64},
                             {"32 heads of 128, 2,048 tokens", 4, 32, 2048, 128},
                             {"200 tokens", 8, 16, 200, 72},
                             {"77 tokens", 8, 12, 77, 64},
                             {"893 tokens", 4, 16, 893, 64}};

struct Measured {
  std::vector<double> ms;
  int64_t forward = 0, backward = 0;  // bytes beside inputs and results, at the most
};

class Device {
 public:
  explicit Device(c10::Device device)
      : device_(device), allocator_(*c10::getDeviceAllocator(device.type())), guard_(device.type()) {}
  void wait() const { guard_.synchronizeDevice(device_.index()); }
  int64_t now() const { return allocator_.getDeviceStats(device_.index()).requested_bytes[0].current; }
  int64_t peak() const { return allocator_.getDeviceStats(device_.index()).requested_bytes[0].peak; }
  void forget() const { allocator_.resetPeakStats(device_.index()); }

 private:
  const c10::Device device_;
  c10::DeviceAllocator& allocator_;
  const c10::impl::VirtualGuardImpl guard_;
};

// q, k, v (N, H, T, d) as views of one buffer (N, T, 3, H, d), as a model's projection makes them. Returns
// nothing where LibTorch takes another kernel than `wanted`.
std::optional<Measured> measure(const Shape& shape, AttentionKernel kernel, at::SDPBackend wanted,
                                c10::Device where, int64_t rounds) {
  policies::Seam seam;
  policies::AttentionPolicy policy({.kernel = kernel});
  policy.apply(seam);
  const Device device(where);
  const at::Tensor buffer = at::randn({shape.samples, shape.tokens, 3, shape.heads, shape.width},
                                      at::TensorOptions(at::kBFloat16).device(where));
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& part : buffer.permute({2, 0, 3, 1, 4}).unbind(0))
    leaves.push_back(part.detach().requires_grad_(true));
  const at::Tensor gradient =
      at::randn({shape.samples, shape.tokens, shape.heads, shape.width}, buffer.options()).transpose(1, 2);
  {
    const policies::AttentionBackendGuard alone({.flash = kernel == AttentionKernel::flash,
                                                 .memory_efficient = kernel == AttentionKernel::efficient,
                                                 .cudnn = kernel == AttentionKernel::cudnn});
    const auto taken = static_cast<at::SDPBackend>(at::_fused_sdp_choice(leaves[0], leaves[1], leaves[2]));
    if (taken != wanted) return std::nullopt;
  }
  Measured measured;
  SteadyClock clock;
  for (int64_t round = -3; round < rounds; ++round) {
    device.wait();
    const double begin = clock.seconds();
    device.forget();
    const at::Tensor out = seam.attention(leaves[0], leaves[1], leaves[2], {});
    const int64_t kept = device.now();
    if (round == rounds - 1) measured.forward = device.peak() - kept;
    device.forget();
    const auto gradients = torch::autograd::grad({out}, leaves, {gradient});
    if (round == rounds - 1)
      measured.backward = device.peak() - kept - 3 * static_cast<int64_t>(leaves[0].numel()) * 2;
    device.wait();
    if (round >= 0) measured.ms.push_back(1000 * (clock.seconds() - begin));
  }
  return measured;
}

void run(const cxxopts::ParseResult& parsed) {
  const c10::Device where = open_device("cuda");
  const std::pair<AttentionKernel, at::SDPBackend> kernels[] = {
      {AttentionKernel::flash, at::SDPBackend::flash_attention},
      {AttentionKernel::cudnn, at::SDPBackend::cudnn_attention},
      {AttentionKernel::efficient, at::SDPBackend::efficient_attention}};
  std::printf("%s, bf16, forward and backward; scratch: bytes beside inputs, results and what is kept\n\n",
              device_name(where).c_str());
  std::printf(
      "| shape | N, H, T, d | kernel | ms, median | scratch, forward | backward "
      "|\n|---|---|---|---:|---:|---:|\n");
  for (const Shape& shape : kShapes) {
    for (const auto& [kernel, backend] : kernels) {
      const auto measured = measure(shape, kernel, backend, where, parsed["rounds"].as<int64_t>());
      std::printf("| %s | %ld, %ld, %ld, %ld | %s | ", shape.of, static_cast<long>(shape.samples),
                  static_cast<long>(shape.heads), static_cast<long>(shape.tokens),
                  static_cast<long>(shape.width), policies::text_of(kernel).c_str());
      if (measured) {
        std::printf("%.3f | %ld | %ld |\n", bench::median(measured->ms), static_cast<long>(measured->forward),
                    static_cast<long>(measured->backward));
      } else {
        std::printf("none here | - | - |\n");
      }
      std::fflush(stdout);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  cxxopts::Options options("attention-kernels",
                           "Time and scratch of the fused attention kernels of a CUDA device");
  options.add_options()("rounds", "timed calls of each", cxxopts::value<int64_t>()->default_value("30"));
  return bench::main_of("attention-kernels", options, argc, argv,
                        [](const cxxopts::ParseResult& parsed) { run(parsed); });
}
