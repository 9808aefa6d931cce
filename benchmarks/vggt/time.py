"""time.py PROGRAM: times of an inference and of a training step of a VGGT, ours and those of an eager PyTorch program that
was written from the description of the network, one pass of each in turns.

PROGRAM is build/release/benchmarks/vggt-time. Both sides have the weights and pictures of time.toml; the other side first
checks results, loss and gradients. Inference is in inference mode, here with the policies of inference at their defaults,
and with chunks of 3 frames and 512 tokens. Both train with fused AdamW and let gradients go after each step.

ratio: of each pair, the median of all pairs, and a bound that the true median is below with 95 % confidence: an order
statistic, without assumptions about the distribution. Middle half: from the first to the third quartile."""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from step_pairs import MIN_PAIRS, Side, alternate, spread, times, upper_bound  # noqa: E402

HERE = Path(__file__).parent
CONFIG = str(HERE / "time.toml")
CHUNKS = ["policies.inference.frame_chunk=3", "policies.inference.token_chunk=512", "policies.inference.head_chunk=3"]
ROWS = {"inference": ("infer", []), "inference, 3 frames and 512 tokens at a time": ("infer", CHUNKS), "training step": ("train", [])}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--pairs", type=int, default=21, help=f"at least {MIN_PAIRS}")
    parser.add_argument("--warmup", type=int, default=2, help="pairs that are not counted")
    arguments = parser.parse_args()
    if arguments.pairs < MIN_PAIRS:
        parser.error(f"--pairs {arguments.pairs}: at least {MIN_PAIRS}")
    begin = time.monotonic()
    print(f"{arguments.pairs} pairs; milliseconds: median (middle half)\n")
    print("| of 6 frames of 112 x 168 | ours, ms | eager PyTorch, ms | ratio, median | upper 95 % bound | middle half |")
    print("|---|---:|---:|---:|---:|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        reference = f"{folder}/reference.safetensors"
        subprocess.run([arguments.program, "--config", CONFIG, "--reference", reference], check=True)
        for title, (mode, settings) in ROWS.items():
            ours = Side([arguments.program, "--config", CONFIG, "--mode", mode, "--set", "\n".join(settings)])
            theirs = Side([sys.executable, str(HERE / "eager_vggt.py"), "--config", CONFIG, "--reference", reference, "--mode", mode])
            if ours.threads != theirs.threads:
                sys.exit(f"vggt/time: {ours.threads} threads against {theirs.threads}")
            a, b = alternate(ours, theirs, arguments.pairs, arguments.warmup)
            ratios = [x / y for x, y in zip(a, b)]
            print("|", " | ".join([title, times(a), times(b), f"{median(ratios):.3f}", f"{upper_bound(ratios):.3f}", spread(ratios, 3)]), "|", flush=True)
            ours.close()
            theirs.close()
    print(f"\nall of it: {(time.monotonic() - begin) / 60:.1f} min")
    return 0


if __name__ == "__main__":
    sys.exit(main())
