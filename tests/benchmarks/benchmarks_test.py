"""benchmarks_test.py FOLDER STEP_TIME: the benchmarks of time run, and print what README shows of them.

FOLDER holds the programs; STEP_TIME is benchmarks/step_time/step_time.py, run by this Python, which needs torch for it. The sizes
are small: what is checked is the form of the output and what holds at any size, never a time.
"""

import contextlib
import io
import os
import re
import subprocess
import sys
import unittest
from pathlib import Path
from unittest import mock

# Four tokens a picture: the form of the output is that of any size.
SMALL = ("--models", "DiT-S/4", "--side", "8", "--batches", "1", "--pairs", "21", "--warmup", "1")


def run(*command: object, code: int = 0) -> str:
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=240)
    assert result.returncode == code, result.stdout + result.stderr
    return result.stdout


def rows(output: str) -> list[dict[str, str]]:
    """The rows of the table, by the names of their columns; where names repeat, each gets a star more."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in output.splitlines() if line[:1] == "|"]
    names: list[str] = []
    for name in lines[0]:
        names.append(name + "*" * sum(other.rstrip("*") == name for other in names))
    assert all(len(line) == len(names) for line in lines), output
    return [dict(zip(names, line)) for line in lines[2:]]


class Benchmarks(unittest.TestCase):
    def need_torch(self) -> None:
        if any(Path(place, "torch/__init__.py").is_file() for place in sys.path):
            return
        print("SKIPPED: this Python has no torch", flush=True)
        self.skipTest("this Python has no torch")

    def test_policy_cost(self):
        output = run(FOLDER / "policy-cost", "--model", "DiT-S/8", "--batch", "1", "--pairs", "3")
        table = rows(output)
        self.assertEqual([row[""].split()[0].strip(",") for row in table],
                         ["memory", "checkpoint", "precision", "attention", "fusion", "fusion"])  # fmt: skip
        for row in table:
            for column in ("with, ms", "without, ms", "ratio, median"):
                self.assertGreater(float(row[column]), 0)
        self.assertRegex(output, r"hook stack: -?\d+\.\d\d microseconds a saved tensor")

    def test_operator_bandwidth(self):
        output = run(FOLDER / "operator-bandwidth", "--samples", "2", "--tokens", "8", "--width", "48", "--rounds", "3")
        table = rows(output)
        self.assertEqual([(row["operator"], row["beside fp32"]) for row in table],
                         [(name, kind) for kind in ("Float", "BFloat16") for name in ("norm_modulate", "gated_add", "bias_gelu", "rms_norm", "silu_mul", "rotate")])
        for row in table:
            for cell in list(row.values())[2:5]:
                for number in re.findall(r"[\d.]+", cell):
                    self.assertGreater(float(number), 0, row)

    def test_operator_bandwidth_says_what_it_lacks(self):
        def ends(*arguments: str, **environment: str) -> tuple[int, str]:
            command = [FOLDER / "operator-bandwidth", *arguments]
            result = subprocess.run(command, capture_output=True, text=True, timeout=60, env=os.environ | environment)
            self.assertEqual(result.stdout, "")
            return result.returncode, result.stderr

        code, errors = ends("--device", "cuda", CUDA_VISIBLE_DEVICES="")
        self.assertEqual(code, 1)
        self.assertRegex(errors, "^operator-bandwidth: --device cuda: .*; use --device cpu or --device auto\n$")
        self.assertEqual(ends("--calls", "0"), (1, "operator-bandwidth: --calls 0: allowed are 1 and more\n"))

    def test_device_accuracy_on_the_cpu(self):
        """The same comparison as on a GPU: whole runs, whose peaks are those of their plans."""
        programs = (FOLDER.parent / "dit-plan", FOLDER.parent / "dit-train", STEP_TIME.parents[2] / "configs")
        output = run(sys.executable, "-B", STEP_TIME.parents[1] / "plans/device_accuracy.py", *programs, "--device", "cpu", "--first", 2)
        table = rows(output)
        self.assertEqual([row["job"] for row in table], ["base, nothing recomputed", "base, bf16"])
        for row in table:
            self.assertEqual(row["planned peak, bytes"], row["measured"])
            self.assertGreater(int(row["measured"]), 20_000_000)

    def test_diffusion_planner_bytes(self):
        """Preset UP, whose bytes are in diffusion_planner_bytes_test: both tables, ranked, and their sums."""
        output = run(FOLDER / "diffusion-planner-bytes", "--preset", "UP")
        first, second = (rows(table) for table in output.split("\n\n")[1:])
        kept = [float(row["CUDA fp32"]) for row in first]
        self.assertEqual(first[-1]["sub-module"], "all")
        self.assertEqual(kept[:-1], sorted(kept[:-1], reverse=True))
        self.assertAlmostEqual(kept[-1], 107.32, delta=0.01)
        self.assertAlmostEqual(sum(kept[:-1]), kept[-1], delta=0.05)
        self.assertTrue(first[0]["sub-module"].endswith("_encoder.blocks`"), output)
        self.assertEqual(second[0]["CUDA fp32"], first[-1]["CUDA fp32"])
        again = [float(row["CUDA fp32"]) for row in second]
        self.assertEqual(again, sorted(again, reverse=True))
        self.assertEqual(second[0]["of a step's operations"], "0.0 %")
        for row in second[1:]:
            self.assertGreater(float(row["of a step's operations"].split()[0]), 0)

    def test_the_bound_of_a_median(self):
        """By the binomial distribution: the rank is the smallest k with P(B(n, 1/2) >= k) <= 0.05."""
        sys.path.insert(0, str(STEP_TIME.parent))
        from step_time import upper_bound

        for count, rank in ((21, 15), (31, 21), (41, 27)):
            self.assertEqual(upper_bound([float(value) for value in range(count, 0, -1)]), rank)

    def test_a_bound_above_the_limit_fails(self):
        sys.path.insert(0, str(STEP_TIME.parent))
        import step_time

        def ends(limit: str | None, bounds: list[float]) -> tuple[int, str]:
            left = iter(bounds)
            arguments = ["step_time", "program", "--starts", "0", *(["--limit", limit] if limit else [])]
            arguments += ["--models", "DiT-S/4", "--batches", *map(str, range(1, len(bounds) + 1))]
            errors = io.StringIO()
            with mock.patch.object(sys, "argv", arguments), mock.patch.object(step_time, "compare", lambda *_: next(left)), \
                 contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):  # fmt: skip
                return step_time.main(), errors.getvalue()

        self.assertEqual(ends("1.1", [0.9, 1.1]), (0, ""))
        self.assertEqual(ends("1.1", [1.2, 0.9]), (1, "step_time: an upper bound is 1.200, above 1.1\n"))
        self.assertEqual(ends(None, [9.0]), (0, ""))

    def test_step_time_against_pytorch(self):
        self.need_torch()
        output = run(sys.executable, STEP_TIME, FOLDER / "step-time", *SMALL, "--starts", "1", "--limit", "1000")
        (row,) = rows(output)
        self.assertLessEqual(float(row["ratio, median"]), float(row["upper 95 % bound"]))
        self.assertGreater(float(row["peak MiB"]), 100)
        for unknown in ("PyTorch*", "MFU", "PyTorch**"):  # of a CPU
            self.assertEqual(row[unknown], "-")
        self.assertIn("start of the process to the end of the first step", output)

    def test_step_time_under_autocast_names_operators(self):
        self.need_torch()
        output = run(sys.executable, STEP_TIME, FOLDER / "step-time", *SMALL, "--starts", "0", "--bf16", "--operators")
        (row,) = rows(output)
        self.assertGreater(float(row["ratio, median"]), 0)
        self.assertNotIn("start of the process", output)

    def test_diffusion_planner_step_says_how_to_get_the_original(self):
        def ends(*arguments: str) -> tuple[int, str, str]:
            command = [STEP_TIME.parents[1] / "diffusion_planner/step", *arguments]
            result = subprocess.run(command, capture_output=True, text=True, timeout=60)
            return result.returncode, result.stdout, result.stderr

        code, usage, errors = ends("--help")
        self.assertEqual((code, errors), (0, ""))
        self.assertIn("git clone https://github.com/tier4/Diffusion-Planner FOLDER\n", usage)
        self.assertIn("git -C FOLDER checkout 8314659a\n", usage)
        self.assertEqual(ends(), (2, "", usage))
        self.assertEqual(ends("--pairs", "21"), (2, "", usage))
        missing = "benchmarks/diffusion_planner/step: /nowhere: no checkout of the original Diffusion-Planner\n\n"
        self.assertEqual(ends("--pairs", "21", "--original", "/nowhere"), (2, "", missing + usage))
        self.assertEqual(ends("--original=/nowhere"), (2, "", missing + usage))

    def test_checkpoint_overhead_against_pytorch(self):
        self.need_torch()
        output = run(sys.executable, STEP_TIME.parents[1] / "policies/checkpoint_overhead.py", FOLDER / "checkpoint-overhead",
                     "--segments", "200", "--rounds", "3")  # fmt: skip
        sides = rows(output)
        bodies = ("multiplication", "multiplication, tanh")
        self.assertEqual([(row["a segment"], row[""]) for row in sides],
                         [(body, name) for body in bodies for name in ("dit-train", "PyTorch")])  # fmt: skip
        for row in sides:
            self.assertGreater(float(row["median"]), 0)
        for row in sides[1:]:  # a recomputation costs something in backward
            self.assertLess(float(row["of it forward"]), float(row["median"]))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    FOLDER, STEP_TIME = (Path(argument).resolve() for argument in sys.argv[1:])
    unittest.main(argv=sys.argv[:1])
