"""quickstart_test.py ROOT OUT: examples/quickstart trains for 20 seconds and leaves a whole run in OUT."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

POLICIES = ("precision", "attention", "fusion", "ema", "checkpoint")
PNG = b"\x89PNG\r\n\x1a\n"
MIN_STEPS = 400


def require(condition: bool, message: str) -> None:
    if not condition:
        sys.exit(f"quickstart_test: {message}")


def check_output(output: str, out: Path) -> Path:
    """The figures that the run ends with, and the place of the sample grid."""
    for pattern in (r"final loss +\d+\.\d+", r"\d+ images/s", r"peak memory +\S+ \S+"):
        require(re.search(pattern, output) is not None, f"the output does not end with: {pattern}")
    lines = output.rstrip("\n").split("\n")
    require(re.search(r"(?m)^planned peak \S+ \S+ in \w+ on \S+; ", output) is not None, "no line of the planned peak")
    require("planned against measured, bytes of tensors on " in output, "no table of planned against measured")
    require(lines[-2] == f"Run folder:  {out}", f"last but one line: {lines[-2]}")
    require(lines[-1].startswith(f"Sample grid: {out}/samples/"), f"last line: {lines[-1]}")
    return Path(lines[-1].removeprefix("Sample grid: "))


def check_policy_lines(output: str, memory: dict) -> None:
    """The last lines before the two of the run folder name each policy: on or off, its bytes and why; memory.json
    holds the same."""
    title = r"(?m)^.*by how much each .*lowers the peak of forward and backward\n"
    block = re.search(title + r"((?:  .*\n)+)(?:SYNTHETIC: .*\n)?Run folder: ", output)
    require(block is not None, "before the run folder there is no table of what each policy saved")
    lines = re.sub(r"\n {10,}", " ", block[1]).splitlines()  # a long reason goes on below itself
    require([row["name"] for row in memory["policies"]] == list(POLICIES), "memory.json: policies")
    require(len(lines) == len(POLICIES), f"one line a policy is expected: {lines}")
    for line, row in zip(lines, memory["policies"]):
        found = re.fullmatch(r"  (\w+) +(on|off) +(-?[\d.]+ (?:B|KiB|MiB|GiB)|\?|-)   (\S.*)", line)
        require(found is not None, f"a policy's line: {line}")
        name, state, size, reason = found.groups()
        require(name == row["name"], f"{name} stands where {row['name']} is expected")
        require((state == "on") == row["active"], f"{name} is {state}, in memory.json {row['active']}")
        require(reason.endswith(row["reason"]), f"{name}: {reason}; in memory.json {row['reason']}")
        require(row["reason"] != "", f"{name}: no reason")
        if not row["active"]:
            require(size == "-" and row["lowers_peak_by"] is None, f"{name}: bytes of a policy that is off")
            continue
        require(row["lowers_peak_by"] is not None and row["note"] == "", f"{name}: not measured, {row['note']}")
        require(size == readable_bytes(row["lowers_peak_by"]), f"{name}: {size}, {row['lowers_peak_by']} bytes")
    rows = {row["name"]: row for row in memory["policies"]}
    # What is certain of the shipped configuration on a CPU; precision is decided by a measurement there.
    require(rows["attention"]["active"] and rows["attention"]["lowers_peak_by"] > 0, "attention is not on")
    require(rows["checkpoint"]["active"] and rows["checkpoint"]["lowers_peak_by"] > 1 << 20, "checkpointing saves")
    if memory["device"] == "cpu":
        require(rows["ema"]["lowers_peak_by"] == 0, "on the CPU the EMA has nothing to move")
        require("nothing to move" in rows["ema"]["reason"], rows["ema"]["reason"])


def readable_bytes(count: int) -> str:
    """As dit-train prints it; a minus sign where a policy raises the peak."""
    sign, size = ("-" if count < 0 else ""), abs(count)
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if size >= 1024**power:
            return f"{sign}{size / 1024**power:.{2 if power == 3 else 1}f} {unit}"
    return f"{sign}{size} B"


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
    check_policy_lines(result.stdout, json.loads((out / "memory.json").read_text()))
    train_on(root, out)


def last_step(out: Path) -> int:
    return max(int(folder.name.removeprefix("step-")) for folder in (out / "checkpoints").iterdir())


def train_on(root: Path, out: Path) -> None:
    """How much 20 seconds teach is a matter of the machine; whoever judges the run asks for what MIN_STEPS teach."""
    seconds = 20
    while last_step(out) < MIN_STEPS:
        seconds += 20
        require(seconds <= 200, f"{last_step(out)} steps in {seconds - 20} seconds; {MIN_STEPS} are needed")
        command = [root / "build/release/dit-train", "--config", out / "config.toml", "--resume", "latest"]
        command += ["--set", f"train.seconds={seconds}"]
        require(subprocess.run(command, cwd=root).returncode == 0, "the run cannot be continued")


if __name__ == "__main__":
    require(len(sys.argv) == 3, "usage: quickstart_test.py ROOT OUT")
    main(Path(sys.argv[1]), Path(sys.argv[2]))
