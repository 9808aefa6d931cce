"""programs_test.py DIT_TRAIN DIT_SAMPLE [unittest arguments]: the two programs as a user meets them."""

import sys
import unittest
from pathlib import Path

import programs

MODULES = ["train_runs", "train_refusals", "run_folders", "sample_runs", "objectives", "data_runs"]

if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    programs.TRAIN, programs.SAMPLE = (Path(path).resolve() for path in sys.argv[1:3])
    unittest.main(module=None, argv=[sys.argv[0], *(sys.argv[3:] or MODULES)])
