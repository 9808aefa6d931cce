"""vggt_test.py DIT_TRAIN DIT_SAMPLE DIT_EXPORT DIT_PLAN: VGGT's programs as they are typed: a run on scenes, cameras, depths
and points of pictures, plans by frames, and what is refused, each with its exit code and the words that say what to do."""

import json
import math
import os
import re
import struct
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from png import read_png, write_png  # noqa: E402
from programs import execute, read_safetensors  # noqa: E402

TRAIN, SAMPLE, EXPORT, PLAN = (Path(one).resolve() for one in sys.argv[1:5])
CONFIGURATION, MEMORY, DATA = 2, 3, 4
HEIGHT, WIDTH = 56, 84

CONFIG = """\
[train]
model = "vggt"
threads = 1
out = "run"
[data]
batch = 1
[vggt]
image = 56
patch = 14
hidden = 64
heads = 4
encoder = 3
depth = 6
registers = 4
trunk = 2
features = 32
widths = [16, 24, 32, 32]
taps = [1, 2, 4, 5]
[vggt.data]
height = 56
width = 84
frames = 2
scenes = "scenes"
[policies.precision]
enabled = false
"""


def picture(path: Path, width: int = WIDTH, height: int = HEIGHT, seed: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    values = bytes((x * 5 + y * 3 + c * 70 + seed * 31) % 256 for y in range(height) for x in range(width) for c in range(3))
    write_png(path, width, height, values, 3)


def npy(shape: tuple[int, ...], values: bytes) -> bytes:
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + values


def read_npy(path: Path) -> tuple[tuple[int, ...], tuple[float, ...]]:
    content = path.read_bytes()
    (length,) = struct.unpack("<H", content[8:10])
    shape = tuple(int(one) for one in re.search(r"'shape': \(([^)]*)\)", content[10 : 10 + length].decode())[1].split(",") if one.strip())
    return shape, struct.unpack(f"<{math.prod(shape)}f", content[10 + length :])


def scene(folder: Path, frames: int = 3) -> None:
    for i in range(frames):
        picture(folder / "frames" / f"{i}.png", seed=i)
    depths = [1 + (i % 7) / 7 for i in range(frames * HEIGHT * WIDTH)]
    (folder / "depth.npy").write_bytes(npy((frames, HEIGHT, WIDTH), struct.pack(f"<{len(depths)}f", *depths)))
    cameras = [{"rotation": [[1, 0, 0], [0, 1, 0], [0, 0, 1]], "translation": [i / 10, 0, 0], "focal": [70, 70]} for i in range(frames)]
    (folder / "cameras.json").write_text(json.dumps({"frames": cameras}))


def safetensors(tensors: dict[str, tuple[list[int], bytes]]) -> bytes:
    header, begin = {}, 0
    for name, (shape, content) in tensors.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, begin + len(content)]}
        begin += len(content)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(content for _, content in tensors.values())


def one_line(text: str) -> str:
    return " ".join(text.split())


class Vggt(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder_guard = tempfile.TemporaryDirectory()
        cls.root = Path(cls.folder_guard.name)
        (cls.root / "tiny.toml").write_text(CONFIG)
        for i, (width, height) in enumerate([(120, 80), (120, 80), (160, 80), (60, 200)]):
            picture(cls.root / "pictures" / f"{i}.png", width, height, seed=i)
        for name in ("a", "b"):
            scene(cls.root / "scenes" / name)
        result = execute(TRAIN, cls.root, "--config", "tiny.toml", "--set", "train.steps=2", "--set", "policies.checkpoint.enabled=true",
                         "--device", "cpu")  # fmt: skip
        assert result.returncode == 0, result.stderr

    @classmethod
    def tearDownClass(cls):
        cls.folder_guard.cleanup()

    def setUp(self):
        self.out = self.root / f"out_{self._testMethodName}"

    def sample(self, *arguments: str, code: int = 0) -> str:
        result = execute(SAMPLE, self.root, *arguments, "--device", "cpu")
        self.assertEqual(result.returncode, code, result.stderr)
        return result.stderr if code else result.stdout + result.stderr

    def plan(self, *arguments: str, code: int = 0) -> str:
        result = execute(PLAN, self.root, "--config", "tiny.toml", *arguments)
        self.assertEqual(result.returncode, code, result.stderr)
        return result.stderr if code else result.stdout

    def check_points(self, path: Path, wanted: int) -> None:
        head, body = path.read_bytes().split(b"end_header\n", 1)
        count = int(re.search(rb"element vertex (\d+)", head)[1])
        self.assertEqual(len(body), 15 * count)
        self.assertEqual(count, wanted)

    def test_a_run_s_model_gives_cameras_depths_and_points_of_pictures(self):
        text = self.sample("--checkpoint", "run", "--images", "pictures", "--out", str(self.out))
        self.assertIn("4 pictures of 56 x 56; 3 of them lower, with white above and below", text)
        self.assertIn("policies.checkpoint.enabled = true is for training; nothing is trained here", text)
        cameras = json.loads((self.out / "cameras.json").read_text())
        self.assertNotIn("note", cameras)
        self.assertEqual([one["file"] for one in cameras["frames"]], ["0.png", "1.png", "2.png", "3.png"])
        for one in cameras["frames"]:
            for a in range(3):
                for b in range(3):
                    dot = sum(x * y for x, y in zip(one["rotation"][a], one["rotation"][b]))
                    self.assertAlmostEqual(dot, float(a == b), places=6)
        shape, depths = read_npy(self.out / "depth.npy")
        self.assertEqual(shape, (4, 56, 56))
        self.assertTrue(all(math.isfinite(one) and one > 0 for one in depths))
        scales = json.loads((self.out / "depth" / "scales.json").read_text())
        for i in range(4):
            width, height, rows = read_png(self.out / "depth" / f"{i}.png")
            self.assertEqual((width, height), (56, 56))
            frame = depths[i * 56 * 56 : (i + 1) * 56 * 56]
            self.assertAlmostEqual(scales[f"{i}.png"]["white"], min(frame), places=6)
            self.assertAlmostEqual(scales[f"{i}.png"]["black"], max(frame), places=6)
        sure = self.confidences("depth_confidence.npy")
        self.assertTrue(all(math.isfinite(one) and one > 1 for frame in sure for one in frame))
        # Of the white above and below lower pictures there are no points: 120 x 80 fills 42 of 56 rows, 160 x 80 28.
        # Nothing can be placed behind a camera that sees no angle.
        placed = [frame for frame, camera in zip(sure, cameras["frames"]) if all(camera["focal"])]
        seen = [one for frame, rows in zip(sure, (42, 42, 28, 56)) if frame in placed for one in self.middle(frame, rows)]
        median = sorted(seen)[(len(seen) - 1) // 2]
        self.check_points(self.out / "points.ply", sum(one >= median for one in seen))
        self.assertFalse((self.out / ".unfinished").exists())

    def confidences(self, name: str) -> list[tuple[float, ...]]:
        shape, values = read_npy(self.out / name)
        pixels = shape[1] * shape[2]
        return [values[i * pixels : (i + 1) * pixels] for i in range(shape[0])]

    @staticmethod
    def middle(frame: tuple[float, ...], rows: int) -> tuple[float, ...]:
        first = (56 - rows) // 2
        return frame[first * 56 : (first + rows) * 56]

    def test_cameras_that_see_no_angle_have_no_points_and_are_told(self):
        text = self.sample("--config", "tiny.toml", "--weights", "random", "--images", "pictures", "--out", str(self.out))
        cameras = json.loads((self.out / "random_cameras.json").read_text())["frames"]
        without = sum(not all(one["focal"]) for one in cameras)
        self.assertGreater(without, 0)
        if without < 4:
            self.assertIn(f"{without} of 4 frames have no points: a focal length of their cameras is 0", text)
        else:
            self.assertIn("no points.ply: a focal length of every camera is 0", text)
        self.assertEqual((self.out / "random_points.ply").exists(), without < 4)

    def test_names_that_are_alike_or_no_text(self):
        folder = self.root / "names"
        for name in (b"a.png", b"a.jpg", b"a.jpg.png", b"\xff.png"):
            picture(folder / "x.png")
            (folder / "x.png").rename(Path(os.fsdecode(os.fsencode(folder) + b"/" + name)))
        self.sample("--checkpoint", "run", "--images", "names", "--as-is", "--out", str(self.out), "--heads", "depth")
        names = sorted(os.fsencode(one.name) for one in (self.out / "depth").iterdir())
        self.assertEqual(names, [b"a.jpg.png", b"a.jpg.png.png", b"a.png.png", b"scales.json", b"\xff.png.png"])
        self.assertEqual(len(json.loads((self.out / "depth" / "scales.json").read_text())), 4)

    def test_what_else_is_in_the_folder_stays(self):
        unfinished = self.out / ".unfinished"  # of a process that was killed
        unfinished.mkdir(parents=True)
        (unfinished / "depth.npy").write_bytes(b"half")
        (self.out / "notes.txt").write_text("mine")
        for i in range(3):
            picture(self.root / "halves" / f"{i}.png", seed=i)
        content = (self.root / "halves" / "2.png").read_bytes()
        (self.root / "halves" / "2.png").write_bytes(content[: len(content) // 2])
        self.sample("--checkpoint", "run", "--images", "halves", "--as-is", "--out", str(self.out), code=DATA)
        self.assertEqual([one.name for one in self.out.iterdir()], ["notes.txt"])
        self.sample("--checkpoint", "run", "--images", "pictures", "--out", str(self.out), "--heads", "camera")
        self.assertEqual(sorted(one.name for one in self.out.iterdir()), ["cameras.json", "notes.txt"])

    def test_a_confidence_that_no_point_has_is_refused_and_the_rest_is_there(self):
        text = self.sample("--checkpoint", "run", "--images", "pictures", "--out", str(self.out), "--confidence", "1e9", code=CONFIGURATION)
        self.assertIn("--confidence 1000000000: no point is above it, the surest has", text)
        self.assertEqual(sorted(one.name for one in self.out.iterdir()), ["cameras.json", "depth", "depth.npy", "depth_confidence.npy"])

    def test_chunks_change_no_depth(self):
        self.sample("--checkpoint", "run", "--images", "pictures", "--out", str(self.out / "a"), "--heads", "depth")
        text = (next((self.root / "run/checkpoints").iterdir()) / "config.toml").read_text()
        (self.root / "chunks.toml").write_text(text.replace("[policies.inference]", "[policies.inference]\nframe_chunk = 1\ntoken_chunk = 9\nhead_chunk = 1"))
        self.sample("--checkpoint", "run", "--config", "chunks.toml", "--images", "pictures", "--out", str(self.out / "b"), "--heads", "depth")
        a, b = (read_npy(self.out / one / "depth.npy")[1] for one in "ab")
        self.assertLess(max(abs(x - y) for x, y in zip(a, b)), 1e-5 * max(a))
        self.assertEqual(sorted(one.name for one in (self.out / "a").iterdir()), ["depth", "depth.npy", "depth_confidence.npy"])

    def test_random_weights_are_said_in_the_first_line_and_in_every_file(self):
        text = self.sample("--config", "tiny.toml", "--weights", "random", "--images", "pictures", "--out", str(self.out),
                           "--heads", "camera,depth,points")  # fmt: skip
        note = "the weights are random: nothing here is of the scene"
        self.assertEqual(text.splitlines()[0], note)
        self.assertTrue(all(one.name.startswith("random_") for one in self.out.rglob("*")))
        self.assertEqual(json.loads((self.out / "random_cameras.json").read_text())["note"], note)
        self.assertIn(f"comment {note}\n".encode(), (self.out / "random_points.ply").read_bytes())
        sure = [one for frame, rows in zip(self.confidences("random_points_confidence.npy"), (42, 42, 28, 56)) for one in self.middle(frame, rows)]
        self.check_points(self.out / "random_points.ply", sum(one >= sorted(sure)[(len(sure) - 1) // 2] for one in sure))
        self.assertEqual(read_npy(self.out / "random_points.npy")[0], (4, 56, 56, 3))

    def test_weights_of_a_file_may_have_more_heads_and_no_fewer_tensors(self):
        weights = self.root / "model.safetensors"
        if not weights.exists():
            result = execute(EXPORT, self.root, "--checkpoint", "run", "--out", str(weights))
            self.assertEqual(result.returncode, 0, result.stderr)
        tensors = read_safetensors(weights)
        file = self.root / "changed.safetensors"
        given = ("--config", "tiny.toml", "--weights", str(file), "--images", "pictures")
        file.write_bytes(safetensors(tensors | {"track_head.a": ([1], b"\0\0\0\0")}))
        text = self.sample(*given, "--out", str(self.out / "tracks"), "--heads", "camera")
        self.assertIn("track_head: 1 tensors are not read, no such head is built", text)
        file.write_bytes(safetensors(tensors | {"head.a": ([1], b"\0\0\0\0")}))
        self.assertIn("head.a", self.sample(*given, "--out", str(self.out / "x"), code=CONFIGURATION))
        missing = dict(tensors)
        del missing["camera_head.token_norm.bias"]
        file.write_bytes(safetensors(missing))
        self.assertIn("camera_head.token_norm.bias", self.sample(*given, "--out", str(self.out / "x"), code=CONFIGURATION))
        misshapen = tensors | {"camera_head.token_norm.bias": ([2], bytes(8))}
        file.write_bytes(safetensors(misshapen))
        self.assertIn("camera_head.token_norm.bias", self.sample(*given, "--out", str(self.out / "x"), code=CONFIGURATION))
        self.assertFalse((self.out / "x").exists())

    def test_pictures_and_arguments_that_are_refused(self):
        out = ("--out", str(self.out))
        random = ("--config", "tiny.toml", "--weights", "random")
        (self.root / "empty").mkdir(exist_ok=True)
        self.assertIn("holds no picture; allowed: *.png", self.sample(*random, "--images", "empty", *out, code=DATA))
        self.assertIn("no such folder", self.sample(*random, "--images", "nowhere", *out, code=DATA))
        self.assertIn("takes sides that 14 divides", self.sample(*random, "--images", "pictures", "--as-is", *out, code=DATA))
        for i, height in enumerate((56, 70)):
            picture(self.root / "two" / f"{i}.png", 84, height)
        self.assertIn("takes pictures of one size", self.sample(*random, "--images", "two", "--as-is", *out, code=DATA))
        for i in range(3):
            picture(self.root / "broken" / f"{i}.png", seed=i)
        damaged = (self.root / "broken" / "1.png").read_bytes()
        (self.root / "broken" / "1.png").write_bytes(damaged[: len(damaged) // 2])
        self.assertIn("broken/1.png", self.sample(*random, "--images", "broken", *out, code=DATA))
        self.assertIn('"x" is no head; allowed: camera | depth | points', self.sample(*random, "--images", "pictures", "--heads", "camera,x", *out, code=CONFIGURATION))
        self.assertIn("there is nothing to choose", self.sample(*random, "--images", "pictures", "--heads", "depth", "--confidence", "2", *out, code=CONFIGURATION))
        self.assertIn("--confidence 0.5", self.sample(*random, "--images", "pictures", "--confidence", "0.5", *out, code=CONFIGURATION))
        self.assertIn("Name it with --config FILE", self.sample("--weights", "random", "--images", "pictures", *out, code=CONFIGURATION))
        (self.root / "asked.toml").write_text(CONFIG + "[policies.checkpoint]\nenabled = true\n")
        self.assertIn("policies.checkpoint.enabled = true has no effect where nothing is trained",
                      self.sample("--config", "asked.toml", "--weights", "random", "--images", "pictures", *out, code=CONFIGURATION))  # fmt: skip
        picture(self.root / "tall" / "0.png", 2, 200)
        self.assertIn("more than 16 times as high as wide", self.sample(*random, "--images", "tall", *out, code=DATA))
        (self.root / "stored.toml").write_text(CONFIG + "[policies.attention]\nenabled = false\n")
        tokens = 4 * (16 + 5)
        self.assertIn(f"would store {4 * 4 * tokens * tokens} bytes of attention weights",
                      self.sample("--config", "stored.toml", "--weights", "random", "--images", "pictures", *out, code=CONFIGURATION))  # fmt: skip
        self.assertFalse(self.out.exists())
        self.out.write_text("")
        self.assertIn("is a file; name a folder", self.sample(*random, "--images", "pictures", *out, code=CONFIGURATION))

    def test_fifty_steps_on_a_few_scenes_lower_the_loss(self):
        result = execute(TRAIN, self.root, "--config", "tiny.toml", "--set", "train.steps=50", "--set", "data.batch=2", "--set",
                         "optimizer.lr=1e-3", "--set", "train.log_every=1", "--out", str(self.out), "--device", "cpu")  # fmt: skip
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = [json.loads(line) for line in (self.out / "log.jsonl").read_text().splitlines()]
        losses = [line["loss"] for line in lines if "loss" in line]
        self.assertEqual(len(losses), 50)
        self.assertLess(losses[-1], 0.5 * losses[0])

    def test_scenes_that_are_refused(self):
        def train(*more: str) -> str:
            result = execute(TRAIN, self.root, "--config", "tiny.toml", "--set", "train.steps=1", "--out", str(self.out), "--device", "cpu", *more)
            self.assertEqual(result.returncode, DATA, result.stderr)
            return result.stderr

        bad = self.root / "bad" / "a"
        scene(bad)
        where = ("--set", "vggt.data.scenes=bad")
        depths = (bad / "depth.npy").read_bytes()
        (bad / "depth.npy").write_bytes(depths[:-4] + struct.pack("<f", math.nan))
        self.assertIn("depth.npy: value 14111 is nan", train(*where))
        (bad / "depth.npy").write_bytes(npy((3, HEIGHT, WIDTH), bytes(4 * 3 * HEIGHT * WIDTH)))
        self.assertIn("no depth is above 0", train(*where))
        (bad / "depth.npy").write_bytes(depths)
        cameras = json.loads((bad / "cameras.json").read_text())
        cameras["frames"][1]["rotation"][0] = [2, 0, 0]
        (bad / "cameras.json").write_text(json.dumps(cameras))
        self.assertIn('frame 1: "rotation" is none', train(*where))
        (bad / "cameras.json").write_text('{"frames": ' + "[" * 100000)
        self.assertIn("cameras.json", train(*where))
        result = execute(TRAIN, self.root, "--config", "tiny.toml", "--out", str(self.out))
        self.assertEqual(result.returncode, CONFIGURATION)
        self.assertIn("none of train.steps, train.epochs and train.seconds is set", result.stderr)

    def test_plans_by_frames(self):
        text = self.plan("--infer", "--frames", "1,10,100")
        self.assertRegex(text, r"aggregate +\d")
        self.assertIn("depth leads: 1 and more, by aten::", text)
        self.assertRegex(text, r"inference +inference mode, up to \d+ samples at a time")
        report = json.loads(self.plan("--infer", "--frames", "100", "--json"))
        self.assertEqual(report["plan"]["frames"], 100)
        self.assertEqual([one["name"] for one in report["phases"]],
                         ["build", "write", "load", "encode", "aggregate", "camera", "depth"])  # fmt: skip
        both = json.loads(self.plan("--infer", "--frames", "10,100", "--json"))
        self.assertEqual(both["plans"][1]["peak"]["bytes"], report["peak"]["bytes"])
        lines = self.plan("--infer", "--frames", "100", "--table").splitlines()
        self.assertTrue(any(line.startswith('taps = "all"') for line in lines) and lines[-1].startswith("none"))
        self.assertIn("0 bytes are kept", self.plan("--infer", "--frames", "3", "--claims"))
        most = self.plan("--infer", "--max-frames", "1GiB")
        count = int(re.match(r"(\d+) frames fit", most)[1])

        self.assertRegex(self.plan("--infer", "--max-frames", "h100"), r"^\d{4,} frames fit")
        # Fewer frames of heads at a time leave room for more, and are said.
        (key, value), = re.findall(r"\nset +(\S+) = (\d+), with which more fit", most)
        self.assertEqual(key, "policies.inference.head_chunk")

        def whole(frames: int) -> int:
            report = json.loads(self.plan("--infer", "--frames", str(frames), "--json", "--set", f"{key}={value}"))
            return report["peak"]["bytes"] + report["plan"]["beside"]["device"]

        self.assertLessEqual(whole(count), 2**30)
        self.assertGreater(whole(count + 1), 2**30)

    def test_a_budget_sets_fewer_frames_of_heads_at_a_time(self):
        job = ("--infer", "--frames", "40", "--set")

        def need(chunk: str) -> int:
            refused = self.plan(*job, "memory.budget=8MB", "--set", f"policies.inference.head_chunk={chunk}", code=MEMORY)
            return sum(int(one) for one in re.findall(r"\((\d+) bytes\)(?:, in phase| that the device adds)", refused))

        def peak(*more: str) -> int:
            return json.loads(self.plan(*job, *more, "--json"))["peak"]["bytes"]

        free, budget = peak("train.seed=0"), f"memory.budget={need('1')}"
        self.assertLess(peak(budget), free)
        self.assertRegex(one_line(self.plan(*job, budget)), r"policies.inference.head_chunk = [124], with which it fits into memory.budget")
        told = json.loads(self.plan(*job, budget, "--json", "--explain"))
        self.assertIn(told["set"]["policies.inference.head_chunk"], ("4", "2", "1"))
        self.assertEqual(told["rows"][0]["peak"], told["peak"])
        self.assertEqual(told["notes"], [])
        # What is set stays as it is.
        self.assertIn("does not fit", self.plan(*job, budget, "--set", "policies.inference.head_chunk=9", code=MEMORY))

    def test_plans_that_are_refused(self):
        refused = [
            (("--infer", "--frames", "0"), CONFIGURATION, '"0" is no number of frames'),
            (("--infer", "--frames", "3,x"), CONFIGURATION, '"x" is no number of frames'),
            (("--infer",), CONFIGURATION, "of how many frames?"),
            (("--frames", "3"), CONFIGURATION, "add --infer"),
            (("--infer", "--frames", "1,2", "--table"), CONFIGURATION, "are of one number"),
            (("--infer", "--frames", "1", "--max-batch", "1GB"), CONFIGURATION, "nothing is trained"),
            (("--infer", "--max-frames", "some"), CONFIGURATION, "is not a size"),
            (("--infer", "--max-frames", "h100", "--device", "cpu"), CONFIGURATION, "plans for the machine's; leave it out"),
            (("--infer", "--max-frames", "1MB"), MEMORY, "not even one of the frames fits"),
            (("--infer", "--frames", "3", "--set", "memory.budget=1MB"), MEMORY, "does not fit into memory.budget"),
            (("--infer", "--frames", "3", "--set", "policies.checkpoint.enabled=true"), CONFIGURATION, "recomputing frees none"),
            (("--infer", "--frames", "3", "--set", "policies.ema.enabled=true"), CONFIGURATION, "has no effect on a job that only infers"),
            (("--infer", "--frames", "3", "--set", "policies.checkpoint.keep=offload"), CONFIGURATION, "recomputing frees none"),
            (("--infer", "--frames", "3", "--json", "--claims"), CONFIGURATION, "is a text alone"),
            (("--infer", "--frames", "3", "--table", "--set", "memory.budget=1MB"), MEMORY, "none of these rows fits into memory.budget"),
            (("--infer", "--frames", "3", "--set", "policies.precision.enabled=true", "--set", 'policies.precision.fp32=["depth_head"]'),
             CONFIGURATION, "remove it, or set policies.inference.narrow_weights = false"),
            (("--infer", "--frames", "3", "--set", "policies.inference.narrow_weights=false", "--set", "vggt.infer.narrow_heads=true"),
             CONFIGURATION, "has no use without policies.inference.narrow_weights"),
            (("--claims",), CONFIGURATION, "is of inference; add --infer --frames N"),
            ((), CONFIGURATION, "so that the run ends, or plan what it infers with --infer --frames N"),
        ]  # fmt: skip
        for arguments, code, words in refused:
            with self.subTest(arguments):
                self.assertIn(words, self.plan(*arguments, code=code))
        self.plan("--infer", "--frames", "3", "--set", "policies.precision.enabled=true", "--set",
                  'policies.precision.fp32=["depth_head"]', "--set", "policies.inference.narrow_weights=false")  # fmt: skip
        result = execute(PLAN, self.root, "--config", "base", "--infer", "--frames", "3")
        self.assertEqual(result.returncode, CONFIGURATION)
        self.assertIn('models of train.model = "dit" are planned with their training', result.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[5:]])
