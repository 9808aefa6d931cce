"""device_accuracy.py DIT_PLAN DIT_TRAIN CONFIGS [--device cuda|cpu] [--first N] [--jobs N]: plans beside whole runs.

Each job is planned, then run by dit-train for three steps on made-up samples, in a process of its own. Compared are the
highest peak of the plan and that of memory.json. On CUDA that is the allocator's requested_bytes, which have cuBLAS's
workspaces: so they are added to the plan's peak. Then what the allocator held of the device, in segments, planned and at
the end of the run; and what the device had in use during the run, at the most and beyond what it had before, less those
segments: the context. The trial steps behind the run, which measure what each policy saved, hold more, and a signal leaves
them out. Exit code 1
where a peak differs by more than 0.5 % (on the CPU: by a byte, which the scratch of two threads may take) or the segments
by more than 2 %. Nothing else may use the device.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

PEAK_LIMIT, SEGMENTS_LIMIT = 0.005, 0.02
STOPPED = 5  # dit-train's exit code after a signal
OFF = {f"policies.{name}.enabled": "false" for name in ("precision", "attention", "checkpoint")} | {"policies.ema.device": "same"}
KEPT = {"policies.checkpoint.enabled": "false"}
STORED = KEPT | {"policies.attention.enabled": "false"}


def cuda_jobs() -> list[tuple[str, str, dict]]:
    def xl2(batch: int, **more: object) -> dict:
        return {"data.batch": batch, "train.accumulate": 1, **{key.replace("__", "."): value for key, value in more.items()}}

    large = "dit_xl2_latents.toml"
    # Those that differ most come first, since not every machine has the time for all.
    jobs = [
        ("XL/2, batch 32", large, xl2(32)),
        ("XL/2, batch 256", large, xl2(256)),
        ("XL/2, batch 128, nothing recomputed", large, xl2(128) | KEPT),
        ("XL/2, batch 32, all policies off", large, xl2(32) | OFF),
        ("XL/2, batch 128 in 2 micro-batches", large, xl2(128) | {"train.accumulate": 2}),
        ("XL/2, batch 64, offload", large, xl2(64, policies__checkpoint__keep="offload")),
        ("XL/2 at 512 px, batch 16", "dit_xl2_512.toml", xl2(16)),
        ("XL/2, batch 32, average on the device", large, xl2(32, policies__ema__device="same")),
        ("XL/2, batch 32, stored attention", large, xl2(32) | STORED),
        ("B/2, batch 256", "dit_b2_latents.toml", xl2(256)),
        ("S/4 on images", "dit_s4_images.toml", {}),
        ("base", "base.toml", {}),
        ("base, epsilon", "base.toml", {"diffusion.objective": "epsilon"}),
        ("B/2, batch 256, all policies off", "dit_b2_latents.toml", xl2(256) | OFF),
    ]
    jobs += [(f"XL/2, batch {batch}", large, xl2(batch)) for batch in (64, 128, 192)]
    jobs += [(f"XL/2, batch {batch}, nothing recomputed", large, xl2(batch) | KEPT) for batch in (32, 256)]
    jobs.append(("XL/2, batch 128, all policies off", large, xl2(128) | OFF))
    return jobs


def cpu_jobs() -> list[tuple[str, str, dict]]:
    fp32 = {"policies.precision.cpu": "fp32", "train.threads": 1}
    jobs = [(f"base, batch {batch}", "base.toml", fp32 | {"data.batch": batch}) for batch in (4, 16)]
    jobs.append(("base, nothing recomputed", "base.toml", fp32 | KEPT))
    jobs.append(("base, bf16", "base.toml", fp32 | {"policies.precision.cpu": "bf16"}))
    return jobs


def words(settings: dict) -> list[str]:
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


class DeviceUse:
    """The most bytes in use on the GPU until `ended` is set, beyond those before; samples every 20 ms."""

    def __enter__(self) -> "DeviceUse":
        command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0"]
        self.before = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        self.most, self.ended = self.before, False
        self.process = subprocess.Popen([*command, "--loop-ms=20"], stdout=subprocess.PIPE, text=True)
        self.thread = threading.Thread(target=self.read)
        self.thread.start()
        return self

    def read(self) -> None:
        for line in self.process.stdout:
            if not self.ended:
                self.most = max(self.most, int(line))

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.thread.join()

    @property
    def bytes(self) -> int:
        return (self.most - self.before) * 1024 * 1024


def highest(report: dict) -> tuple[int, str]:
    return report["peak"]["bytes"], report["peak"]["phase"]


def percent(planned: int, measured: int) -> float:
    return 100 * (planned - measured) / measured


def run_job(arguments: argparse.Namespace, config: str, settings: dict) -> tuple[dict, dict, int]:
    """The plan, memory.json of the run, and bytes in use on the device."""
    job = {"data.kind": "synthetic", "data.images": "default", "data.labels": "default", "data.latents": "default",
           "data.latent_scale": "default", "data.validation": 0, "data.samples": 1024, "train.seconds": "default",
           "train.steps": 3, "train.checkpoint_every": 0, "train.validate_every": 0, "train.sample_every": 0,
           "schedule.warmup": 0, "data.folder": "default", "data.flip": "default",
           "sample.per_class": 1, "sample.steps": 2} | settings
    on = ["--config", str(Path(arguments.configs, config)), "--device", arguments.device, *words(job)]
    cpu = arguments.device == "cpu"
    plan = json.loads(subprocess.run([arguments.plan, *on, "--json", *(["--calibration", "here"] if cpu else [])], check=True,
                                     capture_output=True, text=True).stdout)
    folder = tempfile.mkdtemp(prefix="device-accuracy-")
    try:
        command = [arguments.train, *on, "--set", f"train.out={folder}/run"]
        if cpu:
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            used = 0
        else:
            with DeviceUse() as use, subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
                # memory.json is written at the end of the run, before the trial steps, and once more behind them.
                while process.poll() is None and not Path(folder, "run/memory.json").exists():
                    time.sleep(0.005)
                use.ended = True
                process.terminate()
                if process.wait() not in (0, STOPPED):
                    raise subprocess.CalledProcessError(process.returncode, command)
            used = use.bytes
        return plan, json.loads(Path(folder, "run/memory.json").read_text()), used
    finally:
        shutil.rmtree(folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plan")
    parser.add_argument("train")
    parser.add_argument("configs")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--first", type=int, default=0, help="job to begin with; default 0")
    parser.add_argument("--jobs", type=int, default=100, help="at most so many; default all")
    arguments = parser.parse_args()
    cpu = arguments.device == "cpu"
    jobs = (cpu_jobs() if cpu else cuda_jobs())[arguments.first :][: arguments.jobs]
    print("| job | phase | planned peak, bytes | measured | difference | planned segments, bytes | measured | difference "
          "| context, bytes |\n|---|---|---:|---:|---:|---:|---:|---:|---:|")
    missed, notes = [], []
    for name, config, settings in jobs:
        plan, memory, used = run_job(arguments, config, settings)
        (planned, _), (measured, phase) = highest(plan), highest(memory)
        if not cpu:
            planned += sum(term["bytes"] for term in plan["plan"]["device_terms"] if term["name"] == "workspaces")
        off = percent(planned, measured)
        if planned != measured if cpu else abs(off) > 100 * PEAK_LIMIT:
            missed.append(f"{name}: the peak differs by {planned - measured} bytes, {off:.3f} %")
        beside = "- | - | - | -"
        if not cpu:
            segments, held = plan["plan"]["reserved"]["bytes"], memory["reserved"]["bytes"]
            if segments != held:
                notes.append(f"{name}: segments planned {plan['plan']['reserved']}, measured {memory['reserved']}")
            segments_off = percent(segments, held)
            beside = f"{segments} | {held} | {segments_off:+.3f} % | {used - held}"
            if abs(segments_off) > 100 * SEGMENTS_LIMIT:
                missed.append(f"{name}: the segments differ by {segments - held} bytes, {segments_off:.3f} %")
        print(f"| {name} | {phase} | {planned} | {measured} | {off:+.3f} % | {beside} |", flush=True)
    for line in notes + missed:
        print(line, file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
