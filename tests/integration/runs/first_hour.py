"""A stranger's first hour: a folder of pictures as people have them, and eight commands without an editor."""

import os
import shutil
import signal
import tempfile
import time
import unittest
from pathlib import Path

import programs
from programs import execute, read_safetensors, settings

FIXTURE = Path(__file__).resolve().parents[2] / "fixtures/converted_images.safetensors"
KINDS = ("alpha.png", "alpha.webp", "cmyk.jpg", "grey.jpg", "grey16.png", "lossy.webp", "palette_alpha.png")


class FirstHour(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        files = {name: content for name, (_, content) in read_safetensors(FIXTURE).items()}
        for number in range(300):
            name = KINDS[number % len(KINDS)]
            path = self.folder / "photos" / ("cat", "dog", "sea bird")[number % 3] / ("", "older")[number % 2]
            path.mkdir(parents=True, exist_ok=True)
            (path / f"{number:03}{Path(name).suffix}").write_bytes(files[name])
            if number % 5 == 0:
                (path / f"{number:03}.txt").write_text("a caption")

    def run_program(self, program: Path, *arguments: str) -> str:
        result = execute(program, self.folder, *arguments)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout

    def test_from_pictures_to_a_model_in_python(self):
        said = self.run_program(programs.TRAIN, "--init", "photos", "--device", "cpu")
        self.assertIn("found 300 pictures in 3 classes, in colour, half of them at least 10 pixels", said)
        self.assertIn("; 60 other files\n", said)
        self.assertTrue(said.endswith("wrote photos.toml; train with it: dit-train --config photos.toml\n"), said)

        command = [str(programs.TRAIN), "--config", "photos.toml", "--device", "cpu"]
        # Its own pace is of a run of half an hour.
        command += settings({"train.checkpoint_every": 5, "train.sample_every": 10, "sample.steps": 2})
        process = programs.subprocess.Popen(command, cwd=self.folder, stdout=programs.subprocess.PIPE)
        self.addCleanup(programs.end, process)
        deadline = time.monotonic() + 60
        while not (self.folder / "runs/photos/samples/step-00000010.png").exists():
            self.assertIsNone(process.poll())
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.communicate()

        last = int(max(name for name in os.listdir(self.folder / "runs/photos/checkpoints") if name[-1].isdigit())[-8:])
        said = self.run_program(
            programs.TRAIN, "--resume", "runs/photos", "--device", "cpu",
            *settings({"data.batch": 24, "train.steps": last + 10, "schedule.warmup": 0}),
        )  # fmt: skip
        self.assertIn("\nclasses: 0 cat, 1 dog, 2 sea bird\n", said)
        self.assertIn("\npassed over 60 files that are no images, the first: photos/cat/", said)
        self.assertRegex(said, r"\nfrom here on: data\.batch = 24 \(was \d+\)\n")

        said = self.run_program(
            programs.SAMPLE, "--checkpoint", "runs/photos", "--classes", "sea bird,cat", "--per-class", "2",
            "--device", "cpu", "--out", "grid.png",
        )  # fmt: skip
        self.assertTrue((self.folder / "grid.png").read_bytes().startswith(b"\x89PNG"))
        self.run_program(programs.EXPORT, "--checkpoint", "runs/photos", "--out", "model.safetensors")
        tensors = read_safetensors(self.folder / "model.safetensors")
        self.assertEqual(tensors["y_embedder.embedding_table.weight"][0][0], 4)  # and the null label

    def test_init_refuses_what_it_cannot_read(self):
        (self.folder / "notes.txt").write_text("hello")
        wanted = (
            "no data that dit-train knows; wanted: a folder with one folder of pictures per class, latents (.npy or "
            ".safetensors), an IDX file of images beside its labels, or .npz frames of driving or a JSON list of them"
        )
        for data, message in (("gone", "there is nothing of that name"), ("notes.txt", wanted)):
            result = execute(programs.TRAIN, self.folder, "--init", data)
            self.assertEqual((result.returncode, result.stderr), (2, f"dit-train: --init {data}: {message}\n"))
        shutil.rmtree(self.folder / "photos")
        (self.folder / "photos/empty").mkdir(parents=True)
        result = execute(programs.TRAIN, self.folder, "--init", "photos")
        self.assertEqual(
            (result.returncode, result.stderr),
            (4, "dit-train: --init photos: photos/empty: the class folder has no image; add images or remove it\n"),
        )
        (self.folder / "photos/loose.png").write_bytes(b"")
        (self.folder / "photos/empty").rmdir()
        result = execute(programs.TRAIN, self.folder, "--init", "photos")
        self.assertEqual(
            (result.returncode, result.stderr),
            (4, "dit-train: --init photos: photos: the pictures lie in no class folder; move them into one for each "
                "class, or for all: photos/all\n"),
        )  # fmt: skip
        (self.folder / "photos/empty").mkdir()
        (self.folder / "photos/empty/1.png").write_bytes(b"no picture")
        result = execute(programs.TRAIN, self.folder, "--init", "photos")
        self.assertEqual(result.returncode, 4)
        content = read_safetensors(FIXTURE)["grey.png"][1]
        (self.folder / "photos/empty/1.png").write_bytes(content)
        (self.folder / "photos.toml").write_text("mine")
        result = execute(programs.TRAIN, self.folder, "--init", "photos")
        self.assertEqual(
            (result.returncode, result.stderr),
            (2, "dit-train: photos.toml: there is such a file; name another one with --out FILE\n"),
        )
        result = execute(programs.TRAIN, self.folder, "--init", "photos", "--set", "train.steps=3")
        self.assertEqual(
            (result.returncode, result.stderr),
            (2, "dit-train: --init and --set: writing a first configuration is all that --init does; leave --set out\n"),
        )
        self.assertEqual((self.folder / "photos.toml").read_text(), "mine")
