"""springs_test.py FOLDER: dit-train, dit-plan, dit-sample and dit-export of FOLDER, with a model family that the
toolkit does not name: it trains, plans, checkpoints, resumes, samples and exports as those that it does."""

import ast
import hashlib
import json
import random
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAMS = Path()
STEPS, DRAWN, WIDTH, DEPTH = 8, 4, 16, 2  # of forces; the others' defaults
HELD_OUT = 8  # a batch: a plan does not know that a file of them holds less
BATCH_BYTES = 8 * (4 + STEPS + 2 * STEPS) * 4
STATE = ("model.safetensors", "optimizer.safetensors", "ema.safetensors")

CONFIG = f"""\
[train]
model = "springs"
out = "run"
steps = 6
threads = 1
checkpoint_every = 3
log_every = 1

[springs]
recording = "swings"
held_out = "others"
spread = 0.1

[data]
batch = 8
"""
TABLE = CONFIG[: CONFIG.index("[data]")]


def swing(draw: random.Random) -> list[float]:
    """Start, forces and positions: the second mass hangs on the first, which is pushed."""
    start = [draw.gauss(0, 1) for _ in range(4)]
    forces = [draw.gauss(0, 1) for _ in range(STEPS)]
    (x1, x2, v1, v2), positions = start, []
    for force in forces:
        v1 += 0.1 * (force - 2 * x1 + x2 - 0.3 * v1)
        v2 += 0.1 * (x1 - x2 - 0.3 * v2)
        x1, x2 = x1 + 0.1 * v1, x2 + 0.1 * v2
        positions += [x1, x2]
    return start + forces + positions


def recording(samples: int, seed: int, steps: int = STEPS) -> bytes:
    draw = random.Random(seed)
    values = [value for _ in range(samples) for value in swing(draw)]
    return b"SPRINGS1" + struct.pack(f"<II{len(values)}f", samples, steps, *values)


def read_npy(content: bytes) -> tuple[dict, list[float]]:
    (length,) = struct.unpack_from("<H", content, 8)
    values = content[10 + length :]
    return ast.literal_eval(content[10 : 10 + length].decode()), list(struct.unpack(f"<{len(values) // 4}f", values))


def read_safetensors(path: Path) -> dict[str, tuple[list[int], bytes]]:
    content = path.read_bytes()
    (length,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8 : 8 + length])
    header.pop("__metadata__", None)
    return {
        name: (entry["shape"], content[8 + length :][slice(*entry["data_offsets"])])
        for name, entry in header.items()
    }


def shapes() -> dict[str, list[int]]:
    linear = {"embed.start": (4, WIDTH), "embed.force": (1, WIDTH), "head": (WIDTH, 2)}
    for block in range(DEPTH):
        for name, inner, outer in (("qkv", 1, 3), ("proj", 1, 1), ("in", 1, 4), ("out", 4, 1)):
            linear[f"blocks.{block}.{name}"] = (inner * WIDTH, outer * WIDTH)
    wanted = {"embed.position": [STEPS, WIDTH]}
    for name, (inner, outer) in linear.items():
        wanted |= {f"{name}.weight": [outer, inner], f"{name}.bias": [outer]}
    return wanted


def settings(**values: object) -> list[str]:
    return [word for key, value in values.items() for word in ("--set", f"{key.replace('__', '.')}={value}")]


class Springs(unittest.TestCase):
    """Each test works in a folder of its own; the run of CONFIG in `whole` is made once."""

    maxDiff = None

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        (cls.folder / "swings").write_bytes(recording(30, seed=1))
        (cls.folder / "others").write_bytes(recording(HELD_OUT, seed=2))
        (cls.folder / "run.toml").write_text(CONFIG)
        cls.train = ["--config", "run.toml", "--device", "cpu"]
        cls.run_program("dit-train", *cls.train, *settings(train__out="whole"))

    @classmethod
    def run_program(cls, program: str, *arguments: str, code: int = 0) -> str:
        """What it printed; of a refusal, its message."""
        command = [str(PROGRAMS / program), *arguments]
        result = subprocess.run(command, cwd=cls.folder, capture_output=True, text=True, timeout=60)
        if result.returncode != code:
            raise AssertionError(f"{program}: exit {result.returncode}\n{result.stdout}\n{result.stderr}")
        return result.stderr if code else result.stdout

    def hashes(self, run: str, step: int) -> dict[str, str]:
        folder = self.folder / run / f"checkpoints/step-{step:08}"
        return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in STATE}

    def log(self, run: str) -> list[dict]:
        return [json.loads(line) for line in (self.folder / run / "log.jsonl").read_text().splitlines()]

    def losses(self, run: str) -> list[float]:
        return [line["loss"] for line in self.log(run) if line["event"] == "step"]

    def drawn(self, *arguments: str, out: str = "futures.npy") -> bytes:
        self.run_program("dit-sample", "--checkpoint", "whole", "--device", "cpu", "--out", out, *arguments)
        return (self.folder / out).read_bytes()

    def refusal(self, config: str, program: str = "dit-train", *arguments: str) -> str:
        (self.folder / "wrong.toml").write_text(config)
        return self.run_program(program, "--config", "wrong.toml", *arguments, code=2)

    def compare_phases(self, planned: list[dict], measured: list[dict]) -> None:
        by_name = {phase["name"]: phase for phase in measured}  # a plan has fewer steps, so another order
        self.assertEqual({phase["name"] for phase in planned}, by_name.keys())
        for plan in planned:
            run = by_name[plan["name"]]
            # On a busy machine the loader may bring a batch later than the plan has it. A plan adds up what the
            # kernels of two threads take for themselves.
            late = plan["categories"].pop("data", 0) - run["categories"].pop("data", 0)
            self.assertIn(late, (0, BATCH_BYTES), plan["name"])
            for one in (plan, run):
                one["categories"].pop("scratch", 0)
            self.assertEqual(plan["categories"], run["categories"], plan["name"])

    def test_it_is_planned_for_a_gpu_where_there_is_none(self):
        plan = json.loads(self.run_program("dit-plan", "--config", "run.toml", "--json"))
        self.assertEqual(plan["device"], "cuda:0")
        self.assertGreater(plan["peak"]["bytes"], 0)

    def test_plans_try_what_its_modules_offer_to_keep(self):
        explained = json.loads(self.run_program("dit-plan", *self.train, "--explain", "--json"))
        tried = [one["set"] for one in explained["checkpoint_choices"]["choices"]]
        self.assertIn('policies.checkpoint.keep=["attn_out"]', tried)
        self.assertFalse([one for one in tried if "fc2_out" in one])

    def test_it_learns(self):
        self.run_program("dit-train", *self.train, *settings(
            train__out="long", train__steps=60, train__checkpoint_every=0, train__validate_every=60,
            optimizer__lr=0.01))
        losses = self.losses("long")
        self.assertEqual(len(losses), 60)
        self.assertLess(sum(losses[-5:]), sum(losses[:5]) / 2)

    def test_the_policies_act_and_each_run_takes_what_was_planned(self):
        every = {
            "all": {},
            "no_checkpoint": {"policies__checkpoint__enabled": "false"},
            "no_ema": {"policies__ema__enabled": "false"},
            "bf16": {"policies__precision__cpu": "bf16"},
        }
        peaks, saved = {}, {}
        for name, changes in every.items():
            if name != "bf16":
                changes = {"policies__precision__cpu": "fp32", **changes}
            job = [*self.train, *settings(train__out=name, **changes)]
            plan = json.loads(self.run_program("dit-plan", *job, "--calibration", "here", "--json"))
            self.run_program("dit-train", *job)
            measured = json.loads((self.folder / name / "memory.json").read_text())
            peaks[name] = measured["peak"]["bytes"]
            saved[name] = max(phase["categories"].get("saved", 0) for phase in measured["phases"])
            with self.subTest(name):
                self.assertEqual(plan["peak"]["bytes"], peaks[name])
                self.compare_phases(plan["phases"], measured["phases"])
        self.assertEqual(len(set(peaks.values())), len(peaks), peaks)
        self.assertLess(peaks["all"], peaks["no_checkpoint"])
        self.assertLess(peaks["no_ema"], peaks["all"])
        self.assertLess(peaks["bf16"], peaks["all"])
        self.assertNotEqual(self.losses("bf16"), self.losses("all"))
        self.assertEqual(self.losses("no_checkpoint"), self.losses("all"))

    def test_a_run_that_is_resumed_ends_as_one_that_was_not(self):
        self.run_program("dit-train", *self.train, *settings(train__out="half"))
        half, whole = self.hashes("half", 3), self.hashes("whole", 6)
        self.assertTrue(all(half[name] != whole[name] for name in STATE))
        for kept in (self.folder / "half/checkpoints/step-00000006").iterdir():
            kept.unlink()
        (self.folder / "half/checkpoints/step-00000006").rmdir()
        self.run_program("dit-train", *self.train, *settings(train__out="half"), "--resume",
                         "half/checkpoints/step-00000003")
        self.assertEqual(self.hashes("half", 6), whole)
        told = [(line["event"], line["step"]) for line in self.log("half") if line["event"] in ("resume", "step")]
        self.assertEqual(told[-4:], [("resume", 3), ("step", 4), ("step", 5), ("step", 6)])

    def test_futures_are_written_as_npy(self):
        content = self.drawn("--starts", "others")
        header, values = read_npy(content)
        self.assertEqual(header, {"descr": "<f4", "fortran_order": False, "shape": (HELD_OUT, STEPS, 2)})
        self.assertEqual(len(values), HELD_OUT * STEPS * 2)
        self.assertTrue(all(abs(value) < 100 for value in values))
        self.assertGreater(len(set(values)), HELD_OUT * STEPS)
        self.assertEqual(self.drawn("--starts", "others"), content)
        for other in (("--seed", "1"), ("--spread", "0"), ("--raw",)):
            self.assertNotEqual(self.drawn("--starts", "others", *other), content)
        still = self.drawn("--starts", "others", "--spread", "0", "--seed", "1")
        self.assertEqual(self.drawn("--starts", "others", "--spread", "0", "--seed", "2"), still)

    def test_the_samples_of_the_run_are_drawn_again(self):
        samples = read_safetensors(self.folder / "whole/samples/step-00000006.safetensors")
        shape, values = samples["positions"]
        self.assertEqual(shape, [DRAWN, STEPS, 2])
        again = self.drawn("--starts", "others", "--count", str(DRAWN))
        self.assertTrue(again.endswith(values))

    def test_weights_are_exported(self):
        self.run_program("dit-export", "--checkpoint", "whole", "--out", "all.safetensors")
        exported = read_safetensors(self.folder / "all.safetensors")
        self.assertEqual({name: shape for name, (shape, _) in exported.items()}, shapes())
        averages = read_safetensors(self.folder / "whole/checkpoints/step-00000006/ema.safetensors")
        for name in shapes():
            self.assertEqual(exported[name][1], averages[name][1])
        text = self.run_program("dit-export", "--checkpoint", "whole", "--raw", "--out", "raw.pt")
        self.assertTrue(text.startswith(f"{len(shapes())} tensors of the raw weights of whole/"), text)
        for file, of_run in (("all.safetensors", []), ("raw.pt", ["--raw"])):
            with self.subTest(file):
                self.run_program("dit-sample", "--weights", file, "--config", "run.toml", "--starts", "others",
                                 "--device", "cpu", "--out", "of_file.npy")
                self.assertEqual((self.folder / "of_file.npy").read_bytes(), self.drawn("--starts", "others", *of_run))

    def test_its_table_is_printed_with_origins(self):
        text = self.run_program("dit-train", "--config", "run.toml", "--print-config")
        table = text[text.index("[springs]") : text.index("[data]")]
        self.assertIn('recording = "swings"  # run.toml:10\n', table)
        self.assertIn("delta = 0.5  # default\n", table)
        self.assertNotIn("[model]", text)
        (self.folder / "printed.toml").write_text(text)
        again = self.run_program("dit-train", "--config", "printed.toml", "--print-config")
        self.assertEqual([line.split("  #")[0] for line in again.splitlines()],
                         [line.split("  #")[0] for line in text.splitlines()])

    def test_what_is_wrong_with_its_keys_is_said_by_line_and_column(self):
        wrong = TABLE + "  stesp = 8\n"
        for program in ("dit-train", "dit-plan"):
            self.assertEqual(self.refusal(wrong, program),
                             f"{program}: wrong.toml:14:3: unknown key springs.stesp; did you mean springs.steps?\n")
        self.assertEqual(self.refusal(TABLE + "delta = 0\n"),
                         "dit-train: wrong.toml:14:9: springs.delta = 0 is out of range; allowed: (0, inf)\n")
        self.assertEqual(self.refusal(TABLE + "heads = 3\n"),
                         "dit-train: wrong.toml:14:9: springs.heads = 3 does not divide springs.width = 16; set a "
                         "divisor of it\n")
        self.assertIn("wrong.toml:11:12: springs.held_out has no use with train.model = \"dit\"; remove it",
                      self.refusal(CONFIG.replace('"springs"', '"dit"')))
        self.assertIn("wrong.toml:15:8: model.name has no use with train.model = \"springs\"; remove it",
                      self.refusal(TABLE + '[model]\nname = "DiT-S/4"\n'))
        self.assertIn("sample.steps has no use with train.model = \"springs\"; remove it",
                      self.refusal(TABLE + "[sample]\nsteps = 3\n"))

    def test_a_file_that_is_no_recording_is_refused(self):
        good = recording(3, seed=3)
        nan = good[:20] + struct.pack("<f", float("nan")) + good[24:]
        for content, message in (
            (b"", 'no recording of springs, which begins with "SPRINGS1" and two numbers'),
            (b"SPRINGS2" + good[8:], 'no recording of springs, which begins with "SPRINGS1" and two numbers'),
            (good[:8] + struct.pack("<II", 0, STEPS), "it holds no samples"),
            (recording(3, seed=3, steps=9),
             "its samples have 9 steps, and springs.steps = 8; set springs.steps as the recording has them"),
            (good[:-1], "it says 3 samples, which are 336 bytes, and holds 335"),
            (good + b"\0", "it says 3 samples, which are 336 bytes, and holds 337"),
            (good[:8] + struct.pack("<I", 0xFFFFFFFF) + good[12:],
             f"it says {0xFFFFFFFF} samples, which are {0xFFFFFFFF * 112} bytes, and holds 336"),
            (nan, "sample 0 holds a value that is not finite"),
        ):
            (self.folder / "odd").write_bytes(content)
            with self.subTest(message):
                seen = self.run_program("dit-train", *self.train, *settings(train__out="odd_run",
                                                                            springs__recording="odd"), code=4)
                self.assertEqual(seen, f"dit-train: --set springs.recording=odd: odd: {message}\n")
                self.assertFalse((self.folder / "odd_run").exists())

    def test_its_arguments_are_its_own(self):
        text = self.run_program("dit-sample", "--help")
        self.assertIn(", --starts FILE, --images DIR\n", text)
        self.assertIn("\n  --spread S ", text)
        sample = ["--checkpoint", "whole", "--out", "o.npy"]
        for more, end in (([], "none is given"), (["--starts", "others", "--classes", "0"], "several are given")):
            self.assertRegex(self.run_program("dit-sample", *sample, *more, code=2),
                             rf"^dit-sample: give exactly one of --.*, --starts FILE, for springs,.*; {end}\n$")
        for more, message in (
            (["--starts", "others", "--guidance", "2"],
             "--guidance 2: has no use with --starts, which draws from starts alone; remove it"),
            (["--classes", "0", "--spread", "2"], "--spread 2: has no use with --classes; remove it"),
            (["--classes", "0"], "--classes 0: the model of whole is a model of springs, which has none; draw the "
                                 "futures of a recording's starts with --starts FILE --out FILE"),
            (["--starts", "others", "--spread", "-1"],
             '--spread -1: "-1" is not allowed; wanted: a number in [0, inf)'),
            (["--starts", "others", "--count", "9"], "--count 9: --starts holds 8; give at most as many"),
        ):
            with self.subTest(message):
                self.assertEqual(self.run_program("dit-sample", *sample, *more, code=2), f"dit-sample: {message}\n")
        self.assertFalse((self.folder / "o.npy").exists())


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    PROGRAMS = Path(sys.argv[1]).resolve()
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
