"""Runs dit-train, dit-sample and dit-export in folders of their own, on 200 drawn images of 8x8 pixels in 4 classes."""

import functools
import json
import os
import random
import shutil
import struct
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

TRAIN = Path("dit-train")  # programs_test.py sets all three
SAMPLE = Path("dit-sample")
EXPORT = Path("dit-export")

IMAGES, SIDE, CLASSES = 200, 8, 4
SAMPLE_STEPS = 4
STEPS = 20
LAST = f"run/checkpoints/step-{STEPS:08}"
WHAT_TO_DO = (  # of weights that are not those of the model
    "  Allowed are the parameters of this model, all of them and no others, in floating point; name such "
    "weights, or set [model] as these were trained\n"
)
TENSOR_FILES = ("model.safetensors", "optimizer.safetensors", "ema.safetensors")

CONFIG = f"""\
[train]
out = "run"
steps = {STEPS}
threads = 1
log_every = 5

[data]
images = "images"
labels = "labels"
batch = 8

[model]
depth = 1
hidden = 16
heads = 2
patch = 4
image_size = {SIDE}
channels = 1
classes = {CLASSES}
learn_sigma = false

[optimizer]
lr = 1e-3

[sample]
steps = {SAMPLE_STEPS}
guidance = 2.0
per_class = 2

[policies.precision]
cpu = "fp32"
"""


def idx_images(count: int) -> bytes:
    """Grey noise with one bright quarter, which says the class."""
    draw = random.Random(1)
    pixels = bytearray()
    for label in (number % CLASSES for number in range(count)):
        for y in range(SIDE):
            for x in range(SIDE):
                bright = (y // 4, x // 4) == divmod(label, 2)
                pixels.append((200 if bright else 20) + draw.randrange(50))
    return struct.pack(">IIII", 0x803, count, SIDE, SIDE) + pixels


def idx_labels(count: int) -> bytes:
    return struct.pack(">II", 0x801, count) + bytes(number % CLASSES for number in range(count))


def write_inputs(folder: Path) -> None:
    (folder / "images").write_bytes(idx_images(IMAGES))
    (folder / "labels").write_bytes(idx_labels(IMAGES))
    (folder / "tiny.toml").write_text(CONFIG)


def execute(program: Path, folder: Path, *arguments: str, **options) -> subprocess.CompletedProcess:
    command = [str(program), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, **options)


def settings(values: dict[str, object]) -> list[str]:
    return [word for key, value in values.items() for word in ("--set", f"{key.replace('__', '.')}={value}")]


@functools.cache
def finished_run() -> tuple[tempfile.TemporaryDirectory, subprocess.CompletedProcess]:
    """A folder with inputs and a finished run, for tests to copy, and what the run printed."""
    folder = tempfile.TemporaryDirectory()
    write_inputs(Path(folder.name))
    result = execute(TRAIN, Path(folder.name), "--config", "tiny.toml", "--device", "cpu", "--verbose")
    assert result.returncode == 0, result.stderr
    return folder, result


def read_safetensors(path: Path) -> dict[str, tuple[list[int], bytes]]:
    """Shape and bytes of each tensor."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    header.pop("__metadata__", None)
    data = content[8 + length :]
    return {name: (entry["shape"], data[slice(*entry["data_offsets"])]) for name, entry in header.items()}


def skip_if_sanitized(program: Path) -> None:
    content = program.read_bytes()
    if b"__asan_init" in content or b"__tsan_init" in content:
        print("SKIPPED: sanitizers need the address space that this test takes away", flush=True)
        raise unittest.SkipTest("built with sanitizers")


def end(process: subprocess.Popen) -> None:
    if process.poll() is None:
        process.kill()
        process.communicate()


class ProgramTest(unittest.TestCase):
    """Each test has a folder with the inputs, which is the programs' working directory."""

    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        write_inputs(self.folder)

    def copy_finished_run(self) -> None:
        shutil.copytree(Path(finished_run()[0].name), self.folder, dirs_exist_ok=True)

    def start(self, *arguments: str, stdout: int = subprocess.PIPE) -> subprocess.Popen:
        """dit-train on tiny.toml, not waited for."""
        command = [str(TRAIN), "--config", "tiny.toml", "--device", "cpu", "--verbose", *arguments]
        process = subprocess.Popen(
            command, cwd=self.folder, stdout=stdout, stderr=subprocess.PIPE, text=True
        )
        self.addCleanup(end, process)  # before its folder goes, also where the test failed
        return process

    def wait_for(self, process: subprocess.Popen, path: str, content: str = "") -> None:
        """Until the running process has made `path`, with `content` in it."""
        made = self.folder / path
        deadline = time.monotonic() + 30
        while not (made.exists() and (not content or content in made.read_text())):
            self.assertIsNone(process.poll(), f"ended before it made {path}")
            self.assertLess(time.monotonic(), deadline, f"no {path} within 30 seconds")
            time.sleep(0.01)

    def wait_for_step(self, process: subprocess.Popen) -> None:
        self.wait_for(process, "run/log.jsonl", '"event":"step"')

    def train(self, *arguments: str, options: dict | None = None, **values) -> subprocess.CompletedProcess:
        """dit-train on tiny.toml; `values` become --set, with `__` for the dot."""
        given = ["--config", "tiny.toml", "--device", "cpu", "--verbose", *settings(values), *arguments]
        return execute(TRAIN, self.folder, *given, **(options or {}))

    def sample(self, *arguments: str, **options) -> subprocess.CompletedProcess:
        return execute(SAMPLE, self.folder, "--device", "cpu", *arguments, **options)

    def assert_done(self, result: subprocess.CompletedProcess) -> None:
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def assert_fails(self, result: subprocess.CompletedProcess, code: int, message: str) -> None:
        name = Path(result.args[0]).name
        self.assertEqual((result.returncode, result.stderr), (code, f"{name}: {message}\n"))

    def log(self, run: str = "run") -> list[dict]:
        return [json.loads(line) for line in (self.folder / run / "log.jsonl").read_text().splitlines()]

    def checkpoints(self, run: str = "run") -> list[str]:
        return sorted(os.listdir(self.folder / run / "checkpoints"))

    def assert_same_state(self, one: str, other: str) -> None:
        """Two checkpoints continue alike: bytes of all tensors, and all of state.json but the clock."""
        for name in TENSOR_FILES:
            self.assertEqual(
                (self.folder / one / name).read_bytes(), (self.folder / other / name).read_bytes(), name
            )
        states = [json.loads((self.folder / folder / "state.json").read_text()) for folder in (one, other)]
        for state in states:
            self.assertGreater(state.pop("seconds"), 0)
        self.assertEqual(states[0], states[1])
