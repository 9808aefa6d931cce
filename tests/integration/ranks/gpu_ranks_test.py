"""gpu_ranks_test.py DIT_TRAIN: as many ranks as this machine has GPUs, by NCCL, train what one rank trains there."""

import os
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import programs  # noqa: E402
from gpu import SKIPPED  # noqa: E402
from ranks import JOB, RanksTest  # noqa: E402

GPUS = 0


def gpus() -> int:
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60)
    except OSError:
        return 0
    return listed.stdout.count("GPU ") if listed.returncode == 0 else 0


class OnGpus(RanksTest):
    DEVICE = "cuda"

    def test_bits_are_those_of_one_rank(self):
        job = JOB | {"data__batch": 4 * GPUS, "train__accumulate": GPUS}
        for run, ranks, level in (("alone", 1, "optimizer"), ("o", GPUS, "optimizer"), ("p", GPUS, "parameters")):
            values = job | {"train__out": run, "policies__shard__level": f'"{level}"'}
            started = self.start_ranks(ranks, **values)
            for code, _, errors in self.finish(started, timeout=300):
                self.assertEqual((code, errors), (0, ""))
        for run in ("o", "p"):
            self.assertEqual(self.losses(run), self.losses("alone"))
            self.assertEqual(self.hashes(run), self.hashes("alone"))


if __name__ == "__main__":
    programs.TRAIN = Path(sys.argv.pop(1)).absolute()
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # else LibTorch's products may differ from run to run
    GPUS = gpus()
    if GPUS < 2:
        print(f"SKIPPED: several ranks on GPUs need as many, and nvidia-smi names {GPUS}")
        sys.exit(SKIPPED)
    unittest.main()
