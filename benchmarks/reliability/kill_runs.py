"""kill_runs.py DIT_TRAIN [--kills N] [--seed S] [--ranks W [--level parameters]]: training that is killed again and again
ends as training that is not.

A small run saves, samples and validates every few steps. It is killed (SIGKILL) after a time drawn anew each time, and
resumed, until it is over; then the next begins. After each kill the newest checkpoint, which the next start reads, must be
no older than the last that the log tells of, and at the end of each run weights, moments, averages and position
must be, bit for bit, those of a run that nobody killed. Exit code 1 where one differs.

With --ranks W ranks train, of which one is killed, drawn too; the others must end by themselves within distributed.timeout
and 5 s, with exit code 6, and all are started again as a launcher does it, with --resume auto. The run that nobody killed is one rank's.
"""

import argparse
import collections
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/integration/support"))
from programs import TENSOR_FILES, settings, write_inputs  # noqa: E402
from ranks import environment, free_port  # noqa: E402

STEPS = 60
SETTINGS = settings({
    "train.steps": STEPS, "train.log_every": 3, "train.checkpoint_every": 4, "train.sample_every": 10,
    "train.validate_every": 6, "data.validation": 20, "sample.steps": 2, "sample.per_class": 1,
})  # fmt: skip
TIMEOUT = 2  # seconds; distributed.timeout
LAST = f"checkpoints/step-{STEPS:08}"


class Different(Exception):
    pass


def events(run: Path) -> list[dict]:
    """Of the log, whose last line may be torn."""
    log = run / "log.jsonl"
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    found = []
    for line in lines:
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return found


def phase_of(run: Path) -> str:
    """Where the run was when it was killed."""
    if not (run / "log.jsonl").exists():
        return "before the first line of the log"
    names = [path.name for path in (run / "checkpoints").glob("*")] if (run / "checkpoints").exists() else []
    if any(name.endswith((".partial", ".replaced")) for name in names):
        return "in a save"
    if any(run.rglob("*.tmp")):
        return "writing samples, report or memory.json"
    seen = [event["event"] for event in events(run)]
    return {"start": "before the first step", "resume": "after a resume", "step": "in the steps", "end": "at the end",
            "checkpoint": "after a checkpoint", "sample": "after samples", "validate": "after a validation",
            }.get(seen[-1] if seen else "", "elsewhere")  # fmt: skip


def newest(run: Path) -> int:
    """Step of the newest checkpoint in its place; 0 without one."""
    steps = [int(path.name[5:13]) for path in run.glob("checkpoints/step-*") if len(path.name) in (13, 22)]
    return max(steps, default=0)


def state_of(run: Path) -> dict[str, object]:
    folder = run / LAST
    state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    state.pop("seconds")
    return {name: (folder / name).read_bytes() for name in TENSOR_FILES} | {"state": state}


class Killer:
    def __init__(self, program: Path, folder: Path, seed: int, ranks: int, level: str) -> None:
        self.program, self.folder, self.run, self.ranks, self.level = program, folder, folder / "run", ranks, level
        self.draw = random.Random(seed)
        self.phases: collections.Counter[str] = collections.Counter()
        self.kills = self.runs = self.anew = self.lost = self.steps_again = 0

    def start(self, ranks: int = 1) -> list[subprocess.Popen]:
        command = [self.program, "--config", "tiny.toml", "--device", "cpu", *SETTINGS]
        streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        if self.ranks > 1:
            words = {"train.accumulate": 2 * self.ranks, "data.batch": 4 * self.ranks, "distributed.timeout": TIMEOUT}
            words["policies.shard.level"] = f'"{self.level}"'
            command += [*settings(words), "--resume", "auto"]
            port = free_port()
            environments = [environment(rank, ranks, port) for rank in range(ranks)]
            return [subprocess.Popen(command, cwd=self.folder, env=one, **streams) for one in environments]
        resume = ["--resume", "latest"] if newest(self.run) else []
        if not resume and any(event["event"] == "step" for event in events(self.run)):
            shutil.rmtree(self.run)  # steps and no checkpoint: as the program says, the user's to remove
            self.anew += 1
        return [subprocess.Popen([*command, *resume], cwd=self.folder, **streams)]

    def finish(self, started: list[subprocess.Popen]) -> None:
        for process in started:
            _, error = process.communicate(timeout=120)
            if process.returncode != 0:
                raise Different(f"a run that was resumed ended with {process.returncode}: {error.decode()}")

    def end_others(self, others: list[subprocess.Popen]) -> None:
        for process in others:
            try:
                _, error = process.communicate(timeout=TIMEOUT + 5)
            except subprocess.TimeoutExpired as late:
                raise Different(f"{TIMEOUT + 5} s after a rank was killed another still ran") from late
            if process.returncode not in (0, 6):  # 0: the run was over
                raise Different(f"a rank that was not killed ended with {process.returncode}: {error.decode()}")

    def uninterrupted(self) -> tuple[dict[str, object], float]:
        begin = time.monotonic()
        self.finish(self.start())
        return state_of(self.run), time.monotonic() - begin

    def kill_after(self, seconds: float) -> bool:
        """False if the run was over before."""
        started = self.start(self.ranks)
        killed = started.pop(self.draw.randrange(self.ranks))
        try:
            killed.wait(seconds)
        except subprocess.TimeoutExpired:
            killed.kill()
            killed.communicate()
            self.end_others(started)
            return True
        self.finish([killed, *started])
        return False

    def check_after_kill(self) -> None:
        told = max((event["step"] for event in events(self.run) if event["event"] == "checkpoint"), default=0)
        there = newest(self.run)
        if there < told:
            self.lost += told - there
        self.steps_again += max((event["step"] for event in events(self.run) if event["event"] == "step"), default=0) - there

    def kill_runs(self, wanted: int) -> None:
        expected, seconds = self.uninterrupted()
        if self.ranks > 1:  # how long they take
            shutil.rmtree(self.run)
            begin = time.monotonic()
            self.finish(self.start(self.ranks))
            seconds = time.monotonic() - begin
        while self.kills < wanted:
            shutil.rmtree(self.run, ignore_errors=True)
            over = False
            while not over and self.kills < wanted:
                over = not self.kill_after(self.draw.uniform(0, 1.1 * seconds))
                if over:
                    break
                self.kills += 1
                self.phases[phase_of(self.run)] += 1
                self.check_after_kill()
            if not over:
                self.finish(self.start(self.ranks))
            self.runs += 1
            if state_of(self.run) != expected:
                raise Different(f"after {self.kills} kills a run ended in another state: {self.run}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("program", type=Path)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--level", default="optimizer", help="policies.shard.level")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_inputs(Path(folder))
        killer = Killer(arguments.program.resolve(), Path(folder), arguments.seed, arguments.ranks, arguments.level)
        try:
            killer.kill_runs(arguments.kills)
        except Different as error:
            sys.exit(f"kill_runs: {error}")
    print("| killed | times |\n|---|--:|")
    for phase, times in sorted(killer.phases.items()):
        print(f"| {phase} | {times} |")
    print(f"\n{killer.kills} kills in {killer.runs} runs of {STEPS} steps; all ended bit-equal to the run that nobody killed. "
          f"Steps lost beyond the last checkpoint: {killer.lost}; logged and trained again: {killer.steps_again}, of them by a run "
          f"that was begun anew, as it was killed before its first checkpoint: {killer.anew} times.")  # fmt: skip
    sys.exit(1 if killer.lost else 0)


if __name__ == "__main__":
    main()
