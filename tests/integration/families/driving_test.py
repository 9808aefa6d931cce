"""driving_test.py DIT_TRAIN DIT_SAMPLE DRAW_SCENES SHOW_TRAJECTORIES: the driving model from drawn worlds to pictures
and figures, with a model as small as it can be, and of each shipped configuration a narrower one."""

import functools
import io
import json
import math
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import tomllib
import unittest
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from programs import read_safetensors  # noqa: E402

TRAIN = SAMPLE = DRAW = SHOW = Path()
TRAINING, HELD_OUT, STEPS, FUTURE, PREDICTED = 8, 5, 6, 30, 2
SIZES = {"past": 11, "future": FUTURE, "neighbors": 4, "predicted-neighbors": PREDICTED, "static-objects": 2,
         "lanes": 6, "route-lanes": 3, "polygons": 2, "line-strings": 4}  # fmt: skip
CONFIG = f"""\
[train]
model = "diffusion_planner"
out = "run"
steps = {STEPS}
threads = 1
checkpoint_every = 3
[diffusion_planner]
hidden_dim = 16
num_heads = 2
encoder_mixer_depth = 1
encoder_fusion_depth = 1
decoder_depth = 1
mixer_tokens = 8
mixer_channels = 8
time_len = {SIZES["past"]}
future_len = {FUTURE}
agent_num = {SIZES["neighbors"]}
predicted_neighbor_num = {PREDICTED}
static_objects_num = {SIZES["static-objects"]}
lane_num = {SIZES["lanes"]}
route_num = {SIZES["route-lanes"]}
polygon_num = {SIZES["polygons"]}
line_string_num = {SIZES["line-strings"]}
[diffusion_planner.loss]
ego_horizon = {FUTURE}
[data]
frames = "scenes/train.json"
held_out = "scenes/held_out.json"
batch = 2
[optimizer]
lr = 1e-3
clip = 5.0
[schedule]
kind = "constant"
[policies.precision]
cpu = "fp32"
"""


def execute(program: Path, folder: Path, *arguments: object) -> subprocess.CompletedProcess:
    command = [str(program), *(str(argument) for argument in arguments)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


def done(result: subprocess.CompletedProcess) -> str:
    assert (result.returncode, result.stderr) == (0, ""), (result.returncode, result.stderr)
    return result.stdout


@functools.cache
def finished_run() -> tempfile.TemporaryDirectory:
    """A folder with frames and a finished run, for tests to copy."""
    folder = tempfile.TemporaryDirectory()
    here = Path(folder.name)
    sizes = [word for name, size in SIZES.items() for word in (f"--{name}", size)]
    done(execute(DRAW, here, "--out", "scenes", "--frames", TRAINING, "--held-out", HELD_OUT, "--pictures", 0, *sizes))
    (here / "tiny.toml").write_text(CONFIG)
    done(execute(TRAIN, here, "--config", "tiny.toml", "--device", "cpu", "--verbose"))
    return folder


def floats_of_npz(path: Path, key: str) -> tuple[tuple[int, ...], list[float]]:
    """Shape and values of one float32 array."""
    with zipfile.ZipFile(path) as archive:
        file = io.BytesIO(archive.read(f"{key}.npy"))
    assert file.read(8) == b"\x93NUMPY\1\0"
    header = file.read(struct.unpack("<H", file.read(2))[0]).decode()
    assert "'<f4'" in header and "'fortran_order': False" in header, header
    shape = tuple(int(size) for size in re.search(r"\(([\d, ]*)\)", header)[1].replace(" ", "").split(",") if size)
    return shape, list(struct.unpack(f"<{math.prod(shape)}f", file.read()))


def floats_of_tensor(path: Path, name: str) -> tuple[list[int], list[float]]:
    shape, data = read_safetensors(path)[name]
    return shape, list(struct.unpack(f"<{math.prod(shape)}f", data))


class Driving(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name).resolve()
        shutil.copytree(finished_run().name, self.folder, dirs_exist_ok=True)

    def train(self, *settings: str, more: tuple[str, ...] = ()) -> str:
        words = [word for setting in settings for word in ("--set", setting)]
        return done(execute(TRAIN, self.folder, "--config", "tiny.toml", "--device", "cpu", "--verbose", *words, *more))

    def sample(self, *arguments: object) -> subprocess.CompletedProcess:
        return execute(SAMPLE, self.folder, "--device", "cpu", *arguments)

    def drawn(self, out: str, *arguments: object, frames: str = "scenes/held_out.json") -> bytes:
        self.message = done(self.sample("--frames", frames, "--out", out, *arguments))
        return (self.folder / out / "trajectories.safetensors").read_bytes()

    def show(self, *arguments: object, frames: str = "scenes/held_out.json") -> subprocess.CompletedProcess:
        file = "drawn/trajectories.safetensors"
        return execute(SHOW, self.folder, "--frames", frames, "--trajectories", file, *arguments)

    def assert_refused(self, result: subprocess.CompletedProcess, code: int, message: str) -> None:
        name = Path(result.args[0]).name
        self.assertEqual((result.returncode, result.stderr), (code, f"{name}: {message}\n"))

    def test_trajectories_of_all_frames(self):
        first = self.drawn("drawn", "--checkpoint", "run")
        last = f"run/checkpoints/step-{STEPS:08}"
        self.assertEqual(
            self.message.splitlines()[-1], f"{HELD_OUT} frames with the EMA weights of {last}: drawn"
        )
        self.assertIn("SYNTHETIC: the samples were made up by a program\n", self.message)
        file = self.folder / "drawn/trajectories.safetensors"
        shapes = {name: shape for name, (shape, _) in read_safetensors(file).items()}
        self.assertEqual(
            shapes,
            {
                "trajectories": [HELD_OUT, 1 + PREDICTED, FUTURE, 4],
                "ego_future": [HELD_OUT, FUTURE, 4],
                "turn_indicator": [HELD_OUT, 5],
            },
        )
        # The run drew of the same frames, as it ended.
        of_run = self.folder / f"run/samples/step-{STEPS:08}.safetensors"
        self.assertEqual(read_safetensors(of_run)["ego_future"], read_safetensors(file)["ego_future"])
        frames = json.loads((self.folder / "drawn/frames.json").read_text())
        listed = json.loads((self.folder / "scenes/held_out.json").read_text())
        self.assertEqual(frames, [str(self.folder / "scenes" / frame) for frame in listed])
        _, truth = floats_of_tensor(file, "ego_future")
        for number, frame in enumerate(frames):
            _, poses = floats_of_npz(Path(frame), "ego_agent_future")
            for step in range(FUTURE):
                x, y, heading = poses[3 * step : 3 * step + 3]
                begin = 4 * (FUTURE * number + step)
                self.assertEqual(truth[begin : begin + 2], [x, y])
                for seen, wanted in zip(truth[begin + 2 : begin + 4], (math.cos(heading), math.sin(heading))):
                    self.assertAlmostEqual(seen, wanted, delta=1e-6)
        self.assertEqual(self.drawn("again", "--checkpoint", last), first)
        self.assertEqual(self.drawn("file", "--weights", f"{last}/ema.safetensors"), first)
        self.assertEqual(self.drawn("listed", "--checkpoint", "run", frames="drawn/frames.json"), first)

    def test_weights_and_steps_decide(self):
        first = self.drawn("drawn", "--checkpoint", "run")
        self.assertEqual(self.drawn("ten", "--checkpoint", "run", "--steps", 10), first)
        for number, other in enumerate((["--raw"], ["--steps", 3])):
            self.assertNotEqual(self.drawn(f"other{number}", "--checkpoint", "run", *other), first)
        self.assertNotEqual(self.drawn("older", "--checkpoint", "run/step-3"), first)

    def test_a_run_that_was_stopped_continues_bit_for_bit(self):
        self.train("train.out=parts", "train.steps=3")
        self.train("train.out=parts", more=("--resume", "latest"))
        last = f"checkpoints/step-{STEPS:08}"
        for name in ("model", "optimizer", "ema"):
            one, other = (self.folder / run / last / f"{name}.safetensors" for run in ("run", "parts"))
            self.assertEqual(one.read_bytes(), other.read_bytes(), name)
        self.assertEqual(self.drawn("one", "--checkpoint", "run"), self.drawn("other", "--checkpoint", "parts"))

    def errors_in_python(self) -> dict[str, tuple[float, float]]:
        """ADE and FDE, from the files alone."""
        (count, actors, steps, _), values = floats_of_tensor(
            self.folder / "drawn/trajectories.safetensors", "trajectories"
        )
        sums = {"model": [0.0, 0.0], "constant velocity": [0.0, 0.0]}
        for number, frame in enumerate(json.loads((self.folder / "drawn/frames.json").read_text())):
            _, truth = floats_of_npz(Path(frame), "ego_agent_future")
            _, state = floats_of_npz(Path(frame), "ego_current_state")
            for step in range(steps):
                begin = 4 * steps * actors * number + 4 * step
                seconds = 0.1 * (step + 1)
                places = {
                    "model": values[begin : begin + 2],
                    "constant velocity": (state[0] + seconds * state[4], state[1] + seconds * state[5]),
                }
                for name, (x, y) in places.items():
                    distance = math.hypot(x - truth[3 * step], y - truth[3 * step + 1])
                    sums[name][0] += distance / steps
                    sums[name][1] += distance if step == steps - 1 else 0
        return {name: (average / count, final / count) for name, (average, final) in sums.items()}

    def test_figures_are_those_of_the_files(self):
        self.drawn("drawn", "--checkpoint", "run")
        lines = done(self.show("--out", "seen", "--pictures", 2)).splitlines()
        self.assertEqual(lines[0], f"the ego vehicle's path over {FUTURE / 10:.1f} s, mean of {HELD_OUT} frames")
        self.assertEqual(lines[1].split(), ["ADE,", "m", "FDE,", "m"])
        wanted = self.errors_in_python()
        self.assertEqual(len(lines), 2 + len(wanted))
        for line, (name, (average, final)) in zip(lines[2:], wanted.items()):
            self.assertTrue(line.startswith(name), line)
            seen = [float(word) for word in line.removeprefix(name).split()]
            self.assertAlmostEqual(seen[0], average, delta=0.0011)
            self.assertAlmostEqual(seen[1], final, delta=0.0011)
            self.assertGreater(average, 0.01)
        pictures = sorted((self.folder / "seen").iterdir())
        self.assertEqual([path.name for path in pictures], ["000000.png", "000001.png"])
        for path in pictures:
            self.assertTrue(path.read_bytes().startswith(b"\x89PNG"))
        self.assert_refused(
            self.show("--out", "seen", "--pictures", 1),
            2,
            "--out seen: holds 000000.png already; name another folder",
        )

    def test_better_than_constant_velocity_or_not(self):
        self.drawn("drawn", "--checkpoint", "run")
        wanted = self.errors_in_python()
        self.assertGreater(wanted["model"][0], wanted["constant velocity"][0])  # of a model that learnt next to nothing
        done(self.show("--pictures", 0))
        self.assert_refused(
            self.show("--pictures", 0, "--require-better"),
            1,
            "the model's ADE is not below that of constant velocity",
        )
        self.put_the_truth_in()
        self.assertEqual(done(self.show("--pictures", 0, "--require-better")).splitlines()[2].split()[1:], ["0.000"] * 2)

    def put_the_truth_in(self) -> None:
        """Makes the ego vehicle's predicted path the true one."""
        file = self.folder / "drawn/trajectories.safetensors"
        content = bytearray(file.read_bytes())
        (length,) = struct.unpack("<Q", content[:8])
        header = json.loads(content[8 : 8 + length])
        start = {name: 8 + length + header[name]["data_offsets"][0] for name in ("trajectories", "ego_future")}
        path = 4 * 4 * FUTURE
        for number in range(HELD_OUT):
            to = start["trajectories"] + number * (1 + PREDICTED) * path
            begin = start["ego_future"] + number * path
            content[to : to + path] = content[begin : begin + path]
        file.write_bytes(content)

    def test_other_frames_are_refused(self):
        self.drawn("drawn", "--checkpoint", "run")
        advice = "; give the frames that the trajectories were drawn of, by frames.json beside "
        advice += "drawn/trajectories.safetensors"
        self.assert_refused(
            self.show("--pictures", 0, frames="scenes/train.json"),
            4,
            f"--frames scenes/train.json: {TRAINING} frames, and {HELD_OUT} have trajectories{advice}",
        )
        turned = json.loads((self.folder / "scenes/held_out.json").read_text())[::-1]
        (self.folder / "scenes/turned.json").write_text(json.dumps(turned))
        self.assert_refused(
            self.show("--pictures", 0, frames="scenes/turned.json"),
            4,
            f"--frames scenes/turned.json: scenes/{turned[0]} has another future than the trajectories' frame{advice}",
        )
        weights = f"run/checkpoints/step-{STEPS:08}/ema.safetensors"
        result = execute(SHOW, self.folder, "--frames", "scenes", "--trajectories", weights, "--pictures", 0)
        self.assert_refused(
            result,
            4,
            f'--trajectories {weights}: has no tensor "trajectories"; give a file that dit-sample --frames wrote',
        )

    def test_shipped_configurations_train_narrower_on_frames_of_their_sizes(self):
        narrow = ["hidden_dim=16", "num_heads=2", "encoder_mixer_depth=1", "encoder_fusion_depth=1", "decoder_depth=1"]
        narrow = [f"diffusion_planner.{setting}" for setting in narrow]
        narrow += ["train.out=run", "train.threads=1", "data.batch=2", "policies.precision.cpu=fp32"]
        narrow += ["train.steps=2", "sample.frames=1"]
        paths = sorted((Path(__file__).parents[3] / "configs").glob("diffusion_planner_*.toml"))
        self.assertEqual(len(paths), 4)
        for path in paths:
            with self.subTest(path.name), tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                sizes = path.stem.removeprefix("diffusion_planner_").upper().replace("QUICKSTART", "reduced")
                drawn = ("--out", "scenes", "--preset", sizes, "--frames", 2, "--held-out", 1, "--pictures", 0)
                done(execute(DRAW, folder, *drawn))
                data = [f"data.frames={folder}/scenes/train.json", f"data.held_out={folder}/scenes/held_out.json"]
                config = tomllib.loads(path.read_text())
                train = config["train"]
                keys = [key for key in ("seconds", "checkpoint_every", "validate_every") if key in train]
                data += [f"train.{key}=default" for key in keys]
                data += ["schedule.warmup=1"] if "warmup" in config["schedule"] else []
                words = [word for setting in narrow + data for word in ("--set", setting)]
                output = done(execute(TRAIN, folder, "--config", path, "--device", "cpu", "--verbose", *words))
                self.assertIn(" after 2 steps, ", output)
                self.assertTrue(list((folder / "run/samples").glob("*.safetensors")))

    def test_what_dit_sample_refuses(self):
        run = ("--checkpoint", "run")
        self.assert_refused(
            self.sample(*run, "--classes", "0", "--out", "o.png"),
            2,
            "--classes 0: the model of run is a driving model, which has none; draw the trajectories of frames with "
            "--frames LIST --out FOLDER",
        )
        self.assert_refused(
            self.sample(*run, "--frames", "gone.json", "--out", "o"),
            4,
            "--frames: gone.json: no such file or folder; give the folder of the frames, or a JSON list of them",
        )
        self.drawn("drawn", *run)
        self.assert_refused(
            self.sample(*run, "--frames", "scenes/held_out.json", "--out", "drawn"),
            2,
            "--out drawn: holds trajectories.safetensors already; name another folder",
        )
        self.assertEqual([path.name for path in self.folder.glob("o*")], [])

    def test_a_signal_ends_it_between_two_batches_with_nothing_written(self):
        self.train("train.out=single", "train.steps=1", "data.batch=1", "sample.frames=0")
        main, terminal = pty.openpty()
        self.addCleanup(os.close, main)
        arguments = "--checkpoint single --frames scenes/held_out.json --out drawn --steps 400"
        command = [str(SAMPLE), "--device", "cpu", *arguments.split(" ")]
        process = subprocess.Popen(command, cwd=self.folder, stdout=terminal, stderr=subprocess.PIPE, text=True)
        os.close(terminal)
        output = b""
        while f"sampling {round(100 / HELD_OUT)} %".encode() not in output:
            output += os.read(main, 65536)
        process.send_signal(signal.SIGINT)
        self.assertEqual((process.wait(timeout=60), process.stderr.read()), (5, ""))
        process.stderr.close()
        while not output.endswith(b"written\r\n"):
            output += os.read(main, 65536)
        self.assertTrue(output.endswith(b"stopped by a signal; nothing was written\r\n"), output)
        self.assertFalse((self.folder / "drawn").exists())


if __name__ == "__main__":
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    TRAIN, SAMPLE, DRAW, SHOW = (Path(path).resolve() for path in sys.argv[1:5])
    unittest.main(argv=[sys.argv[0], *sys.argv[5:]])
