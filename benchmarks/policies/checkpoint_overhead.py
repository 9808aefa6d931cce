"""checkpoint_overhead.py PROGRAM: what checkpointing costs a segment, here and in PyTorch, a round of each in turns.

PROGRAM is build/release/benchmarks/checkpoint-overhead. A round is a chain of segments of one scalar multiplication
each, forward and backward, minus the same chain without checkpointing, on one thread, in processor time. PyTorch makes
the multiplication again; dit-train need not, as backward takes only the segment's input and its parameter. So there are
rounds of a multiplication and a tanh, too: backward needs the result, which both have to recompute. What is recomputed
counts as cost.
"""

import argparse
import sys
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from step_pairs import Side, spread  # noqa: E402

EAGER = Path(__file__).with_name("eager_checkpoint.py")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--segments", type=int, default=10000)
    parser.add_argument("--rounds", type=int, default=11, help="at least 3")
    parser.add_argument("--limit", type=float, help="fail when the median of a multiplication here is above so many microseconds")
    arguments = parser.parse_args()
    if arguments.rounds < 3:
        parser.error(f"--rounds {arguments.rounds}: at least 3")
    bodies = {"round": "multiplication", "again": "multiplication, tanh"}
    commands = {"dit-train": [arguments.program], "PyTorch": [sys.executable, str(EAGER)]}
    # A process for each, as a chain runs slower in a heap that others have left in disorder.
    sides = {(word, name): Side([*command, "--segments", str(arguments.segments)])
             for word in bodies for name, command in commands.items()}  # fmt: skip
    totals, forwards = ({cell: [] for cell in sides} for _ in range(2))
    for number in range(-1, arguments.rounds):  # one to warm up
        for (word, name), side in sides.items():
            total, forward = side.ask(word, word), side.ask("forward", "forward")
            if number >= 0:
                totals[word, name].append(total)
                forwards[word, name].append(forward)
    print(f"{arguments.segments} segments, {arguments.rounds} rounds; microseconds of processor time a segment beyond the "
          "plain chain\n")  # fmt: skip
    print("| a segment | | median | middle half | of it forward |\n|---|---|---:|---|---:|")
    for word, name in sides:
        values = totals[word, name]
        print(f"| {bodies[word]} | {name} | {median(values):.2f} | {spread(values, 2)} | "
              f"{median(forwards[word, name]):.2f} |")  # fmt: skip
    for side in sides.values():
        side.close()
    limited = median(totals["round", "dit-train"])
    if arguments.limit is not None and limited > arguments.limit:
        print(f"checkpoint_overhead: above {arguments.limit} microseconds", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
