"""step.py PROGRAM: step times of dit-train and of transformers with peft and bitsandbytes, one step of each in turns.

PROGRAM is build/release/benchmarks/llava-step. Both sides train the LLaVA of step.toml from the same weights on
samples of one length with a picture each, of whose words half are answers; the other side first checks loss and
gradients of one batch. Both use fused AdamW without clipping and scaled_dot_product_attention, and let gradients go
after each step. dit-train has its memory ledger on and the attention policy, no other. Recipes: "full" trains projector
and decoder; "lora" adapters (r = 8, dropout 0.05) and the projector on a frozen base; both in fp32. "qlora" is "lora" on a
base in NF4, what is not packed of it in bf16, under bf16 autocast.

Then dit-train with the decoder's layers checkpointed against itself without.

ratio: of each pair, the median of all pairs, and a bound that the true median is below with 95 % confidence: an order
statistic, without assumptions about the distribution. Middle half: from the first to the third quartile. Peak: bytes of
tensors, which PyTorch does not count on a CPU.
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

HERE = Path(__file__).parent
CONFIG = str(HERE / "step.toml")
ADAPTED = ['train.parts=["projector", "lora"]', "llava.lora.r=8", "llava.lora.alpha=16", "llava.lora.dropout=0.05"]
RECIPES = {"full": ['train.parts=["projector", "text"]'], "lora": ADAPTED,
           "qlora": [*ADAPTED, "llava.base=nf4", "policies.precision.enabled=true"]}  # fmt: skip
CHECKPOINT = "policies.checkpoint.enabled=true"


def our_side(program: str, weights: str, settings: list[str], *more: str) -> Side:
    return Side([program, "--config", CONFIG, "--weights", weights, "--set", "\n".join(settings), *more])


def row(title: str, ours: Side, theirs: Side, arguments) -> float:
    if ours.threads != theirs.threads:
        sys.exit(f"llava/step: {ours.threads} threads against {theirs.threads}")
    a, b = alternate(ours, theirs, arguments.pairs, arguments.warmup)
    ratios = [x / y for x, y in zip(a, b)]
    bound = upper_bound(ratios)
    peaks = [side.ask("peak", "peak") / 2**20 for side in (ours, theirs)]
    cells = [title, times(a), times(b), f"{median(ratios):.3f}", f"{bound:.3f}", spread(ratios, 3),
             *(f"{peak:.1f}" if peak > 0 else "-" for peak in peaks)]  # fmt: skip
    print("|", " | ".join(cells), "|", flush=True)
    if arguments.operators:
        print_operators(title, ours, theirs)
    ours.close()
    theirs.close()
    return bound


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--recipes", nargs="+", choices=list(RECIPES), default=list(RECIPES))
    parser.add_argument("--pairs", type=int, default=21, help=f"at least {MIN_PAIRS}")
    parser.add_argument("--warmup", type=int, default=2, help="pairs that are not counted")
    parser.add_argument("--limit", type=float, help="fail when an upper bound against transformers is above this")
    parser.add_argument("--operators", action="store_true", help="on standard error: which operators each side calls")
    arguments = parser.parse_args()
    if arguments.pairs < MIN_PAIRS:
        parser.error(f"--pairs {arguments.pairs}: at least {MIN_PAIRS}")
    begin = time.monotonic()
    heading = "| {} | {}, ms | {}, ms | ratio, median | upper 95 % bound | middle half | peak MiB | {} |\n"
    heading += "|---|---:|---:|---:|---:|---|---:|---:|"
    print(f"{arguments.pairs} pairs; milliseconds: median (middle half)\n")
    with tempfile.TemporaryDirectory() as folder:
        weights, reference = f"{folder}/weights.safetensors", f"{folder}/reference.safetensors"
        subprocess.run([arguments.program, "--config", CONFIG, "--weights", weights, "--draw"], check=True)
        print(heading.format("recipe", "dit-train", "transformers", "transformers"), flush=True)
        bounds = []
        for recipe in arguments.recipes:
            ours = our_side(arguments.program, weights, RECIPES[recipe], "--reference", reference)
            eager = [sys.executable, str(HERE / "eager_llava.py"), "--config", CONFIG, "--weights", weights,
                     "--reference", reference, "--dropout", "0.05"]  # fmt: skip
            theirs = Side([*eager, "--packed"] if recipe == "qlora" else eager)
            bounds.append(row(recipe, ours, theirs, arguments))
        print("\n" + heading.format("recipe", "checkpointed", "without", "without"), flush=True)
        for recipe in arguments.recipes:
            sides = [our_side(arguments.program, weights, [*RECIPES[recipe], *more]) for more in ([CHECKPOINT], [])]
            row(recipe, *sides, arguments)
    print(f"\nall of it: {(time.monotonic() - begin) / 60:.1f} min")
    if arguments.limit is not None and max(bounds) > arguments.limit:
        print(f"llava/step: an upper bound is {max(bounds):.3f}, above {arguments.limit}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
