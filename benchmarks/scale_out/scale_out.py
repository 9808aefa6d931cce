"""scale_out.py PROGRAM COUNTING: ranks that train one model, ours beside PyTorch's, one step of each in turns.

PROGRAM is build/release/benchmarks/scale-out, COUNTING the library beside it that counts the bytes of CPU tensors in both. All
train the same DiT on 4x32x32 latents in fp32 with fused AdamW and LibTorch's fused attention, on Gloo, one thread a rank; ours
without the other policies. State is what is alive between steps, the peak the highest of all measured steps, both of the rank
that has most; sent is what the loopback device carried in a step, of all ranks together."""

import argparse
import sys
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks/support"), str(ROOT / "tests/integration/support")]
from ranks import environment, free_port  # noqa: E402
from step_pairs import MIN_PAIRS, Side, spread, times  # noqa: E402

WAYS = {
    "ours, replicated": ["PROGRAM"],
    "ours, `policies.shard`": ["PROGRAM", "--divided"],
    "ours, `level = \"parameters\"`": ["PROGRAM", "--divided", "--weights"],
    "DistributedDataParallel": ["RIVAL", "ddp"],
    "ZeroRedundancyOptimizer": ["RIVAL", "zero"],
    "FSDP2 (`fully_shard`)": ["RIVAL", "fsdp2"],
}


def carried() -> int:
    return int(Path("/sys/class/net/lo/statistics/tx_bytes").read_text())


class Ranks:
    """Processes that make a step together."""

    def __init__(self, command: list[str], ranks: int):
        port = free_port()
        # None is ready before all have come.
        self.sides = [Side(command, environment(rank, ranks, port), waits=False) for rank in range(ranks)]
        for side in self.sides:
            side.wait()

    def all(self, request: str, word: str) -> list[float]:
        for side in self.sides:
            side.send(request)
        return [side.answer(word) for side in self.sides]

    def step(self) -> float:
        return max(self.all("step", "ms"))

    def close(self) -> None:
        for side in self.sides:
            side.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("counting")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--model", default="DiT-S/4")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--warmup", type=int, default=3)
    given = parser.parse_args()
    if given.rounds < MIN_PAIRS:
        sys.exit(f"scale_out: --rounds {given.rounds}: at least {MIN_PAIRS}, for a median that means something")
    words = ["--model", given.model, "--batch", str(given.batch), "--accumulate", str(given.accumulate)]
    starts = {
        "PROGRAM": [given.program],
        "RIVAL": [sys.executable, str(Path(__file__).parent / "rivals.py")],
    }
    runs = {}
    for name, (start, *way) in WAYS.items():
        counting = [given.counting] if start == "RIVAL" else []
        runs[name] = Ranks([*starts[start], *way, *counting, *words], given.ranks)
    took: dict[str, list[float]] = {name: [] for name in runs}
    sent: dict[str, list[int]] = {name: [] for name in runs}
    for turn in range(-given.warmup, given.rounds):
        if turn == 0:
            for ranks in runs.values():
                ranks.all("reset", "reset")
        order = list(runs.items())
        first = turn % len(order)  # whoever follows finds the other's caches
        for name, ranks in order[first:] + order[:first]:
            before = carried()
            ms = ranks.step()
            if turn >= 0:
                took[name].append(ms)
                sent[name].append(carried() - before)
    (size,) = set(runs["ours, replicated"].all("parameters", "parameters"))
    print(
        f"{given.ranks} ranks, {given.model}, P = {size / 1e6:.1f} MB of trained parameters, batches of {given.batch} in "
        f"{given.accumulate} micro-batches, {given.rounds} steps of each in turns\n"
    )
    print("| | state | peak | sent a step | ms a step | beside DistributedDataParallel |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, ranks in runs.items():
        ratios = [one / other for one, other in zip(took[name], took["DistributedDataParallel"])]
        state, peak = (max(ranks.all(what, what)) / size for what in ("state", "peak"))
        print(
            f"| {name} | {state:.3f} P | {peak:.3f} P | {median(sent[name]) / size:.2f} P | {times(took[name])} | "
            f"{median(ratios):.3f} ({spread(ratios, 3)}) |"
        )
    for ranks in runs.values():
        ranks.close()


if __name__ == "__main__":
    main()
