"""largest_batch.py DIT_PLAN DIT_TRAIN CONFIGS [--budgets 24GB ...]: the largest batch of DiT-XL/2 that a plan says fits a
budget, and what a run of three steps takes whose allocator is limited to that budget less the context that the plan
counts: the planned batch, then more by steps of two per cent until it does not fit. Exit code 1 if a planned batch does not
run."""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "plans"))
from device_accuracy import words  # noqa: E402

MORE = (1.0, 1.02, 1.04, 1.06, 1.08, 1.1)
DID_NOT_FIT = 3  # dit-train's exit code
JOB = {"data.kind": "synthetic", "data.latents": "default", "data.latent_scale": "default", "data.validation": 0,
       "data.samples": 4096, "train.accumulate": 1, "train.steps": 3, "train.checkpoint_every": 0,
       "train.validate_every": 0, "train.sample_every": 0, "sample.per_class": 1, "sample.steps": 2}


def runs(arguments: argparse.Namespace, batch: int, budget: int) -> bool:
    with tempfile.TemporaryDirectory(prefix="largest-batch-") as folder:
        job = JOB | {"data.batch": batch, "memory.budget": budget, "memory.on_over_budget": "warn", "train.out": f"{folder}/run"}
        command = [arguments.train, "--config", str(Path(arguments.configs, arguments.config)), "--device", "cuda", *words(job)]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, DID_NOT_FIT):
        sys.exit(f"largest_batch: dit-train ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plan")
    parser.add_argument("train")
    parser.add_argument("configs")
    parser.add_argument("--config", default="dit_xl2_latents.toml")
    parser.add_argument("--budgets", nargs="+", default=["24GB", "48GB"])
    arguments = parser.parse_args()
    print("| budget | planned batch | with what the device adds, bytes | runs | largest tried that ran | first that did not |")
    print("|---|---:|---:|---|---:|---:|", flush=True)
    missed = False
    for budget in arguments.budgets:
        command = [arguments.plan, "--config", str(Path(arguments.configs, arguments.config)), "--device", "cuda",
                   "--max-batch", budget, "--json", *words(JOB)]
        report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        planned = report["plan"]["batch"]
        beside = report["plan"]["beside"]
        whole = report["peak"]["bytes"] + beside["device"]
        limit = report["largest_batch"]["budget_bytes"] - (beside["device"] - beside["allocator"])
        ran, refused = [], "-"
        for more in MORE:
            batch = int(planned * more)
            if not runs(arguments, batch, limit):
                refused = str(batch)
                break
            ran.append(batch)
        missed = missed or not ran
        print(f"| {budget} | {planned} | {whole} | {'yes' if ran else 'no'} | {max(ran, default='-')} | {refused} |", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
