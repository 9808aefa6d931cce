"""Ranks that are processes of a test, which train together."""

import hashlib
import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import programs
from programs import ProgramTest, TENSOR_FILES, end, settings

# 200 images: an epoch is eight steps of 24 and one of 8, whose micro-batches are four of twelve.
JOB = {
    "data__batch": 24,
    "data__drop_last": "false",
    "train__accumulate": 12,
    "train__steps": 20,
    "train__log_every": 1,
    "train__checkpoint_every": 7,
    "train__keep_checkpoints": 9,
    "model__class_dropout": 0.3,
    "optimizer__clip": 0.5,
}
LAST = "checkpoints/step-00000020"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def environment(rank: int, ranks: int, port: int) -> dict[str, str]:
    """As a launcher gives it to a rank of this host, with a thread each."""
    if ranks == 1:
        return os.environ | {"OMP_NUM_THREADS": "1"}
    own = {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": rank, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return os.environ | {name: str(value) for name, value in own.items()} | {"OMP_NUM_THREADS": "1"}


def processes_of(launcher: int) -> list[int]:
    """The ranks that a launcher has started."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text().rsplit(")", 1)[1].split()[1])
            command = status.with_name("cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if parent == launcher and command.split(b"\0")[0].endswith(b"dit-train"):
            found.append(int(status.parent.name))
    return sorted(found)


class RanksTest(ProgramTest):
    DEVICE = "cpu"

    def start_rank(
        self,
        rank: int,
        ranks: int,
        port: int,
        *arguments: str,
        config: str = "tiny.toml",
        folder: Path | None = None,
        prepare: Callable[[], None] | None = None,
    ) -> subprocess.Popen:
        process = subprocess.Popen(
            [str(programs.TRAIN), "--config", config, "--device", self.DEVICE, *arguments],
            cwd=folder or self.folder,
            env=environment(rank, ranks, port),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=prepare,
        )
        self.addCleanup(end, process)
        return process

    def start_ranks(self, ranks: int, *arguments: str, config: str = "tiny.toml", **values) -> list[subprocess.Popen]:
        port = free_port()
        words = [*settings(values), *arguments]
        return [self.start_rank(rank, ranks, port, *words, config=config) for rank in range(ranks)]

    def finish(self, started: list[subprocess.Popen], timeout: float = 100) -> list[tuple[int, str, str]]:
        """Exit code, output and errors of each."""
        results = []
        for process in started:
            output, errors = process.communicate(timeout=timeout)
            results.append((process.returncode, output, errors))
        return results

    def run_ranks(self, ranks: int, *arguments: str, **values) -> str:
        """What the leader says of a run that comes to its end, and nobody else does."""
        results = self.finish(self.start_ranks(ranks, *arguments, **values))
        self.assertEqual([(code, errors) for code, _, errors in results], [(0, "")] * ranks)
        self.assertEqual([output for _, output, _ in results[1:]], [""] * (ranks - 1))
        return results[0][1]

    def hashes(self, run: str, checkpoint: str = LAST) -> dict[str, str]:
        """SHA-256 of each file of tensors."""
        files = {name: self.folder / run / checkpoint / name for name in TENSOR_FILES}
        return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}

    def losses(self, run: str) -> list[tuple[int, float, float]]:
        return [(one["step"], one["loss"], one["gradient_norm"]) for one in self.log(run) if one["event"] == "step"]

    def validated(self, run: str) -> list[tuple[int, float]]:
        return [(one["step"], one["loss"]) for one in self.log(run) if one["event"] == "validate"]

    def assert_same_at_any_number(self, numbers: list[int], **values) -> None:
        job = JOB | values
        self.assert_done(self.train(train__out="alone", **job))
        alone, losses, validated = self.hashes("alone"), self.losses("alone"), self.validated("alone")
        self.assertEqual(len(losses), 20)
        self.assertEqual(len(validated), 20 // job["train__validate_every"] if "train__validate_every" in job else 0)
        for ranks in numbers:
            run = f"ranks{ranks}"
            self.run_ranks(ranks, train__out=run, **job)
            self.assertEqual(self.losses(run), losses, run)
            self.assertEqual(self.validated(run), validated, run)
            self.assertEqual(self.hashes(run), alone, run)

    def launch(self, *command: str, **variables) -> None:
        self.train(train__out="alone", **(JOB | {"train__steps": 3}))
        words = settings(JOB | {"train__steps": 3})
        result = subprocess.run(
            [*command, str(programs.TRAIN), "--config", "tiny.toml", "--device", "cpu", *words],
            cwd=self.folder,
            env=os.environ | {"OMP_NUM_THREADS": "1"} | {name: str(value) for name, value in variables.items()},
            capture_output=True,
            text=True,
            timeout=100,
        )
        self.assertEqual(result.returncode, 0, result.stderr)
        last = "checkpoints/step-00000003"
        self.assertEqual(self.hashes("run", last), self.hashes("alone", last))
