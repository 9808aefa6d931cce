"""soak_test.py DIT_TRAIN RESULT: 10,000 steps of a tiny model hold no more memory, beside what is counted, than 1,000 did.

Writes the figures to RESULT, of which benchmarks/results/ holds the newest.
"""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import programs  # noqa: E402

STEPS = 10_000
SETTINGS = programs.settings({
    "train.steps": STEPS, "train.log_every": 100, "train.checkpoint_every": 500, "train.validate_every": 250,
    "data.validation": 20, "model.depth": 2, "sample.steps": 2, "sample.per_class": 1,
})  # fmt: skip
TRAIN = RESULT = Path()


class Soak(unittest.TestCase):
    def test_the_memory_beside_what_is_counted_stays(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            programs.write_inputs(folder)
            result = subprocess.run([TRAIN, "--config", "tiny.toml", "--device", "cpu", *SETTINGS], cwd=folder, capture_output=True, text=True)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            lines = [json.loads(line) for line in (folder / "run/log.jsonl").read_text().splitlines()]
        beside = {line["step"]: line["process_bytes"] - line["counted_bytes"] for line in lines if line["event"] == "step"}
        self.assertEqual([line for line in lines if line["event"] == "memory_grows"], [])
        steps = (1000, 2500, 5000, 7500, STEPS)
        rows = [f"| {step:,} | {beside[step]:,} | {beside[step] - beside[1000]:+,} |" for step in steps]
        RESULT.write_text(
            "# Memory of a long run\n\nA tiny DiT, 10,000 steps with a checkpoint and a report every 500 and a "
            "validation every 250 (`tests/run -L long`, `soak_test`): bytes that the process holds beside those that the "
            "ledger counts. With samples on the way (`train.sample_every`) the report grows by up to twelve grids, and the heap with "
            "it once.\n\n| step | bytes | since step 1,000 |\n|--:|--:|--:|\n" + "\n".join(rows) + "\n",
            encoding="utf-8",
        )
        self.assertLess(beside[STEPS] - beside[1000], 1 << 20, "\n".join(rows))


if __name__ == "__main__":
    TRAIN, RESULT = Path(sys.argv.pop(1)).resolve(), Path(sys.argv.pop(1)).resolve()
    unittest.main()
