"""ranks_accuracy.py PROGRAM WORLDS [arguments of PROGRAM]: random jobs on several ranks, each rank's plan beside its run.

PROGRAM is build/release/benchmarks/plan-accuracy, WORLDS for example 2,3,4: case i runs on the number that is i-th in turns.
Exit code 1 if a storage of any rank that outlives its operator, or what it sends in a step, is off by a byte."""

import argparse
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/integration/support"))
from ranks import environment, free_port  # noqa: E402


def compare(program: str, ranks: int, words: list[str]) -> list[tuple[int, str]]:
    """Exit code and what it says, of each rank."""
    port = free_port()
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    started = [
        subprocess.Popen([program, *words], env=environment(rank, ranks, port), **streams) for rank in range(ranks)
    ]
    said = [process.communicate()[0] for process in started]
    return [(process.returncode, text) for process, text in zip(started, said)]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("worlds")
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--family", default="dit")
    parser.add_argument("--level", default="optimizer")
    given = parser.parse_args()
    worlds = [int(one) for one in given.worlds.split(",")]
    storages, wrong = dict.fromkeys(worlds, 0), []
    for case in range(given.first, given.first + given.cases):
        ranks = worlds[case % len(worlds)]
        words = ["--case", str(case), "--seed", given.seed, "--family", given.family, "--level", given.level]
        for rank, (code, text) in enumerate(compare(given.program, ranks, words)):
            storages[ranks] += sum(map(int, re.findall(r"(\d+) storages, ", text)))
            if code == 0:
                continue
            wrong.append(case)
            print(f"case {case}, rank {rank} of {ranks}: exit code {code}\n{text}", flush=True)
    print("\n| ranks | cases | storages of all ranks that outlive their operator |\n|---:|---:|---:|")
    for ranks in worlds:
        count = sum(worlds[case % len(worlds)] == ranks for case in range(given.first, given.first + given.cases))
        print(f"| {ranks} | {count} | {storages[ranks]} |")
    print(f"\ncases that differ: {len(set(wrong))} {sorted(set(wrong)) or ''}".rstrip())
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
