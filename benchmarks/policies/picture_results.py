"""picture_results.py BUILD [OUT.json]: plans and measures what picture.py draws.

BUILD is a build folder with memory-policies, batch-at-budget and dit-plan; OUT.json is benchmarks/results/policies.json
unless given. Sizes are bytes throughout; "peak" is of the tensors of the whole job, in the phase that holds most.
`measure_picture` builds the programs first.
"""

import datetime
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks/results/policies.json"
JOB = "benchmarks/policies/picture.toml"
MODEL, BATCH, BUDGETS_GB = "DiT-S/2", 8, (1, 2)
OFF = {"precision": "policies.precision.enabled=false", "attention": "policies.attention.enabled=false",
       "ema": "policies.ema.device=same", "checkpoint": "policies.checkpoint.enabled=false"}
NO_FUSION = "policies.fusion.enabled=false"  # in all of it: the picture is of the other four
FUSION = 2  # its place among the five


class Programs:
    """Runs the programs of a build folder and notes the commands as a user would write them."""

    def __init__(self, build: Path):
        self.build = build
        self.commands: list[str] = []

    def run(self, program: str, *arguments: str, note: bool = True) -> subprocess.CompletedProcess:
        command = [str(self.build / program), *arguments]
        if note:
            self.commands.append(" ".join(["build/release/" + program, *arguments]))
        print(" ".join(command), file=sys.stderr, flush=True)
        result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if result.returncode != 0:
            raise SystemExit(f"{' '.join(command)} ended with {result.returncode}: {result.stderr}")
        return result

    def plan(self, *arguments: str, settings: tuple[str, ...]) -> dict | list:
        sets = [word for setting in settings for word in ("--set", setting)]
        words = ["--config", JOB, "--device", "cpu", *sets, *arguments, "--json"]
        return json.loads(self.run("dit-plan", *words).stdout)


def peak(report: dict) -> dict:
    """Of memory.json, or of a plan, which has its fields: bytes at the peak, by category."""
    highest = report["peak"]
    return {"bytes": highest["bytes"], "phase": highest["phase"], "categories": highest["categories"]}


def precision_for(instructions: list[str]) -> str:
    """What "on" means: bf16 where the processor multiplies it. By trial steps it would depend on other work."""
    return "bf16" if any("bf16" in name for name in instructions) else "fp32"


def switches(plan: dict) -> tuple[bool, ...]:
    return tuple(policy["active"] for policy in plan["policies"])


def without_fusion(on: tuple) -> tuple:
    return on[:FUSION] + on[FUSION + 1 :]


def peaks(programs: Programs, precision: str) -> list[dict]:
    """A row for each of the sixteen combinations."""
    with tempfile.TemporaryDirectory() as folder:
        job = ("--model", MODEL, "--batch", str(BATCH), "--device", "cpu", "--precision", precision)
        arguments = (*job, "--steps", "1")
        programs.commands.append(f"build/release/benchmarks/memory-policies {' '.join(arguments)} --reports FOLDER")
        programs.run("benchmarks/memory-policies", *arguments, "--reports", folder, note=False)
        measured = {"".join(without_fusion(tuple(path.stem))): peak(json.loads(path.read_text()))
                    for path in Path(folder).glob("*.json") if path.stem[FUSION] == "0"}
    table = programs.plan("--table", settings=(f"data.batch={BATCH}", f"policies.precision.cpu={precision}"))
    planned = {without_fusion(switches(plan)): peak(plan) for plan in table if not switches(plan)[FUSION]}
    rows = []
    for on in sorted(planned):
        alike = (on[0] and precision == "bf16", *on[1:])  # a plan's switch is bf16 always
        name = "".join(str(int(is_on)) for is_on in on)
        rows.append({**dict(zip(OFF, on, strict=True)), "planned": planned[alike], "measured": measured[name]})
    calibrate(programs, precision, rows)
    return rows


def calibrate(programs: Programs, precision: str, rows: list[dict]) -> None:
    """Where plan and run differ, the plan once more, with the scratch of kernels measured beforehand."""
    for row in rows:
        if row["planned"]["bytes"] == row["measured"]["bytes"]:
            continue
        off = tuple(setting for policy, setting in OFF.items() if not row[policy])
        settings = (f"data.batch={BATCH}", f"policies.precision.cpu={precision}", NO_FUSION, *off)
        row["calibrated"] = peak(programs.plan("--calibration", "here", settings=settings))


def planned_batch(programs: Programs, gigabytes: int, settings: tuple[str, ...]) -> dict:
    settings = (*settings, NO_FUSION)
    largest = programs.plan("--max-batch", f"{gigabytes}GB", settings=settings)["largest_batch"]
    return {name: largest[name] for name in ("batch", "peak_bytes", "next_batch", "next_peak_bytes")}


def batches(programs: Programs, precision: str) -> list[dict]:
    """For each budget, without policies and with all, the largest batch."""
    result = programs.run("benchmarks/batch-at-budget", "--models", MODEL, "--gb",
                          ",".join(str(gigabytes) for gigabytes in BUDGETS_GB), "--bytes", "--precision", precision)
    side = r"\| (\d+), (\d+) \| (\d+) exceeds[^|]*"  # batch, peak, next batch
    found = re.findall(r"\| (\d+) GB " + side + side, result.stdout)
    assert [int(row[0]) for row in found] == list(BUDGETS_GB), result.stdout
    rows = []
    for row in found:
        gigabytes, *numbers = (int(cell) for cell in row)
        for policies, settings, (batch, peak_bytes, following) in (
            ("none", tuple(OFF.values()), numbers[:3]), ("all", (f"policies.precision.cpu={precision}",), numbers[3:])):
            rows.append({"budget_bytes": gigabytes * 10**9, "policies": policies,
                         "planned": planned_batch(programs, gigabytes, settings),
                         "measured": {"batch": batch, "peak_bytes": peak_bytes, "next_batch": following}})
    return rows


def first_match(pattern: str, file: str) -> str:
    found = re.search(pattern, Path(file).read_text(), re.M)
    return found[1].strip() if found else "unknown"


def hardware() -> dict:
    flags = set(first_match(r"^(?:flags|Features)\s*:(.*)$", "/proc/cpuinfo").split())
    return {"processor": first_match(r"^model name\s*:(.*)$", "/proc/cpuinfo"),
            "cores": len(os.sched_getaffinity(0)),
            "memory_gib": round(int(first_match(r"^MemTotal:\s*(\d+)", "/proc/meminfo")) / 2**20),
            "instructions": sorted(flags & {"avx2", "avx512f", "avx512_bf16", "amx_bf16", "bf16"})}


def commit() -> str:
    """Of the checkout; the results themselves may differ from it."""
    git = ["git", "-C", str(ROOT)]

    def said(*words: str) -> str:
        return subprocess.run([*git, *words], check=True, capture_output=True, text=True).stdout.strip()

    changed = said("status", "--porcelain", "--untracked-files=no", "--", ".", ":!benchmarks/results")
    return said("rev-parse", "--short", "HEAD") + (" and changes" if changed else "")


def main() -> None:
    if len(sys.argv) not in (2, 3):
        raise SystemExit(__doc__)
    out = Path(sys.argv[2]) if len(sys.argv) == 3 else RESULTS
    programs = Programs(Path(sys.argv[1]).resolve())
    machine = hardware()
    precision = precision_for(machine["instructions"])
    results = {
        "command": "benchmarks/policies/measure_picture",
        "commit": commit(),
        "date": datetime.date.today().isoformat(),
        "hardware": machine,
        "unit": "bytes",
        "job": {"model": MODEL, "latents": "4x32x32", "batch": BATCH, "device": "cpu", "precision_on": precision},
        "commands": programs.commands,
        "peaks": peaks(programs, precision),
        "batches": batches(programs, precision),
    }
    out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
