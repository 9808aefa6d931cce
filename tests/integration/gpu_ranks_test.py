"""gpu_ranks_test.py DIT_TRAIN: as many ranks as this machine has GPUs, by NCCL, train what one rank trains there."""

import subprocess
import sys
import unittest
from pathlib import Path

import programs
from programs import settings
from ranks import JOB, RanksTest, environment, free_port

SKIPPED = 77
GPUS = 0


def gpus() -> int:
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60)
    except OSError:
        return 0
    return listed.stdout.count("GPU ") if listed.returncode == 0 else 0


class OnGpus(RanksTest):
    def start(self, rank: int, ranks: int, port: int, job: dict) -> subprocess.Popen:
        process = subprocess.Popen(
            [str(programs.TRAIN), "--config", "tiny.toml", "--device", "cuda", *settings(job)],
            cwd=self.folder,
            env=environment(rank, ranks, port) | {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(programs.end, process)
        return process

    def test_bits_are_those_of_one_rank(self):
        job = JOB | {"data__batch": 4 * GPUS, "train__accumulate": GPUS}
        for run, ranks, level in (("alone", 1, "optimizer"), ("o", GPUS, "optimizer"), ("p", GPUS, "parameters")):
            port = free_port()
            values = job | {"train__out": run, "policies__shard__level": f'"{level}"'}
            started = [self.start(rank, ranks, port, values) for rank in range(ranks)]
            for code, _, errors in self.finish(started, timeout=300):
                self.assertEqual((code, errors), (0, ""))
        for run in ("o", "p"):
            self.assertEqual(self.losses(run), self.losses("alone"))
            self.assertEqual(self.hashes(run), self.hashes("alone"))


if __name__ == "__main__":
    programs.TRAIN = Path(sys.argv.pop(1)).absolute()
    GPUS = gpus()
    if GPUS < 2:
        print(f"SKIPPED: several ranks on GPUs need as many, and nvidia-smi names {GPUS}")
        sys.exit(SKIPPED)
    unittest.main()
