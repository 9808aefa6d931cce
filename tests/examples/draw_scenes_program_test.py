"""draw_scenes_program_test.py PROGRAM: the folder that draw-scenes leaves, and what it refuses."""

import hashlib
import json
import sys
import tempfile
import unittest
from pathlib import Path

import programs

program = Path(sys.argv.pop(1))


def contents(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


class DrawScenes(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.out = Path(self.folder.name, "scenes")

    def draw(self, *arguments):
        return programs.execute(program, "--out", self.out, *arguments)

    def test_frames_lists_and_pictures(self):
        done = self.draw("--frames", 5, "--held-out", 3, "--pictures", 2)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(
            done.stdout,
            f"drew 5 frames and 3 held-out ones of other worlds in {self.out} (train.json, held_out.json)\n",
        )
        for name, count in (("train", 5), ("held_out", 3)):
            frames = json.loads((self.out / f"{name}.json").read_text())
            self.assertEqual(frames, [f"{name}/{number:06}.npz" for number in range(count)])
            self.assertEqual(
                sorted(path.name for path in (self.out / name).iterdir()),
                [Path(frame).name for frame in frames] + ["SYNTHETIC.txt"],
            )
        pictures = sorted((self.out / "pictures").iterdir())
        self.assertEqual([path.name for path in pictures], ["000000.png", "000001.png"])
        for path in pictures:
            self.assertTrue(path.read_bytes().startswith(b"\x89PNG"))

    def test_a_seed_gives_the_same_bytes_and_another_one_does_not(self):
        sizes = ("--frames", 3, "--held-out", 2, "--pictures", 0, "--lanes", 12, "--neighbors", 4)
        self.assertEqual(self.draw(*sizes, "--seed", 7).returncode, 0)
        first = contents(self.out)
        self.out = self.out.with_name("again")
        self.assertEqual(self.draw(*sizes, "--seed", 7).returncode, 0)
        self.assertEqual(contents(self.out), first)
        self.out = self.out.with_name("other")
        self.assertEqual(self.draw(*sizes, "--seed", 8).returncode, 0)
        self.assertNotEqual(contents(self.out)["train/000000.npz"], first["train/000000.npz"])

    def test_refused(self):
        refused = [
            (("--frames", 0), "--frames: 0 is out of range; allowed: 1 to 10000000"),
            (("--pictures", 61), "--pictures: 61 is out of range; allowed: 0 to 60"),
            (("--preset", "L"), '--preset: "L" is none; allowed: reduced, H, M and UP'),
            (
                ("--neighbors", 4, "--predicted-neighbors", 5),
                "--predicted-neighbors: 5 of 4 neighbours; give as many at most",
            ),
            (
                ("--future", 270),
                "past 31 and future 270 steps; allowed: 2 each at least, 300 together at most",
            ),
            (("more",), 'unexpected argument "more"; see --help'),
        ]
        for arguments, text in refused:
            done = self.draw(*arguments)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (2, "", f"draw-scenes: {text}\n"))
            self.assertFalse(self.out.exists())
        self.out.mkdir()
        done = self.draw()
        self.assertEqual(
            (done.returncode, done.stderr),
            (2, f"draw-scenes: {self.out}: already exists; remove it or choose another folder\n"),
        )
        done = programs.execute(program)
        self.assertEqual(
            (done.returncode, done.stderr), (2, "draw-scenes: --out is missing: the folder to create\n")
        )


if __name__ == "__main__":
    unittest.main()
