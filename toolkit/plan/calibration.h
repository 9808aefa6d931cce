// What dit-plan --calibrate measured on a machine, as a file that later plans read.
//
// JSON: {"dit_plan_calibration": 1, "device": "cpu" or "cuda", "machine", "instruction_set", "threads",
// "libtorch",
//        "date", "calls": [{"operator", "arguments", "scratch_bytes", "beside_results_bytes"}],
//        "terms": [{"name", "what", "bytes", "by_formula"}]}
// with instruction_set, threads and calls for the CPU, and terms for CUDA. No plan looks for such a file by
// itself: two plans of one command would differ by what lies about.
#pragma once
#include <dtk/planner/device_terms.h>
#include <dtk/planner/scratch.h>
#include <dtk/policies/enum_text.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dtk {

/// What is planned for, and measured.
enum class PlannedDevice { cpu, cuda };
constexpr auto enum_texts(PlannedDevice) {
  return std::array{"cpu", "cuda"};
}

struct Calibration {
  PlannedDevice device = PlannedDevice::cpu;
  std::string machine;          // "AMD EPYC, 48 KiB L1, 1024 KiB L2", "NVIDIA H200"
  std::string instruction_set;  // "AVX512, avx512_bf16"
  int64_t threads = 0;          // that operators share their work among
  std::string libtorch;
  std::string date;                          // UTC, YYYY-MM-DD
  planner::MeasuredScratch scratch;          // of the CPU
  std::vector<planner::MeasuredTerm> terms;  // of a CUDA device
  friend bool operator==(const Calibration&, const Calibration&) = default;
};

/// Of this machine's CPU and today, without measurements. As ATen sees it: the capability that its kernels
/// were chosen by, the extensions for low precision, and the caches, by which oneDNN cuts its blocks.
Calibration calibration_of_this_cpu(int64_t threads);
/// Of the CUDA device `name` and today, without measurements.
Calibration calibration_of_cuda(const std::string& name);

std::string calibration_json(const Calibration& calibration);
/// Throws ConfigError for what is no calibration, FileError for a damaged one; both begin with `name`.
Calibration parse_calibration(std::string_view json, const std::string& name);

/// Throws ConfigError if `calibration` was not measured as `here` says. `name`: its file.
void check_calibration(const Calibration& calibration, const Calibration& here, const std::string& name);

/// "calibration (AVX512, avx512_bf16, 2 threads; AMD EPYC, 48 KiB L1, 1024 KiB L2; 2026-11-22)"
std::string calibration_text(const Calibration& calibration);

}  // namespace dtk
