"""torchrun_kills.py DIT_TRAIN TORCHRUN [--kills N] [--seed S] [--ranks W]: ranks that torchrun starts again after each kill
end as one that nobody killed.

torchrun starts W ranks with --max-restarts N and --resume auto. One of them, drawn, is killed (SIGKILL) at an instant that is
drawn too, from its start on; the others end by themselves, and torchrun starts all again, N times. At the end weights,
moments and averages must be, bit for bit, those of one rank that nobody killed. Exit code 1 where they differ, where the
run was over before N kills, or where less than half of the starts found a checkpoint."""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/integration/support"))
from programs import TENSOR_FILES, settings, write_inputs  # noqa: E402
from ranks import free_port, processes_of  # noqa: E402

LIFE = 4  # seconds that a start lives at most; on a busy machine it takes 2 to its first step
WAIT = 60  # for ranks to come, and for the run's end


def job(steps: int, ranks: int) -> list[str]:
    return settings({
        "train.steps": steps, "train.accumulate": ranks, "data.batch": 4 * ranks, "train.checkpoint_every": 5,
        "train.log_every": 20, "schedule.kind": '"constant"', "train.keep_checkpoints": 2, "distributed.timeout": 10,
    })  # fmt: skip


def tensors_of(run: Path, steps: int) -> dict[str, bytes]:
    return {name: (run / f"checkpoints/step-{steps:08}" / name).read_bytes() for name in TENSOR_FILES}


def new_ranks(launcher: subprocess.Popen, before: set[int], ranks: int) -> list[int]:
    """Once all of a start are there; none where the launcher has ended."""
    until = time.monotonic() + WAIT
    while launcher.poll() is None:
        found = [one for one in processes_of(launcher.pid) if one not in before]
        if len(found) == ranks:
            return found
        if time.monotonic() > until:
            sys.exit(f"torchrun_kills: {WAIT} s after a kill the ranks were not there again")
        time.sleep(0.02)
    return []


def is_alive(pid: int) -> bool:
    """No zombie, whose end nobody has seen yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def resumes(run: Path) -> int:
    """Starts that went on from a checkpoint."""
    return sum(json.loads(line)["event"] == "resume" for line in (run / "log.jsonl").read_text().splitlines())


def kill_ranks(launcher: subprocess.Popen, arguments: argparse.Namespace) -> int:
    """How many were killed."""
    draw, seen, killed = random.Random(arguments.seed), set(), 0
    while killed < arguments.kills:
        found = new_ranks(launcher, seen, arguments.ranks)
        if not found:
            break
        seen |= set(found)
        time.sleep(draw.uniform(0, LIFE))
        one = draw.choice(found)
        if not is_alive(one):  # the run is over
            break
        os.kill(one, signal.SIGKILL)
        killed += 1
    return killed


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("program", type=Path)
    parser.add_argument("torchrun", type=Path)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_inputs(folder)
        command = [str(arguments.program.resolve()), "--config", "tiny.toml", "--device", "cpu"]
        command += job(arguments.steps, arguments.ranks)
        variables = os.environ | {"OMP_NUM_THREADS": "1"}
        quiet = {"cwd": folder, "env": variables, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run(command, check=True, **quiet)
        expected = tensors_of(folder / "run", arguments.steps)
        shutil.rmtree(folder / "run")
        launch = ["--no-python", "--nproc-per-node", str(arguments.ranks), "--master-port", str(free_port())]
        launch += ["--max-restarts", str(arguments.kills), "--monitor-interval", "0.1"]
        begun = time.monotonic()
        launcher = subprocess.Popen([str(arguments.torchrun.absolute()), *launch, *command, "--resume", "auto"], **quiet)
        try:
            killed = kill_ranks(launcher, arguments)
            code = launcher.wait(timeout=20 * WAIT)
        finally:
            launcher.kill()
        if code != 0:
            sys.exit(f"torchrun_kills: after {killed} kills torchrun ended with {code}")
        resumed = resumes(folder / "run")
        same = tensors_of(folder / "run", arguments.steps) == expected
        print(f"{killed} kills of one of {arguments.ranks} ranks under torchrun in {time.monotonic() - begun:.0f} s, {arguments.steps} steps, "
              f"{resumed} starts from a checkpoint: "
              f"{'bit-equal to' if same else 'DIFFERENT from'} one rank that nobody killed")  # fmt: skip
        sys.exit(0 if same and killed == arguments.kills and resumed > killed // 2 else 1)


if __name__ == "__main__":
    main()
