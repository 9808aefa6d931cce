"""checkpoint_overhead.py PROGRAM: what checkpointing costs a segment, here and in PyTorch, a round of each in turns.

PROGRAM is build/release/benchmarks/checkpoint-overhead. A round is a chain of segments of one scalar multiplication
each, forward and backward, minus the same chain without checkpointing, on one thread, in processor time. The
multiplication that is made again counts as cost.
"""

import argparse
import sys
from pathlib import Path
from statistics import median

from step_time import Side, spread

EAGER = Path(__file__).with_name("eager_checkpoint.py")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--segments", type=int, default=10000)
    parser.add_argument("--rounds", type=int, default=11, help="at least 3")
    parser.add_argument("--limit", type=float, help="fail when the median here is above so many microseconds")
    arguments = parser.parse_args()
    if arguments.rounds < 3:
        parser.error(f"--rounds {arguments.rounds}: at least 3")
    sides = {
        "dit-train": Side([arguments.program, "--segments", str(arguments.segments)]),
        "PyTorch": Side([sys.executable, str(EAGER), "--segments", str(arguments.segments)]),
    }
    totals, forwards = ({name: [] for name in sides} for _ in range(2))
    for number in range(-1, arguments.rounds):  # one to warm up
        for name, side in sides.items():
            total, forward = side.ask("round", "round"), side.ask("forward", "forward")
            if number >= 0:
                totals[name].append(total)
                forwards[name].append(forward)
    print(f"{arguments.segments} segments of one scalar multiplication, {arguments.rounds} rounds; microseconds of "
          "processor time a segment beyond the plain chain\n")  # fmt: skip
    print("| | median | middle half | of it forward |\n|---|---:|---|---:|")
    for name, side in sides.items():
        print(f"| {name} | {median(totals[name]):.2f} | {spread(totals[name], 2)} | {median(forwards[name]):.2f} |")
        side.close()
    if arguments.limit is not None and median(totals["dit-train"]) > arguments.limit:
        print(f"checkpoint_overhead: above {arguments.limit} microseconds", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
