"""newer_torch_test.py NEWER KNOWN: the programs of NEWER, built as with a LibTorch that plans do not know, beside those
of KNOWN: dit-plan refuses, and dit-train trains without a plan and keeps to its budget by counting."""

import json
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

NEWER = KNOWN = Path()
WHY = (
    "plans know LibTorch 2.11 to 2.15, and this is built with 2.99, whose operators may allocate other bytes. Build with "
    "one of those; or check the new one: that cuda_operators_test, cpu_kernels_test, dispatch_keys_test and "
    "plan_accuracy_test pass once it is in the table of dtk/planner/torch_versions.h, and what cuDNN its wheel asks for"
)
CONFIG = """\
[train]
out = "run"
steps = 2
threads = 1
log_every = 1
[model]
name = "custom"
depth = 2
hidden = 64
heads = 2
patch = 4
image_size = 16
channels = 1
classes = 2
[data]
kind = "synthetic"
samples = 32
batch = 4
[sample]
per_class = 0
[schedule]
warmup = 0
[log]
report = false
tensorboard = false
"""


class NewerTorch(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "job.toml").write_text(CONFIG)

    def run_program(self, folder: Path, name: str, *arguments: str) -> subprocess.CompletedProcess:
        command = [folder / name, "--config", "job.toml", *arguments]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True)

    def train(self, folder: Path, out: str, *settings: str) -> subprocess.CompletedProcess:
        settings = [f"--set={setting}" for setting in (f"train.out={out}", *settings)]
        return self.run_program(folder, "dit-train", "--verbose", "--device", "cpu", *settings)

    def test_plans_are_refused(self):
        for arguments in ([], ["--table"], ["--json"], ["--device", "cpu"], ["--max-batch", "24GB"]):
            self.assertEqual(self.run_program(KNOWN, "dit-plan", *arguments).returncode, 0)
            result = self.run_program(NEWER, "dit-plan", *arguments)
            self.assertEqual((result.returncode, result.stdout), (2, ""), arguments)
            self.assertEqual(result.stderr, f"dit-plan: {WHY}\n")

    def test_a_run_begins_without_a_plan_and_says_so(self):
        peaks = []
        for folder, out in ((KNOWN, "known"), (NEWER, "newer")):
            result = self.train(folder, out)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
            self.assertEqual(f"not planned: dit-plan: {WHY}\n" in result.stdout, folder == NEWER, result.stdout)
            against_plan = re.search(r"^phase +planned +measured +difference", result.stdout, re.MULTILINE)
            self.assertEqual(against_plan is not None, folder == KNOWN, result.stdout)
            peaks.append(max(phase["peak_bytes"] for phase in self.memory(out)["phases"]))
        self.assertEqual(peaks[0], peaks[1])

    def memory(self, out: str) -> dict:
        return json.loads((self.folder / out / "memory.json").read_text())

    def test_a_budget_is_kept_to_by_counting(self):
        self.train(NEWER, "free")
        peak = max(phase["peak_bytes"] for phase in self.memory("free")["phases"])
        plan = json.loads(self.run_program(KNOWN, "dit-plan", "--device", "cpu", "--json").stdout)
        # Scratch of kernels, which differs by processor, is in no plan.
        tight = f"memory.budget={min(peak, plan['peak']['bytes']) - 1}"
        planned = self.train(KNOWN, "planned", tight)
        self.assertEqual((planned.returncode, (self.folder / "planned").exists()), (3, False))  # before it begins
        counted = self.train(NEWER, "counted", tight)
        self.assertEqual(counted.returncode, 3, counted.stderr)
        self.assertRegex(counted.stderr, r"memory\.budget")
        self.assertTrue((self.folder / "counted/memory.json").exists())  # it began
        self.assertEqual(self.train(NEWER, "enough", f"memory.budget={peak}").returncode, 0)

    def test_what_needs_a_plan_is_refused(self):
        result = self.train(NEWER, "auto", "policies.checkpoint.keep=auto", "memory.budget=1GB")
        self.assertEqual(result.returncode, 2)
        self.assertIn('"auto" is chosen by the run\'s plan, and there is none: ', result.stderr)
        self.assertIn(WHY, result.stderr)


if __name__ == "__main__":
    NEWER, KNOWN = Path(sys.argv[1]), Path(sys.argv[2])
    unittest.main(argv=sys.argv[:1])
