"""quickstart_test.py ROOT OUT: examples/quickstart trains for 20 seconds and leaves a whole run in OUT."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

PNG = b"\x89PNG\r\n\x1a\n"


def require(condition: bool, message: str) -> None:
    if not condition:
        sys.exit(f"quickstart_test: {message}")


def check_output(output: str, out: Path) -> Path:
    """The figures that the run ends with, and the place of the sample grid."""
    for pattern in (r"final loss +\d+\.\d+", r"\d+ images/s", r"peak memory +\S+ \S+"):
        require(re.search(pattern, output) is not None, f"the output does not end with: {pattern}")
    lines = output.rstrip("\n").split("\n")
    require(lines[-2] == f"Run folder:  {out}", f"last but one line: {lines[-2]}")
    require(lines[-1].startswith(f"Sample grid: {out}/samples/"), f"last line: {lines[-1]}")
    return Path(lines[-1].removeprefix("Sample grid: "))


def check_memory(memory: dict) -> None:
    """In a shipped configuration every byte has an owner, in every phase, and the parts are the whole."""
    require(memory["version"] == 1, "memory.json: version")
    require(len(memory["phases"]) >= 7, "memory.json: phases are missing")
    for phase in memory["phases"]:
        where = f"memory.json, phase {phase['name']}"
        unowned = phase["items"].get("other", {})
        require(not unowned, f"{where}: bytes without owner, by operator: {unowned}")
        require(sum(phase["categories"].values()) == phase["peak_bytes"], f"{where}: the parts are not the whole")


def check_run(out: Path, grid: Path) -> None:
    require(grid.read_bytes().startswith(PNG), f"{grid} is not a PNG file")
    require((out / "config.toml").is_file(), "config.toml is missing")
    check_memory(json.loads((out / "memory.json").read_text()))
    events = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    require(events[-1]["event"] == "end", "log.jsonl does not end with the event \"end\"")
    steps = [event for event in events if event["event"] == "step"]
    losses = [event["loss"] for event in steps]
    require(len(losses) >= 1, "log.jsonl has no event \"step\"")
    wait = steps[-1]["wait_seconds"] / steps[-1]["seconds"]
    require(wait < 0.01, f"{100 * wait:.2f} % of the training time is spent waiting for data; at most 1 % is allowed")
    # How many there are in 20 seconds is a matter of the machine; a single one shows no trend.
    require(len(losses) == 1 or losses[-1] < losses[0], f"the loss does not fall: {losses}")
    require(any((out / "checkpoints").iterdir()), "checkpoints/ is empty")


def main(root: Path, out: Path) -> None:
    shutil.rmtree(out, ignore_errors=True)
    command = [str(root / "examples/quickstart"), "--seconds", "20", "--out", str(out)]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd="/")
    print(result.stdout)
    require(result.returncode == 0, f"exit code {result.returncode}")
    check_run(out, check_output(result.stdout, out))


if __name__ == "__main__":
    require(len(sys.argv) == 3, "usage: quickstart_test.py ROOT OUT")
    main(Path(sys.argv[1]), Path(sys.argv[2]))
