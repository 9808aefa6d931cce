// The file of dit-plan --calibrate: as it was written, and what is refused.
#include "toolkit/plan/calibration.h"

#include <string>

#include "support/catch.h"
#include "support/error_text.h"
#include "toolkit/core/errors.h"

using namespace dtk;

namespace {

Calibration cpu() {
  Calibration calibration;
  calibration.machine = "Some CPU, 32 KiB L1, 1024 KiB L2";
  calibration.instruction_set = "AVX512, avx512_bf16";
  calibration.threads = 2;
  calibration.libtorch = "2.11.0";
  calibration.date = "2026-11-22";
  calibration.scratch = {{{"aten::mm", "BFloat16[4,8], BFloat16[8,4]:1,8"}, {132736, 131072}},
                         {{"aten::sum", "Float[9]"}, {0, 0}}};
  return calibration;
}

Calibration cuda_device() {
  Calibration calibration;
  calibration.device = PlannedDevice::cuda;
  calibration.machine = "Some GPU";
  calibration.libtorch = "2.11.0";
  calibration.date = "2026-11-22";
  calibration.terms = {{"rounding", "a storage of 1 byte", 512, 512}, {"context", "all", 600, 500}};
  return calibration;
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  const size_t at = text.find(what);
  REQUIRE(at != std::string::npos);
  return text.replace(at, what.size(), by);
}

std::string damage(const std::string& json) {
  return test::error_text<FileError>([&] { parse_calibration(json, "a.json"); });
}

template <class Change>
std::string refusal(const Change& change) {
  Calibration here = cpu();
  change(here);
  return test::error_text<ConfigError>([&] { check_calibration(cpu(), here, "a.json"); });
}

}  // namespace

TEST_CASE("a calibration is read as it was written") {
  CHECK(parse_calibration(calibration_json(cpu()), "a.json") == cpu());
  CHECK(parse_calibration(calibration_json(cuda_device()), "a.json") == cuda_device());
  const Calibration here = calibration_of_this_cpu(3);
  CHECK(parse_calibration(calibration_json(here), "a.json") == here);
  CHECK(here.threads == 3);
  CHECK(here.date.size() == 10);
  CHECK_FALSE(here.instruction_set.empty());
  check_calibration(here, calibration_of_this_cpu(3), "a.json");
}

TEST_CASE("a calibration of other circumstances is refused with them") {
  const std::string end = "; measure again with dit-plan --calibrate";
  CHECK(refusal([](Calibration& here) { here.instruction_set = "AVX2"; }) ==
        "a.json: measured with the instructions AVX512, avx512_bf16, and this plan is with the instructions "
        "AVX2" +
            end);
  CHECK(refusal([](Calibration& here) { here.threads = 1; }) ==
        "a.json: measured for train.threads = 2, and this plan is for train.threads = 1" + end);
  CHECK(refusal([](Calibration& here) { here.libtorch = "2.12.0"; }) ==
        "a.json: measured with LibTorch 2.11.0, and this plan is with LibTorch 2.12.0" + end);
  CHECK(
      refusal([](Calibration& here) { here.machine = "Other"; }) ==
      "a.json: measured on the processor Some CPU, 32 KiB L1, 1024 KiB L2, and this plan is on the processor "
      "Other" +
          end);
  CHECK(refusal([](Calibration& here) { here.device = PlannedDevice::cuda; }) ==
        "a.json: measured for --device cpu, and this plan is for --device cuda" + end);
  check_calibration(cpu(), cpu(), "a.json");
}

TEST_CASE("a damaged calibration is refused, and a file of another kind") {
  const std::string whole = calibration_json(cpu());
  CHECK(test::error_text<ConfigError>([&] { parse_calibration("{\"a\": 1}", "a.json"); }) ==
        "a.json: no calibration (\"dit_plan_calibration\" is missing); dit-plan --calibrate FILE writes one");
  const std::string none =
      "a.json: no calibration (\"dit_plan_calibration\" is missing); dit-plan --calibrate FILE writes one";
  for (const char* text :
       {"", "# Heading", "[\"dit_plan_calibration\"]", "{\"a\": {\"dit_plan_calibration\": 1}}"}) {
    INFO(text);
    CHECK(test::error_text<ConfigError>([&] { parse_calibration(text, "a.json"); }) == none);
  }
  CHECK(damage("{\"dit_plan_calibration\": 1") ==
        "a.json is not JSON (at byte 27); measure again with dit-plan --calibrate");
  CHECK(damage(replaced(whole, "\"dit_plan_calibration\": 1", "\"dit_plan_calibration\": 2")) ==
        "a.json: a calibration of version 2; read is version 1; measure again with dit-plan --calibrate");
  CHECK(damage(replaced(whole, "\"device\": \"cpu\"", "\"device\": \"tpu\"")) ==
        "a.json: \"device\" is \"tpu\"; allowed: \"cpu\", \"cuda\"; measure again with dit-plan --calibrate");
  CHECK(damage(replaced(whole, "\"threads\"", "\"thread\"")) ==
        "a.json: \"threads\" is missing or of another type; measure again with dit-plan --calibrate");
  for (const char* number : {"-1", "1.5", "\"many\"", "1e300", "18446744073709551615"}) {
    CHECK(damage(replaced(whole, "132736", number)) ==
          "a.json: \"scratch_bytes\" is no number of bytes; measure again with dit-plan --calibrate");
  }
  CHECK(damage(replaced(whole, "beside_results_bytes", "beside")) ==
        "a.json: \"beside_results_bytes\" is missing or of another type; measure again with dit-plan "
        "--calibrate");
  std::string twice = replaced(whole, "aten::sum", "aten::mm");
  twice = replaced(twice, "Float[9]", "BFloat16[4,8], BFloat16[8,4]:1,8");
  CHECK(damage(twice) ==
        "a.json: aten::mm(BFloat16[4,8], BFloat16[8,4]:1,8) is there twice; measure again with "
        "dit-plan --calibrate");
}

TEST_CASE("what a calibration is called in a report") {
  CHECK(calibration_text(cpu()) ==
        "calibration (AVX512, avx512_bf16, 2 threads; Some CPU, 32 KiB L1, 1024 KiB L2; 2026-11-22)");
  CHECK(calibration_text(cuda_device()) == "calibration (Some GPU; 2026-11-22)");
}
