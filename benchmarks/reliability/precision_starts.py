"""precision_starts.py DIT_TRAIN [--starts 50] CONFIG [--set KEY=VALUE ...]: whether starts on one machine take one precision.

Starts a run of one step from nothing, again and again, and reads which precision it took on the CPU and by which
measurement. Prints how many took each, how the ratio of the fastest steps is spread, and how many starts would have taken
bf16 under other margins. Exit code 1 where more than one start in fifty differs from the others.
"""

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

CHOICE = re.compile(r'^cpu = "(\w+)"  # measured: bf16 ([\d.]+) ms, fp32 ([\d.]+) ms a step(?: of one sample)? \(fastest of (\d+); bf16 ahead in (\d+)\)',
                    re.MULTILINE)  # fmt: skip
MARGINS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25)
AHEAD = 0.8  # of the pairs, as bf16_is_faster() wants it


def start(program: str, config: str, settings: list[str]) -> tuple[str, float, float]:
    """The precision, the fastest step in bf16 by the fastest in fp32, and the share of pairs in which bf16 was ahead."""
    with tempfile.TemporaryDirectory() as folder:
        changes = [*settings, f"train.out={folder}/run", "train.steps=1", "train.seconds=default", "train.epochs=default",
                   "schedule.warmup=0", "log.report=false",
                   "train.sample_every=default", "train.validate_every=default", "sample.per_class=0"]  # fmt: skip
        command = [program, "--config", config, "--device", "cpu"]
        command += [word for change in changes for word in ("--set", change)]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode != 0:
            sys.exit(result.stderr)
        found = CHOICE.search(Path(folder, "run/config.toml").read_text())
    if found is None:
        sys.exit("nothing was measured: is policies.precision.cpu = \"probe\" in this configuration?")
    taken, bf16, fp32, pairs, ahead = found.groups()
    return taken, float(bf16) / float(fp32), int(ahead) / int(pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("config")
    parser.add_argument("--starts", type=int, default=50)
    parser.add_argument("--set", action="append", default=[])
    arguments = parser.parse_args()
    seen = [start(arguments.program, arguments.config, arguments.set) for _ in range(arguments.starts)]
    taken = [one[0] for one in seen].count("bf16")
    ratios, ahead = sorted(one[1] for one in seen), [one[2] for one in seen]
    print(f"{arguments.config} {' '.join(arguments.set)}: bf16 in {taken}, fp32 in {len(seen) - taken} of {len(seen)} starts")
    print(f"fastest step bf16 / fp32: median {statistics.median(ratios):.3f}, {ratios[0]:.3f} to {ratios[-1]:.3f}; "
          f"bf16 ahead in {statistics.median(ahead):.0%} of the pairs, {min(ahead):.0%} to {max(ahead):.0%}")  # fmt: skip
    for margin in MARGINS:
        count = sum(ratio < 1 - margin and share >= AHEAD for _, ratio, share in seen)
        print(f"  margin {margin:.0%}: bf16 in {count}")
    sys.exit(1 if min(taken, len(seen) - taken) * 50 > len(seen) else 0)


if __name__ == "__main__":
    main()
