"""day.py --build BUILD --commit NAME [--minutes N] [--part NAME]... [--again] [--out FOLDER]: the parts of parts.py one
after the other, each in its time box; FOLDER/results.md and FOLDER/state.json are written after each."""

import argparse
import dataclasses
import datetime
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from parts import PARTS, ROOT, Part  # noqa: E402

MIN_SECONDS = 20  # a part that has less is not begun
STATE = "state.json"


@dataclasses.dataclass
class Result:
    """What a part came to: "passed", "failed", "stopped" at the end of its time, or "left out"."""

    end: str
    seconds: float
    output: str
    machine: str
    commit: str


def output_of(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def machine() -> str:
    """The GPU, its memory and driver in one line; "" where there is none."""
    fields = "name,memory.total,driver_version"
    return output_of(["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader", "--id=0"])


def missing(part: Part, build: Path) -> str:
    """What the part needs and this machine or build lacks; "" if nothing."""
    for tool in part.tools:
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    for file in part.built:
        if not (build / file).exists():
            return f"the build has no {file}: run benchmarks/gpu_day --prepare with nvcc 12.8 or later in the path"
    if part.torch and not output_of([sys.executable, "-c", "import torch; print(torch.cuda.is_available() or '')"]):
        return f"the torch of {sys.executable} knows no CUDA device"
    return ""


def run_command(command: list[str], log: Path, seconds: float) -> tuple[str, str]:
    """How it ended, and what it printed; its whole process group is ended when the time is over."""
    with log.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            end = "passed" if process.wait(timeout=max(seconds, 0.001)) == 0 else f"failed: exit code {process.returncode}"
        except subprocess.TimeoutExpired:
            end = "stopped"
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)  # also what it left behind
            except ProcessLookupError:
                pass
            process.wait()
    return end, log.read_text(errors="replace")


def run_part(part: Part, build: Path, out: Path, seconds: float) -> tuple[str, str]:
    lacking = missing(part, build)
    if lacking:
        return "left out", lacking

    def short(text: str) -> str:
        """Without the folders of this machine."""
        for folder in (out, build, ROOT):
            text = text.replace(f"{folder}/", "").replace(f"{folder} ", "")
        return text.replace(sys.executable, "python")

    begin = time.monotonic()
    ends, texts = [], []
    for number, command in enumerate(part.commands(build, out)):
        shown = " ".join(short(word) for word in command)
        left = seconds - (time.monotonic() - begin)
        if left <= 0:
            ends.append("stopped")
            texts.append(f"{shown}\nnot begun: the time was over")
            continue
        end, text = run_command(command, out / f"{part.name}-{number}.log", left)
        if end == "passed" and part.never and part.never in text:
            end = f"failed: {part.never} in its output"
        ends.append(end)
        texts.append(f"$ {shown}\n{short(part.shorten(text)).strip()}" + ("" if end == "passed" else f"\n{end}"))
    worst = next((end for end in ends if end.startswith("failed")), "stopped" if "stopped" in ends else "passed")
    return worst, "\n\n".join(texts)


def page(results: dict[str, Result]) -> str:
    lines = [f"# GPU: {datetime.date.today()}", ""]
    for name in sorted({f"{result.machine}; commit {result.commit}" for result in results.values()}):
        lines.append(f"Hardware: {name}.")
    lines += [f"{os.cpu_count()} cores. One part after the other, each in its time box; nothing else used the device.", ""]
    lines += ["| part | ended | seconds |", "|---|---|---:|"]
    known = [part for part in PARTS if part.name in results]
    lines += [f"| {part.name} | {results[part.name].end} | {results[part.name].seconds:.0f} |" for part in known]
    for part in known:
        result = results[part.name]
        lines += ["", f"## {part.title}", "", "```", result.output, "```"]
    return "\n".join(lines) + "\n"


def stays(known: Result | None, machine: str, commit: str) -> bool:
    """Whether a part need not run again: of changed files nobody knows which they were."""
    return known is not None and known.end == "passed" and (known.machine, known.commit) == (machine, commit) and "dirty" not in commit


def read_state(out: Path) -> dict[str, Result]:
    file = out / STATE
    if not file.exists():
        return {}
    return {name: Result(**fields) for name, fields in json.loads(file.read_text()).items()}


def write(out: Path, results: dict[str, Result]) -> None:
    for name, text in ((STATE, json.dumps({k: dataclasses.asdict(v) for k, v in results.items()}, indent=1)),
                       ("results.md", page(results))):
        unfinished = out / f".{name}"
        unfinished.write_text(text)
        unfinished.rename(out / name)


def main() -> int:
    names = [part.name for part in PARTS]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--commit", required=True)
    parser.add_argument("--minutes", type=float, default=25)
    parser.add_argument("--part", action="append", choices=[*names, "help"])
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("runs/gpu_day"))
    arguments = parser.parse_args()
    if "help" in (arguments.part or []):
        for part in PARTS:
            print(f"{part.name:12} {part.title}, at most {part.seconds} s")
        return 0
    end = time.monotonic() + 60 * arguments.minutes
    here = machine()
    if not here:
        print("gpu_day: nvidia-smi names no GPU; run it where there is one", file=sys.stderr)
        return 1
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    results = read_state(out)
    failed = []
    for part in PARTS:
        if arguments.part and part.name not in arguments.part:
            continue
        if stays(results.get(part.name), here, arguments.commit) and not arguments.again:
            print(f"gpu_day: {part.name}: has its result", flush=True)
            continue
        seconds = min(part.seconds, end - time.monotonic())
        if seconds < min(MIN_SECONDS, part.seconds):
            print(f"gpu_day: {part.name}: not begun, the time is over", flush=True)
            failed.append(part.name)
            continue
        print(f"gpu_day: {part.name}: {part.title}, at most {seconds:.0f} s", flush=True)
        begin = time.monotonic()
        ended, output = run_part(part, arguments.build.resolve(), out, seconds)
        took = time.monotonic() - begin
        results[part.name] = Result(ended, took, output, here, arguments.commit)
        write(out, results)
        print(f"gpu_day: {part.name}: {ended}, {took:.0f} s", flush=True)
        if ended not in ("passed", "left out"):
            failed.append(part.name)
    print(f"gpu_day: {out / 'results.md'}" + (f"; not passed: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
