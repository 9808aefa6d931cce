"""step.py PROGRAM DRAW_SCENES --original FOLDER: step times of dit-train's driving model and of the original
Diffusion-Planner, one step of each in turns.

PROGRAM is build/release/benchmarks/diffusion-planner-step, FOLDER a checkout of the original. Both sides train preset H in fp32
from the same weights on the same frames, from metres on: heading to cosine and sine, normalisation, noise, encoder,
decoder, all loss terms, backward, clipping to a norm of 5, fused AdamW. Dropout is on, attention as fused as PyTorch has
it, and neither side keeps an average or recomputes. The original runs as its own modules do it, first without dropout:
loss and gradients of one batch have to be ours. dit-train has its memory ledger on and the attention policy, no other.

ratio: dit-train / original of each pair, the median of all pairs, and a bound that the true median is below with 95 %
confidence: an order statistic, without assumptions about the distribution. Middle half: from the first to the third
quartile. Peak: bytes of tensors, which PyTorch does not count on a CPU.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from step_pairs import MIN_PAIRS, Side, alternate, print_operators, spread, times, upper_bound  # noqa: E402

EAGER = Path(__file__).with_name("eager.py")


def drawn_frames(program: str, count: int, folder: str) -> str:
    """The list of so many frames of preset H, drawn now."""
    out = f"{folder}/frames"
    subprocess.run([program, "--preset", "H", "--frames", str(count), "--held-out", "1", "--pictures", "0",
                    "--out", out], check=True, stdout=sys.stderr)  # fmt: skip
    return f"{out}/train.json"


def compare(arguments, folder: str) -> float:
    frames = arguments.frames or drawn_frames(arguments.draw_scenes, arguments.batches * arguments.batch, folder)
    reference = f"{folder}/reference.safetensors"
    augmentation = ["--augmentation"] if arguments.augmentation else []
    ours = Side([arguments.program, "--frames", frames, "--batch", str(arguments.batch), "--reference", reference,
                 *augmentation])  # fmt: skip
    theirs = Side([sys.executable, str(EAGER), "--original", arguments.original, "--reference", reference, *augmentation])
    Path(reference).unlink()
    if ours.threads != theirs.threads:
        sys.exit(f"diffusion_planner/step: {ours.threads} threads against {theirs.threads}")
    a, b = alternate(ours, theirs, arguments.pairs, arguments.warmup)
    ratios = [x / y for x, y in zip(a, b)]
    bound = upper_bound(ratios)
    cells = [
        f"H{', augmented' if arguments.augmentation else ''}", arguments.batch, times(a), times(b),
        f"{median(ratios):.3f}", f"{bound:.3f}", spread(ratios, 3),
        *(f"{1e3 * arguments.batch / median(side):.2f}" for side in (a, b)),
        f"{ours.ask('peak', 'peak') / 2**20:.1f}",
    ]  # fmt: skip
    print("|", " | ".join(str(cell) for cell in cells), "|", flush=True)
    if arguments.operators:
        print_operators(f"preset H, batch {arguments.batch}", ours, theirs)
    ours.close()
    theirs.close()
    return bound


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("draw_scenes", metavar="DRAW_SCENES", help="build/release/draw-scenes, which draws frames")
    parser.add_argument("--original", required=True, help="checkout of tier4/Diffusion-Planner at 8314659a")
    parser.add_argument("--frames", help="folder or JSON list of frames; without it some are drawn")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--batches", type=int, default=4, help="drawn ones, in turns")
    parser.add_argument("--pairs", type=int, default=21, help=f"at least {MIN_PAIRS}")
    parser.add_argument("--warmup", type=int, default=2, help="pairs that are not counted")
    parser.add_argument("--augmentation", action="store_true", help="of every step's frames, on both sides")
    parser.add_argument("--limit", type=float, help="fail when the upper bound of the ratio is above this")
    parser.add_argument("--operators", action="store_true", help="on standard error: which operators each side calls")
    arguments = parser.parse_args()
    if arguments.pairs < MIN_PAIRS:
        parser.error(f"--pairs {arguments.pairs}: at least {MIN_PAIRS}")
    begin = time.monotonic()
    print(f"{arguments.pairs} pairs; milliseconds: median (middle half)\n")
    print("| preset | batch | dit-train, ms | original, ms | ratio, median | upper 95 % bound | middle half | frames/s "
          "| original | peak MiB |")
    print("|---|---:|---:|---:|---:|---:|---|---:|---:|---:|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        bound = compare(arguments, folder)
    print(f"\nall of it: {(time.monotonic() - begin) / 60:.1f} min")
    if arguments.limit is not None and bound > arguments.limit:
        print(f"diffusion_planner/step: the upper bound is {bound:.3f}, above {arguments.limit}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
