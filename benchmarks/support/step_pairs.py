"""What comparisons of step times share: two processes that make one step each in turns, and what is said of them."""

import math
import os
import subprocess
import sys
from pathlib import Path
from statistics import median, quantiles

MIN_PAIRS = 21  # with fewer the bound is an outlier
PROGRAM = Path(sys.argv[0]).stem  # whose errors these are


class Side:
    """A process that makes one step when it is asked to."""

    def __init__(self, command: list[str], environment: dict[str, str] | None = None, waits: bool = True):
        # As dit-train sets it for itself: threads that wait for each other give up their core.
        environment = {"GOMP_SPINCOUNT": "2000", **(environment or os.environ)}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        if waits:
            self.wait()

    def wait(self) -> None:
        self.threads = self.answer("ready")

    def answer(self, word: str) -> float:
        line = self.process.stdout.readline().split()
        if len(line) != 2 or line[0] != word:
            sys.exit(f"{PROGRAM}: {self.process.args[0]}: expected '{word} NUMBER', got {line}")
        return float(line[1])

    def send(self, request: str) -> None:
        self.process.stdin.write(request + "\n")
        self.process.stdin.flush()

    def ask(self, request: str, word: str) -> float:
        self.send(request)
        return self.answer(word)

    def step(self) -> float:
        return self.ask("step", "ms")

    def operators(self) -> dict[str, int]:
        """Calls of each aten operator in one more step."""
        self.send("operators")
        counts = {}
        for line in self.process.stdout:
            name, count = line.rsplit(maxsplit=1)
            if name == "end":
                break
            if name.startswith("aten::"):
                counts[name] = int(count)
        return counts

    def close(self) -> None:
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


def upper_bound(values: list[float]) -> float:
    """One-sided upper 95 % bound of the median, free of assumptions about the distribution: the smallest order
    statistic k of n with P(Binomial(n, 1/2) >= k) <= 0.05."""
    n = len(values)
    tail, k = 0.0, n + 1
    while k > 0 and tail + math.comb(n, k - 1) / 2**n <= 0.05:
        k -= 1
        tail += math.comb(n, k) / 2**n
    return sorted(values)[k - 1]


def alternate(ours: Side, theirs: Side, pairs: int, warmup: int) -> tuple[list[float], list[float]]:
    times = ([], [])
    for pair in range(-warmup, pairs):
        # Who goes first changes, as whoever follows finds the other's caches and clock rate.
        sides = [(0, ours), (1, theirs)] if pair % 2 == 0 else [(1, theirs), (0, ours)]
        for index, side in sides:
            ms = side.step()
            if pair >= 0:
                times[index].append(ms)
    return times


def spread(values: list[float], digits: int) -> str:
    low, _, high = quantiles(values, n=4)
    return f"{low:.{digits}f} to {high:.{digits}f}"


def times(values: list[float]) -> str:
    return f"{median(values):.1f} ({spread(values, 1)})"


def print_operators(title: str, ours: Side, theirs: Side) -> None:
    a, b = ours.operators(), theirs.operators()
    differ = [f"{name} {a.get(name, 0)}/{b.get(name, 0)}" for name in sorted(a | b) if a.get(name) != b.get(name)]
    print(
        f"{title}: {sum(a.values())} calls of operators in a step, PyTorch {sum(b.values())}; "
        f"where they differ: {', '.join(differ)}",
        file=sys.stderr,
    )
