"""own_policy_programs_test.py FOLDER: the four programs of FOLDER, with a policy that the toolkit does not name: dit-train
asks the dit-plan beside it for a plan, which has to know the policy too."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAMS = Path()
CONFIG = """\
[train]
out = "run"
steps = 6
threads = 1
log_every = 1
checkpoint_every = 3

[data]
kind = "synthetic"
samples = 60
batch = 8

[model]
depth = 2
hidden = 32
heads = 2
patch = 4
image_size = 16
channels = 1
classes = 4
learn_sigma = false

[sample]
steps = 3
per_class = 1

[policies.precision]
cpu = "fp32"

[policies.rounded]
enabled = true
"""


class OwnPolicy(unittest.TestCase):
    """Each test has a folder of its own."""

    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "run.toml").write_text(CONFIG)

    def run_program(self, program: str, *arguments: str, code: int = 0) -> str:
        """What it printed; of a refusal, its message."""
        command = [str(PROGRAMS / program), *arguments]
        result = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=60)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        return result.stderr if code else result.stdout

    def train(self, *arguments: str) -> str:
        return self.run_program("dit-train", "--config", "run.toml", "--device", "cpu", *arguments)

    def peak(self, run: str) -> int:
        return json.loads((self.folder / run / "memory.json").read_text())["peak"]["bytes"]

    def test_a_run_takes_what_the_plan_of_its_child_says_and_less_than_without(self):
        printed = self.train()
        self.assertIn("\npolicy rounded: on, what is saved in fp32 waits in bf16, in each 1. step\n", printed)
        self.assertRegex(printed, r"\nplanned peak ")
        self.train("--set", "policies.rounded.enabled=false", "--set", "train.out=off")
        job = ["--config", "run.toml", "--device", "cpu", "--calibration", "here", "--json"]
        for run, changes in (("run", []), ("off", ["--set", "policies.rounded.enabled=false"])):
            with self.subTest(run):
                plan = json.loads(self.run_program("dit-plan", *job, *changes))
                self.assertEqual(plan["peak"]["bytes"], self.peak(run))
        self.assertLess(self.peak("run"), self.peak("off"))

    def test_the_table_of_combinations_has_it(self):
        rows = json.loads(
            self.run_program("dit-plan", "--config", "run.toml", "--device", "cpu", "--table", "--json"))
        self.assertEqual(len(rows), 64)
        self.assertEqual({row["policies"][5]["name"] for row in rows}, {"rounded"})

    def test_what_is_wrong_with_its_table_is_said_by_line_and_column(self):
        (self.folder / "wrong.toml").write_text(CONFIG + "  min_byte = 1\n")
        for program in ("dit-train", "dit-plan"):
            self.assertEqual(
                self.run_program(program, "--config", "wrong.toml", code=2),
                f"{program}: wrong.toml:32:3: unknown key policies.rounded.min_byte; did you mean "
                "policies.rounded.min_bytes?\n")

    def test_its_run_is_resumed_sampled_and_exported(self):
        self.train()
        self.train("--set", "train.out=half", "--set", "schedule.kind=constant")
        self.run_program("dit-train", "--resume", "half", "--device", "cpu", "--set", "train.steps=8")
        lines = [json.loads(line) for line in (self.folder / "half/log.jsonl").read_text().splitlines()]
        told = [(line["event"], line["step"]) for line in lines if line["event"] in ("resume", "step")]
        self.assertEqual(told[-3:], [("resume", 6), ("step", 7), ("step", 8)])
        self.run_program("dit-sample", "--checkpoint", "run", "--classes", "0,1", "--device", "cpu",
                         "--out", "grid.png")
        self.assertEqual((self.folder / "grid.png").read_bytes()[:4], b"\x89PNG")
        self.run_program("dit-export", "--checkpoint", "run", "--out", "all.safetensors")
        self.assertTrue((self.folder / "all.safetensors").exists())


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    PROGRAMS = Path(sys.argv[1]).resolve()
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
