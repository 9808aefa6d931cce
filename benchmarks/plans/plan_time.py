"""plan_time.py EMPTY DIT_PLAN CONFIG [--runs N]: time and memory of one plan and of all combinations of policies.

Each run is a process of its own. EMPTY, a program that loads LibTorch and returns, is run in turns with them, so that
what slows the machine meets all three alike. Its end, with LibTorch's destructors, counts; dit-plan leaves without. Prints medians; wall time, processor time and the largest memory.
"""

import argparse
import os
import statistics
import subprocess
import time
from pathlib import Path


def run(command: list[str]) -> tuple[float, float, float]:
    """Seconds of wall time, seconds of processor time, MiB of real memory."""
    begin = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    seconds = time.monotonic() - begin
    if status != 0:
        raise SystemExit(f"{' '.join(command)} ended with status {status}")
    return seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("empty")
    parser.add_argument("plan")
    parser.add_argument("config")
    parser.add_argument("--runs", type=int, default=20, help="of each; default 20")
    arguments = parser.parse_args()
    job = [arguments.plan, "--config", arguments.config]
    commands = {"empty process": [arguments.empty], "one plan": job, "all combinations": [*job, "--table"]}
    seen = {name: [] for name in commands}
    for _ in range(arguments.runs):
        for name, command in commands.items():
            seen[name].append(run(command))
    empty = [statistics.median(column) for column in zip(*seen["empty process"], strict=True)]
    print(f"{Path(arguments.config).name}, {arguments.runs} runs of each in turns, medians\n")
    print("| | wall s | above empty | processor s | above empty | largest MiB |\n|---|---:|---:|---:|---:|---:|")
    for name, runs in seen.items():
        wall, processor, memory = (statistics.median(column) for column in zip(*runs, strict=True))
        print(f"| {name} | {wall:.3f} | {wall - empty[0]:.3f} | {processor:.3f} | {processor - empty[1]:.3f} | "
              f"{memory:.0f} |")


if __name__ == "__main__":
    main()
