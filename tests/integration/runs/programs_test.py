"""programs_test.py DIT_TRAIN DIT_SAMPLE DIT_EXPORT [unittest arguments]: the programs as a user meets them."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import programs  # noqa: E402

MODULES = [
    "train_runs",
    "train_refusals",
    "memory_refusals",
    "run_folders",
    "sample_runs",
    "objectives",
    "data_runs",
    "weight_runs",
    "hostile_runs",
    "first_hour",
    "advice_runs",
]

if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    programs.TRAIN, programs.SAMPLE, programs.EXPORT = (Path(path).resolve() for path in sys.argv[1:4])
    unittest.main(module=None, argv=[sys.argv[0], *(sys.argv[4:] or MODULES)])
