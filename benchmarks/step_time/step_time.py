"""step_time.py PROGRAM: step times of dit-train and of PyTorch, one step of each in turns.

PROGRAM is build/release/benchmarks/step-time. Both sides train the same DiT on 4x32x32 latents (--side) from the same weights,
which the PyTorch side checks first: output and gradients of one batch. Both use rectified flow, fused AdamW without
clipping, scaled_dot_product_attention, and let gradients go after each step. dit-train has its memory ledger on and the
attention policy, no other.

ratio: dit-train / PyTorch of each pair, the median of all pairs, and a bound that the true median is below with 95 %
confidence: an order statistic, without assumptions about the distribution. Middle half: from the first to the third
quartile. Peak: bytes of tensors; PyTorch counts those of a CUDA device only. MFU: under bf16, on a device whose peak
rate is known.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from step_pairs import MIN_PAIRS, Side, alternate, print_operators, spread, times, upper_bound  # noqa: E402

EAGER = Path(__file__).with_name("eager_dit.py")


def compare(arguments, model: str, batch: int, folder: str) -> float:
    reference = f"{folder}/{model.replace('/', '-')}-{batch}.safetensors"
    common = ["--model", model, "--batch", str(batch), "--side", str(arguments.side), "--device", arguments.device]
    if arguments.bf16:
        common.append("--bf16")
    eager = [sys.executable, str(EAGER), *common, "--reference", reference]
    ours = Side([arguments.program, *common, "--reference", reference])
    theirs = Side(eager + (["--compile"] if arguments.compile else []))
    Path(reference).unlink()
    if ours.threads != theirs.threads:
        sys.exit(f"step_time: {ours.threads} threads against {theirs.threads}")
    a, b = alternate(ours, theirs, arguments.pairs, arguments.warmup)
    ratios = [x / y for x, y in zip(a, b)]
    bound = upper_bound(ratios)
    rates = [1e3 * batch / median(side) for side in (a, b)]
    peaks = [side.ask("peak", "peak") for side in (ours, theirs)]
    at_peak = ours.ask("images_at_peak", "images_at_peak")
    cells = [
        model, batch, times(a), times(b), f"{median(ratios):.3f}", f"{bound:.3f}", spread(ratios, 3),
        *(f"{rate:.1f}" for rate in rates),
        *(f"{peak / 2**20:.1f}" if peak > 0 else "-" for peak in peaks),
        *(f"{100 * rate / at_peak:.1f} %" if at_peak > 0 else "-" for rate in rates),
    ]  # fmt: skip
    print("|", " | ".join(str(cell) for cell in cells), "|", flush=True)
    if arguments.operators:
        print_operators(f"{model}, batch {batch}", ours, theirs)
    ours.close()
    theirs.close()
    return bound


def first_step(command: list[str]) -> float:
    """Seconds from the start of the process to the end of its first step."""
    begin = time.perf_counter()
    side = Side(command)
    side.step()
    seconds = time.perf_counter() - begin
    side.close()
    return seconds


def compare_start(arguments) -> None:
    common = ["--model", arguments.models[0], "--batch", "1", "--side", str(arguments.side), "--device", arguments.device]
    ours, theirs = [], []
    for _ in range(arguments.starts):
        ours.append(first_step([arguments.program, *common]))
        theirs.append(first_step([sys.executable, str(EAGER), *common]))
    print(
        f"\nstart of the process to the end of the first step ({arguments.models[0]}, batch 1, "
        f"{arguments.starts} pairs): {median(ours):.2f} s ({min(ours):.2f} to {max(ours):.2f}), "
        f"PyTorch {median(theirs):.2f} s ({min(theirs):.2f} to {max(theirs):.2f})"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--models", nargs="+", default=["DiT-S/4", "DiT-B/4"])
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 16])
    parser.add_argument("--pairs", type=int, default=41, help=f"at least {MIN_PAIRS}")
    parser.add_argument("--warmup", type=int, default=3, help="pairs that are not counted")
    parser.add_argument("--starts", type=int, default=5, help="pairs of fresh processes; 0: none")
    parser.add_argument("--side", type=int, default=32, help="width and height of the latents: 32 at 256 px, 64 at 512 px")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--bf16", action="store_true", help="both sides under bf16 autocast")
    parser.add_argument("--compile", action="store_true", help="the other side under torch.compile")
    parser.add_argument("--limit", type=float, help="fail when an upper bound of the ratio is above this")
    parser.add_argument("--operators", action="store_true", help="on standard error: which operators each side calls")
    arguments = parser.parse_args()
    if arguments.pairs < MIN_PAIRS:
        parser.error(f"--pairs {arguments.pairs}: at least {MIN_PAIRS}")
    begin = time.monotonic()
    print(f"{arguments.pairs} pairs; milliseconds: median (middle half)\n")
    print("| model | batch | dit-train, ms | PyTorch, ms | ratio, median | upper 95 % bound | middle half | images/s "
          "| PyTorch | peak MiB | PyTorch | MFU | PyTorch |")
    print("|---|---:|---:|---:|---:|---:|---|---:|---:|---:|---:|---:|---:|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        bounds = [compare(arguments, model, batch, folder) for model in arguments.models
                  for batch in arguments.batches]
    if arguments.starts > 0:
        compare_start(arguments)
    print(f"\nall of it: {(time.monotonic() - begin) / 60:.1f} min")
    if arguments.limit is not None and max(bounds) > arguments.limit:
        print(f"step_time: an upper bound is {max(bounds):.3f}, above {arguments.limit}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
