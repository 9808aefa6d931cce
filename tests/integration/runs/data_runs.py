"""dit-train on each kind of data, with and without validation, and what it refuses of their files."""

import html
import struct

import programs
from png import write_png
from programs import CLASSES, LAST, SAMPLE_STEPS, SIDE, STEPS, ProgramTest, execute, read_safetensors

CONFIGURATION, DATA = 2, 4
IDX_OFF = {"data__images": "default", "data__labels": "default"}  # as the README says it


def npy(descr: str, shape: tuple[int, ...], values: bytes) -> bytes:
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (63 - (10 + len(header)) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + values


class Latents(ProgramTest):
    COUNT = 40

    def setUp(self):
        super().setUp()
        numbers = [(i * 37 % 101) / 50 - 1 for i in range(self.COUNT * 4 * SIDE * SIDE)]
        self.shape = (self.COUNT, 4, SIDE, SIDE)
        self.values = struct.pack(f"<{len(numbers)}f", *numbers)
        (self.folder / "latents.npy").write_bytes(npy("<f4", self.shape, self.values))
        labels = struct.pack(f"<{self.COUNT}q", *(i % CLASSES for i in range(self.COUNT)))
        (self.folder / "labels.npy").write_bytes(npy("<i8", (self.COUNT,), labels))
        self.keys = {**IDX_OFF, "data__kind": "latents", "data__latents": "latents.npy"}
        self.keys |= {"data__labels": "labels.npy", "model__channels": 4, "data__latent_scale": 0.5}

    def test_train_and_sample(self):
        result = self.train(**self.keys)
        self.assert_done(result)
        self.assertIn("\ndata: 40 latents 4x8x8, 4 classes (float32, latents.npy)\n", result.stdout)
        self.assertIn(f"\nsampling {2 * CLASSES} latents in {SAMPLE_STEPS} steps\n", result.stdout)
        self.assertIn("channels, as the autoencoder gives them, not images: written to run/samples/", result.stdout)
        arguments = ("--checkpoint", "run", "--classes", "0,1", "--per-class", "3", "--out")
        self.assert_done(self.sample(*arguments, "out.npy"))
        self.assert_done(self.sample(*arguments, "out.safetensors"))
        shape, samples = read_safetensors(self.folder / "out.safetensors")["samples"]
        self.assertEqual(shape, [6, 4, SIDE, SIDE])
        self.assertEqual((self.folder / "out.npy").read_bytes(), npy_of_numpy((6, 4, SIDE, SIDE), samples))
        self.assert_fails(
            self.sample(*arguments, "out.png"),
            CONFIGURATION,
            "--out out.png: samples of 4 channels are not images; write them with --out FILE.safetensors or "
            "--out FILE.npy",
        )
        # As it is trained on: half of what the autoencoder gave.
        self.assert_done(self.sample(*arguments, "scaled.safetensors", "--unscale", "false"))
        _, scaled = read_safetensors(self.folder / "scaled.safetensors")["samples"]
        count = 6 * 4 * SIDE * SIDE
        whole, half = (struct.unpack(f"<{count}f", values) for values in (samples, scaled))
        self.assertEqual([value / 2 for value in whole], list(half))
        # What was sampled can be trained on.
        (self.folder / "labels.npy").write_bytes(npy("<i8", (6,), struct.pack("<6q", 0, 0, 0, 1, 1, 1)))
        again = self.train(**{**self.keys, "data__latents": "out.npy", "train__out": "again", "data__batch": 4})
        self.assert_done(again)
        self.assertIn(
            "\ndata: 6 latents 4x8x8, 2 classes (float32, out.npy)\n"
            "model.classes = 4, but labels of the data go to 1: classes 2 to 3 are never learnt\n",
            again.stdout,
        )
        # And again at the end, where the samples are looked at.
        self.assertIn("\nclasses       classes 2 to 3 are never learnt: no samples\n", again.stdout)
        note = '<p class="note">No samples: classes 2 to 3 are never learnt.</p>'
        self.assertIn(note, (self.folder / "again/report.html").read_text())
        self.assertNotIn("\nclasses  ", result.stdout)
        self.assertNotIn("never learnt", (self.folder / "run/report.html").read_text())

    def test_a_nan_never_trains(self):
        nan = struct.pack("<f", float("nan"))
        at = 4 * (17 * 4 * SIDE * SIDE + 5)
        values = self.values[:at] + nan + self.values[at + 4 :]
        (self.folder / "latents.npy").write_bytes(npy("<f4", self.shape, values))
        self.assert_fails(
            self.train(**self.keys),
            DATA,
            "latents.npy: sample 17 holds a value that is not finite (NaN or infinite); make its latents again, "
            "or take the sample out",
        )
        self.assertEqual(self.log()[-1]["event"], "failed")
        self.assertTrue((self.folder / "run/memory.json").exists())

    def test_what_is_refused(self):
        whole = (self.folder / "latents.npy").read_bytes()
        place = "--set data.latents=latents.npy: latents.npy: "
        for content, message in (
            (whole[:-1], f"holds {len(self.values) - 1} bytes of values, but shape {self.shape} of <f4 takes "
                         f"{len(self.values)}; it is truncated, get the file again"),
            (npy("|O", (2,), b"\x80\x04N."), 'has the dtype "|O": Python objects, which are not read, as reading '
                                             "them could run code; save plain numbers"),
            (b"PK", "is not a .npy file, which begins with \\x93NUMPY; save the array with numpy.save"),
        ):  # fmt: skip
            (self.folder / "latents.npy").write_bytes(content)
            self.assert_fails(self.train(**self.keys), DATA, place + message)
            self.assertFalse((self.folder / "run").exists())


def npy_of_numpy(shape: tuple[int, ...], values: bytes) -> bytes:
    """As numpy.save writes it: with room for the first size to grow."""
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (21 - len(str(shape[0])))
    header += b" " * (64 - (11 + len(header)) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + values


class Images(ProgramTest):
    KEYS = {**IDX_OFF, "data__kind": "images", "data__folder": "set"}

    def setUp(self):
        super().setUp()
        for label in range(CLASSES):
            folder = self.folder / "set" / f"class{label}"
            folder.mkdir(parents=True)
            for number in range(6):
                width, height = SIDE + number, SIDE + 2 * label
                pixels = bytes((x * (label + 1) * 9 + number) % 256 for x in range(width * height))
                write_png(folder / f"{number}.png", width, height, pixels)

    def test_data_that_have_changed_are_no_surprise(self):
        self.assert_done(self.train(data__validation=6, **self.KEYS))
        resumed = ("--resume", "run", "--device", "cpu", "--set", f"train.steps={STEPS + 2}")
        changed = f"the data have changed since {LAST}: "
        advice = (
            ". Give the run the data that it was trained on, or go on with these: set data.allow_change = true"
        )
        (self.folder / "set/class1").rename(self.folder / "set/x")
        self.assert_fails(
            execute(programs.TRAIN, self.folder, *resumed),
            CONFIGURATION,
            f'{changed}class "class1" is called "x"; class "class2" had the label 2 and has 1; '
            f'class "class3" had the label 3 and has 2; samples are held out by their names, or positions where they '
            f"have none, so that some change sides; labels have moved, and the weights know what they were{advice}",
        )
        (self.folder / "set/x").rename(self.folder / "set/class1")
        (self.folder / "set/class0/3.png").rename(self.folder / "set/class2/7.png")
        self.assert_fails(
            execute(programs.TRAIN, self.folder, *resumed),
            CONFIGURATION,
            f'{changed}class "class0" has 5 samples, and had 6; class "class2" has 7 samples, and had 6{advice}',
        )
        result = execute(programs.TRAIN, self.folder, *resumed, "--set", "data.allow_change=true")
        self.assert_done(result)
        self.assertIn('\nfrom here on: the data: class "class0" has 5 samples, and had 6; class', result.stdout)
        self.assertIn("After step 20 the run went on with the data: class", self.report())
        # That was allowed once; from here on these are the run's data.
        (self.folder / "set").rename(self.folder / "moved")
        more = ("--set", "data.folder=moved", "--set", f"train.steps={STEPS + 4}")
        result = execute(programs.TRAIN, self.folder, *resumed, *more)
        self.assert_done(result)
        self.assertIn('\nfrom here on: data.folder = "moved" (was "set")\n', result.stdout)
        self.assertIn(f"train.steps={STEPS + 4} takes the place of --set train.steps={STEPS + 2}\n", result.stdout)

    def report(self) -> str:
        return html.unescape((self.folder / "run/report.html").read_text())

    def test_contents_are_compared_where_that_is_asked_for(self):
        keys = {**self.KEYS, "data__fingerprint": "contents"}
        self.assert_done(self.train(**keys))
        png = self.folder / "set/class1/2.png"
        size = png.stat().st_size
        for first in range(1, 256):  # other pixels in a file of the same size
            write_png(png, SIDE + 2, SIDE + 2, bytes((x * 18 + 2 + first) % 256 for x in range((SIDE + 2) ** 2)))
            if png.stat().st_size == size:
                break
        self.assertEqual(png.stat().st_size, size)
        self.assert_fails(
            self.train("--resume", "latest", train__steps=STEPS + 1, **keys),
            CONFIGURATION,
            f"the data have changed since {LAST}: names and sizes are as they were, and the contents of a sample "
            "have changed. Give the run the data that it was trained on, or go on with these: set "
            "data.allow_change = true",
        )

    def test_classes_go_by_their_names(self):
        (self.folder / "set/class3").rename(self.folder / "set/a cat")
        result = self.train(sample__classes="a cat,2", **self.KEYS)
        self.assert_done(result)
        self.assertIn("\nclasses: 0 a cat, 1 class0, 2 class1, 3 class2\n", result.stdout)
        self.assertIn(f"\nsampling 4 images in {SAMPLE_STEPS} steps\n", result.stdout)
        self.assertIn("Classes: 0 a cat, 1 class0, 2 class1, 3 class2.", self.report())
        samples = ("--checkpoint", "run", "--per-class", "2", "--out")
        self.assert_done(self.sample(*samples, "grid.png", "--classes", "a cat,class1"))
        picture = (self.folder / "grid.png").read_bytes()
        self.assertEqual(picture, (self.folder / f"run/samples/step-{STEPS:08}.png").read_bytes())
        self.assert_done(self.sample(*samples, "all.safetensors", "--classes", "all,0-1"))
        _, labels = read_safetensors(self.folder / "all.safetensors")["labels"]
        self.assertEqual(struct.unpack("<12q", labels), (0, 0, 1, 1, 2, 2, 3, 3, 0, 0, 1, 1))
        self.assert_fails(
            self.sample(*samples, "x.png", "--classes", "cat"),
            CONFIGURATION,
            '--classes: no class is called "cat"; allowed: a cat, class0, class1 and class2',
        )
        self.assert_fails(
            self.train(train__out="b", sample__classes="cats", **self.KEYS),
            CONFIGURATION,
            '--set sample.classes=cats: sample.classes: no class is called "cats"; allowed: a cat, class0, '
            "class1 and class2",
        )

    def test_images_of_other_sizes_are_resized(self):
        result = self.train(data__flip="true", data__samples=24, **self.KEYS)
        self.assert_done(result)
        self.assertIn("\ndata: 24 images 1x8x8, 4 classes (image folder, set)\n", result.stdout)

    def test_corrupt_images(self):
        png = self.folder / "set/class1/2.png"
        png.write_bytes(png.read_bytes()[:-3])
        reason = "cannot be decoded (it ends too early); allowed: PNG, JPEG, WebP and BMP; replace or remove it"
        self.assert_fails(
            self.train(**self.KEYS), DATA, f"--set data.folder=set: set/class1/2.png: {reason}"
        )
        result = self.train(data__on_corrupt="skip", **self.KEYS)
        self.assert_done(result)
        self.assertIn("\ndata: 23 images 1x8x8, 4 classes (image folder, set)\n", result.stdout)
        self.assertIn(f"\nskipped 1 corrupt file:\n  set/class1/2.png: {reason}\n", result.stdout)
        start = self.log()[0]
        self.assertEqual((start["samples"], start["skipped"]), (23, 1))
        self.assertEqual(start["skipped_first"], f"set/class1/2.png: {reason}")

    def test_more_classes_than_the_model(self):
        self.assert_fails(
            self.train(model__classes=3, **self.KEYS),
            CONFIGURATION,
            "--set model.classes=3: data: samples have 4 classes, model.classes says 3; set model.classes = 4",
        )


class Synthetic(ProgramTest):
    def test_the_run_says_so(self):
        keys = {**IDX_OFF, "data__kind": "synthetic", "data__samples": 64}
        result = self.train(**keys)
        self.assert_done(result)
        self.assertIn("\ndata: 64 made-up samples 1x8x8, 4 classes (SYNTHETIC)\nSYNTHETIC: ", result.stdout)
        self.assertRegex(result.stdout, r"(?m)^data          SYNTHETIC: the samples were made up by a program$")
        self.assertEqual(self.log()[0]["synthetic"], 1)
        self.assert_fails(
            self.train(**{**keys, "data__samples": "default"}, train__out="other"),
            CONFIGURATION,
            "--set data.kind=synthetic: data.samples is not set; data.kind = \"synthetic\" needs it; set it, or change data.kind",
        )


class HeldOut(ProgramTest):
    def test_it_changes_no_weight(self):
        with_it = self.train(data__validation=50, train__validate_every=5)
        self.assert_done(with_it)
        without = self.train(data__validation=50, train__out="other")
        self.assert_done(without)
        step = f"checkpoints/step-{STEPS:08}"
        self.assert_same_state(f"run/{step}", f"other/{step}")
        self.assertIn("\nvalidation: 50 samples are held out, 150 are trained on\n", with_it.stdout)
        lines = [line for line in self.log() if line["event"] == "validate"]
        self.assertEqual([line["step"] for line in lines], [5, 10, 15, 20])
        last = [line for line in self.log("other") if line["event"] == "validate"]  # at the end, unasked
        self.assertEqual(last, lines[-1:])
        for line in lines:
            self.assertIn(
                f"\nvalidation at step {line['step']}: loss {line['loss']:.4f} (50 samples)\n", with_it.stdout
            )
        self.assertIn(f"\nvalidation    loss {lines[-1]['loss']:.4f} of 50 held-out samples\n", with_it.stdout)
        self.assertEqual((self.log()[0]["samples"], self.log()[0]["held_out"]), (150, 50))

    def test_a_stopped_and_resumed_run_validates_alike(self):
        keys = {"data__validation": 50, "train__validate_every": 5, "train__validate_ema": "true"}
        keys["schedule__kind"] = "constant"  # the cosine depends on train.steps
        self.assert_done(self.train(**keys))
        self.assert_done(self.train(**keys, train__out="parts", train__steps=8))
        self.assert_done(self.train("--resume", "latest", **keys, train__out="parts"))
        whole, parts = (
            {line["step"]: line["loss"] for line in self.log(run) if line["event"] == "validate"}
            for run in ("run", "parts")
        )
        self.assertEqual(sorted(whole), [5, 10, 15, 20])
        self.assertEqual(sorted(parts), [5, 8, 10, 15, 20])
        for step in (5, 10, 15, 20):
            self.assertEqual(whole[step], parts[step])
        saved = (self.folder / "parts/config.toml").read_text()
        self.assertIn("validate_ema = true  # --set\n", saved)

    def test_other_held_out_samples_are_another_run(self):
        self.assert_done(self.train(data__validation=50, train__steps=5))
        result = self.train("--resume", "latest", data__validation=60)
        self.assertEqual(result.returncode, CONFIGURATION)
        self.assertIn("  data.validation: 50 in the checkpoint, 60 now; what was held out", result.stderr)


class LastBatch(ProgramTest):
    def test_a_run_of_whole_epochs(self):
        # 200 samples in steps of 48: four whole ones and one of 8.
        keys = {"data__batch": 48, "train__accumulate": 2, "data__drop_last": "false"}
        keys["schedule__kind"] = "constant"  # the cosine depends on train.steps
        self.assert_done(self.train(train__steps=12, **keys))
        self.assert_done(self.train(train__steps=10, train__out="parts", **keys))
        resume = self.train("--resume", "latest", train__steps=12, train__out="parts", **keys)
        self.assert_done(resume)
        step = "checkpoints/step-00000012"
        self.assert_same_state(f"run/{step}", f"parts/{step}")
        self.assertIn('"samples": 496', (self.folder / f"run/{step}/state.json").read_text())
        self.assertIn('"name": "last_batch"', (self.folder / "run/memory.json").read_text())
