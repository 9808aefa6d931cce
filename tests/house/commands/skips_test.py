"""skips.py on fabricated ctest results."""

import json
import tempfile
import unittest
from pathlib import Path

import skips

WHOLE = '<skipped message="SKIP_RETURN_CODE=77"/>'


class Skips(unittest.TestCase):
    def judge(self, cases: str, labels: dict[str, list[str]]) -> tuple[list[str], list[str]]:
        with tempfile.TemporaryDirectory() as folder:
            junit, listing = Path(folder) / "ctest.xml", Path(folder) / "labels.json"
            junit.write_text(f"<testsuite>{cases}</testsuite>")
            tests = [
                {"name": name, "properties": [{"name": "LABELS", "value": value}]}
                for name, value in labels.items()
            ]
            listing.write_text(json.dumps({"tests": tests + [{"name": "plain"}]}))
            self.exit_code = skips.main([str(junit), str(listing)])
            return skips.judge(skips.read_tests(junit), skips.read_labels(listing))

    @staticmethod
    def case(name: str, status: str, output: str = "", skipped: str = "") -> str:
        return (
            f'<testcase name="{name}" status="{status}">{skipped}<system-out>{output}</system-out></testcase>'
        )

    PASSED = '<testcase name="plain" status="run"><system-out>no line SKIPPED: here\n</system-out></testcase>'

    def test_all_ran(self):
        self.assertEqual(self.judge(self.PASSED, {"plain": ["unit"]}), ([], []))
        self.assertEqual(self.exit_code, 0)

    def test_gpu_and_browser_tests_may_be_skipped_with_a_reason(self):
        cases = self.PASSED + self.case("a", "notrun", "x\nSKIPPED: no CUDA driver\n", WHOLE)
        cases += self.case("b", "notrun", "SKIPPED: no browser\n", WHOLE)
        lines, wrong = self.judge(cases, {"a": ["gpu", "unit"], "b": ["browser"]})
        self.assertEqual(lines, ["skipped: a [gpu unit]: no CUDA driver", "skipped: b [browser]: no browser"])
        self.assertEqual(wrong, [])
        self.assertEqual(self.exit_code, 0)

    def test_another_skip_fails(self):
        cases = self.PASSED + self.case("a", "notrun", "SKIPPED: no data\n", WHOLE)
        lines, wrong = self.judge(cases, {"a": ["unit"]})
        self.assertEqual(lines, ["skipped: a [unit]: no data"])
        self.assertEqual(wrong, ["a: skipped, and only tests labelled browser or gpu or gpus or namespaces or simulated-cuda may be"])
        self.assertEqual(self.exit_code, 1)

    def test_a_part_that_is_skipped_counts(self):
        cases = self.PASSED + self.case("a", "run", "1 ok\nSKIPPED: no data\n2 ok\n")
        self.assertEqual(
            self.judge(cases, {"a": []})[1], ["a: skipped, and only tests labelled browser or gpu or gpus or namespaces or simulated-cuda may be"]
        )

    def test_a_skip_without_a_reason_fails(self):
        for output in ("", "SKIPPED:\n", "SKIPPED:   \nnext line\n"):
            wrong = self.judge(self.PASSED + self.case("a", "notrun", output, WHOLE), {"a": ["gpu"]})[1]
            self.assertEqual(wrong, ['a: skipped without a line "SKIPPED: <reason>"'])

    def test_a_disabled_test_is_a_skip(self):
        lines, wrong = self.judge(self.PASSED + self.case("a", "disabled", "Disabled"), {"a": ["unit"]})
        self.assertEqual(lines, ["skipped: a [unit]: disabled in CMake"])
        self.assertEqual(len(wrong), 1)

    def test_no_test_ran(self):
        skipped = self.case("a", "notrun", "SKIPPED: no CUDA driver\n", WHOLE)
        for cases in ("", skipped):
            self.assertEqual(self.judge(cases, {"a": ["gpu"]})[1], ["no test ran"])
            self.assertEqual(self.exit_code, 1)
        self.assertEqual(skips.judge([], {}), ([], ["no test ran"]))

    def test_a_failed_test_ran(self):
        self.assertEqual(self.judge(self.case("a", "fail"), {"a": ["unit"]}), ([], []))


if __name__ == "__main__":
    unittest.main(buffer=True)
