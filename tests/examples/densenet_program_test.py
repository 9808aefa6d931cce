"""densenet_program_test.py PROGRAM: densenet_checkpoint prints the forms side by side, as a table and as JSON."""

import re
import sys
import unittest
from pathlib import Path

import programs

FORMS = ("plain", "checkpointed", "2018", "2018, stock norms")


class Program(unittest.TestCase):
    def test_json(self):
        result = programs.result_of(PROGRAM, "--depth", "22", "--batch", "4", "--rounds", "3")
        self.assertEqual((result["depth"], result["batch"]), (22, 4))
        self.assertEqual((result["parameters"], result["parameter_tensors"]), (71_686, 65))
        self.assertEqual(tuple(form["name"] for form in result["forms"]), FORMS)
        plain, *others = result["forms"]
        self.assertEqual(plain["saved_bytes_per_image"], 3_591_492)
        for form in others:
            self.assertEqual(form["saved_bytes_per_image"], 2_646_084)
            self.assertLess(form["peak_activation_bytes"], plain["peak_activation_bytes"])
            self.assertEqual(form["gradient_error"], 0)
            self.assertEqual(len(form["ms"]), 3)
        self.assertEqual([form["equal_statistics"] for form in result["forms"]], [True, True, True, False])
        self.assertEqual([form["batches_tracked"] for form in result["forms"]], [5, 5, 5, 10])

    def test_table(self):
        output = programs.execute(PROGRAM, "--depth", "10", "--batch", "2", "--rounds", "1").stdout
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in output.splitlines() if line[:1] == "|"]
        self.assertEqual([row[0] for row in rows[2:]], list(FORMS))
        self.assertEqual([row[6] for row in rows[2:]], ["bit-equal"] * 4)
        self.assertEqual([row[7] for row in rows[2:]], ["equal, 3 batches"] * 3 + ["differ, 6 batches"])
        self.assertTrue(re.match(r"DenseNet-BC, depth 10: \d+ parameters in \d+ tensors; batch 2, 3 steps", output))

    def test_explained_bytes_are_those_of_the_run(self):
        one, two = (
            programs.result_of(PROGRAM, "--depth", "22", "--batch", batch, "--explain") for batch in ("1", "2")
        )
        self.assertEqual(two["saved"] - one["saved"], 3_591_492)
        self.assertEqual(two["recomputed"]["saved"] - one["recomputed"]["saved"], 2_646_084)
        self.assertEqual(len(two["segments"]), 9)
        # What two modules keep is let go only if both are segments.
        alone = sum(segment["gain"] for segment in two["segments"])
        self.assertLess(alone, two["saved"] - two["recomputed"]["saved"])
        self.assertGreater(alone, 0)
        self.assertLess(two["recomputed"]["peak"]["bytes"], two["peak"]["bytes"])
        self.assertEqual(two["state"]["parameters"], 4 * 71_686)
        # Two statistics of each of 996 channels in fp32, and a count of 8 bytes of each of 21 norms.
        self.assertEqual(two["state"]["buffers"], 8 * (996 + 21))
        for peak in (two["peak"], two["recomputed"]["peak"]):
            self.assertTrue(peak["largest"]["operation"].startswith("aten::"), peak)
            self.assertLess(0, peak["largest"]["bytes"])
            self.assertLess(peak["largest"]["bytes"], peak["bytes"])
        self.assertEqual(two["state"]["gradients"], 4 * 71_686)
        self.assertEqual(two["state"]["optimizer"], 4 * 71_686)

    def test_explained_as_text(self):
        done = programs.execute(PROGRAM, "--depth", "10", "--batch", "2", "--explain")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("what checkpointing can save (planned, nothing was computed)\n", done.stdout)
        self.assertIn("  features.denseblock2.denselayer1 ", done.stdout)
        self.assertIn("alive there, the most of one operator: aten::", " ".join(done.stdout.split()))
        self.assertEqual([line for line in done.stdout.splitlines() if len(line) > 80], [])
        self.assertRegex(" ".join(done.stdout.split()), r": parameters [\d,]+, buffers [\d,]+, gradients [\d,]+, ")

    def test_any_batch_is_explained(self):
        done = programs.execute(PROGRAM, "--depth", "10", "--batch", "100000", "--explain")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_wrong_arguments(self):
        for arguments, message in (
            (["--depth", "99"], "--depth 99: allowed are 10, 16, 22 and so on in steps of 6"),
            (["--batch", "0"], "--batch: 0 is out of range; allowed: 1 to 1048576"),
            (["--rounds", "0"], "--rounds: 0 is out of range; allowed: 1 to 1000"),
            (["more"], 'unexpected argument "more"; see --help'),
            (["--batch", "2", "--batch=3"], "--batch is given 2 times; give it once"),
            (["--explain", "--depth", "99"], "--depth 99: allowed are 10, 16, 22 and so on in steps of 6"),
            (
                ["--explain", "--rounds", "3"],
                "--rounds and --explain: what is explained is planned, not timed; give one of them",
            ),
        ):
            result = programs.execute(PROGRAM, *arguments)
            self.assertEqual((result.returncode, result.stderr), (2, f"densenet_checkpoint: {message}\n"))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    PROGRAM = Path(sys.argv[1]).resolve()
    unittest.main(argv=sys.argv[:1])
