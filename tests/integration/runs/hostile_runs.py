"""The programs on files that would hang them, grow without end, harm a terminal, or change under them."""

import os
import shutil
import signal
import struct
import subprocess
import time
from pathlib import Path

import programs
from data_runs import DATA, IDX_OFF, npy
from programs import CLASSES, SIDE, ProgramTest, execute

FAILURE, CONFIGURATION = 1, 2
CORPUS = Path(__file__).resolve().parents[2] / "fuzz/corpus"
IMAGES_OFF = {**IDX_OFF, "data__kind": "images"}


class WithoutAnEnd(ProgramTest):
    def test_a_pipe_where_data_must_be(self):
        os.mkfifo(self.folder / "pipe.npy")
        keys = {**IDX_OFF, "data__kind": "latents", "data__latents": "pipe.npy", "data__labels": "pipe.npy"}
        self.assert_fails(
            self.train(**keys, model__channels=4),
            DATA,
            "--set data.latents=pipe.npy: cannot read pipe.npy: it is a pipe; give a regular file; check the path",
        )

    def test_a_pipe_where_a_checkpoint_must_be(self):
        self.copy_finished_run()
        manifest = self.folder / programs.LAST / "manifest.json"
        manifest.unlink()
        os.mkfifo(manifest)
        result = self.train("--resume", "latest", train__steps=30)
        self.assertEqual(result.returncode, FAILURE)
        self.assertIn("manifest.json: it is a pipe; give a regular file", result.stderr)

    def test_a_configuration_from_a_pipe(self):
        command = f"{programs.TRAIN} --device cpu --config <(cat tiny.toml) --print-config"
        result = subprocess.run(["bash", "-c", command], cwd=self.folder, capture_output=True, text=True, timeout=60)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("steps = 20", result.stdout)

    def test_a_pipe_of_a_bare_name(self):
        os.mkfifo(self.folder / "pipe")
        writer = subprocess.Popen(["cp", "tiny.toml", "pipe"], cwd=self.folder)
        result = execute(programs.TRAIN, self.folder, "--device", "cpu", "--config", "pipe", "--print-config")
        writer.wait(20)
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_ctrl_c_ends_the_wait_for_a_configuration(self):
        os.mkfifo(self.folder / "pipe.toml")
        process = subprocess.Popen([str(programs.TRAIN), "--config", "pipe.toml"], cwd=self.folder)
        time.sleep(1)
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(20), -signal.SIGINT)

    def test_a_device_without_an_end(self):
        most = "/dev/zero: it has more than 1048576 bytes, the most that is read of such a file"
        self.assert_fails(
            execute(programs.TRAIN, self.folder, "--config", "/dev/zero"), CONFIGURATION, f"cannot read {most}"
        )


class Names(ProgramTest):
    def test_what_a_tensor_is_called_does_nothing_to_the_terminal(self):
        shutil.copy(CORPUS / "safetensors/escape_name", self.folder / "evil.safetensors")
        config = str(Path(__file__).resolve().parents[3] / "configs/base.toml")
        result = execute(
            programs.EXPORT, self.folder, "--checkpoint", "evil.safetensors", "--config", config, "--out", "out.pt"
        )
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn('unknown (1): "evil\\u001b[2J\\u001b[31mname" [1]', result.stderr)
        self.assertNotIn("\x1b", result.stdout + result.stderr)

    def test_an_image_whose_name_is_no_utf8_is_skipped(self):
        for label in range(CLASSES):
            folder = self.folder / f"pictures/{label}"
            folder.mkdir(parents=True)
            for number in range(10):
                (folder / f"{number}.png").write_bytes((CORPUS / "images/grey_alpha.png").read_bytes())
        bad = os.fsencode(self.folder / "pictures/0") + b"/caf\xe9\x1b[2J.png"
        with open(bad, "wb") as file:
            file.write(b"no picture")
        keys = {**IMAGES_OFF, "data__folder": "pictures", "data__on_corrupt": "skip", "model__channels": 2}
        result = self.train(**keys)
        self.assertIn("\\xe9\\x1b[2J.png", result.stdout + result.stderr)
        self.assertNotIn("\x1b", result.stdout + result.stderr)


class Pictures(ProgramTest):
    def write(self, *names: str) -> dict[str, object]:
        for label in range(CLASSES):
            folder = self.folder / f"pictures/{label}"
            folder.mkdir(parents=True)
            for number in range(4):
                (folder / f"{number}.jpg").write_bytes((CORPUS / "images/rgb.jpg").read_bytes())
        for name in names:
            (self.folder / "pictures/1" / name).write_bytes((CORPUS / "images" / name).read_bytes())
        return {**IMAGES_OFF, "data__folder": "pictures", "model__channels": 3, "data__batch": 4}

    def test_pictures_that_broke_a_decoder_are_skipped(self):
        keys = self.write("jpeg_dht_overflow.jpg", "jpeg_no_dqt.jpg", "truncated_os2.bmp")
        result = self.train(**keys, data__on_corrupt="skip", train__steps=2)
        self.assert_done(result)
        self.assertEqual(self.log()[0]["skipped"], 3)

    def test_the_first_of_them_ends_a_run_that_skips_none(self):
        result = self.train(**self.write("jpeg_dht_overflow.jpg"))
        self.assertEqual(result.returncode, DATA)
        self.assertIn("jpeg_dht_overflow.jpg: cannot be decoded (", result.stderr)


class Changes(ProgramTest):
    def test_latents_that_become_shorter_end_the_run_with_their_name(self):
        count = 400
        (self.folder / "latents.npy").write_bytes(npy("<f4", (count, 4, SIDE, SIDE), bytes(count * 4 * SIDE * SIDE * 4)))
        (self.folder / "labels.npy").write_bytes(npy("<i8", (count,), struct.pack(f"<{count}q", *[0] * count)))
        keys = {**IDX_OFF, "data__kind": "latents", "data__latents": "latents.npy", "data__labels": "labels.npy"}
        process = self.start(*programs.settings({**keys, "model__channels": 4, "train__steps": 100_000}))
        self.wait_for_step(process)
        os.truncate(self.folder / "latents.npy", 1000)
        _, error = process.communicate(timeout=60)
        self.assertEqual(process.returncode, DATA, error)
        self.assertRegex(error, r"dit-train: cannot read latents.npy: bytes \d+ to \d+ were wanted, the file ends "
                                r"\d+ bytes too early; it must not be changed while it is used\n")  # fmt: skip


class FullOutput(ProgramTest):
    def test_a_closed_output_is_an_error_and_no_file_takes_its_place(self):
        command = f"{programs.TRAIN} --config tiny.toml --device cpu >&-"
        result = subprocess.run(["bash", "-c", command], cwd=self.folder, stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(result.returncode, FAILURE, result.stderr)
        self.assertEqual((self.folder / "run/lock").read_bytes(), b"")

    def test_what_cannot_be_printed_is_an_error(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            for arguments in (["--config", "tiny.toml", "--print-config"], ["--help"], ["--version"]):
                result = subprocess.run(
                    [str(programs.TRAIN), *arguments], cwd=self.folder, stdout=full, stderr=subprocess.PIPE, text=True
                )
                self.assertEqual(
                    (result.returncode, result.stderr),
                    (FAILURE, "dit-train: standard output takes no more; what was printed is not complete\n"),
                )
