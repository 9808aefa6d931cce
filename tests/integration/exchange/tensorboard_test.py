"""tensorboard_test.py DIT_TRAIN: TensorBoard itself reads the event files of runs.

For an interpreter that has the package tensorboard; cmake/setup.sh full installs it.
"""

import json
import subprocess
import sys
import unittest
from base64 import b64decode
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import programs  # noqa: E402
from png import read_chunks  # noqa: E402
from programs import STEPS, ProgramTest  # noqa: E402

READER = r"""
import json, sys
from base64 import b64encode
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "images": 0})
events.Reload()
tags = events.Tags()
scalars = {tag: [(e.step, e.value, e.wall_time) for e in events.Scalars(tag)] for tag in tags["scalars"]}
images = {
    tag: [(e.step, e.width, e.height, b64encode(e.encoded_image_string).decode()) for e in events.Images(tag)]
    for tag in tags["images"]
}
print(json.dumps({"scalars": scalars, "images": images}))
"""
TAGS = {
    "train/loss": "loss",
    "train/learning_rate": "lr",
    "train/gradient_norm": "gradient_norm",
    "speed/images_per_second": "images_per_second",
    "speed/wait_seconds_per_step": "wait_per_step",
    "memory/peak_bytes": "peak_bytes",
}


class TensorBoard(ProgramTest):
    def read(self, run: str = "run") -> dict:
        folder = str(self.folder / run / "tensorboard")
        result = subprocess.run([sys.executable, "-B", "-c", READER, folder], capture_output=True, text=True, timeout=120)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    def steps(self) -> dict[int, dict]:
        """The lines of the log that count: those after a resume take the place of the ones before."""
        steps = {}
        for line in self.log():
            if line["event"] == "resume":
                steps = {step: logged for step, logged in steps.items() if step <= line["step"]}
            if line["event"] == "step":
                steps[line["step"]] = line
        return steps

    def assert_curves_are_the_log(self, scalars: dict, tags: dict) -> None:
        self.assertEqual(set(scalars), set(tags))
        for tag, key in tags.items():
            seen = [(step, value) for step, value, _ in scalars[tag]]
            self.assertEqual([step for step, _ in seen], list(self.steps()), tag)
            for step, value in seen:
                expected = self.steps()[step][key]
                self.assertAlmostEqual(value, expected, delta=1e-6 * abs(expected), msg=tag)  # float32

    def test_curves_and_grids(self):
        self.assert_done(self.train(train__sample_every=10, log__peak_tflops=0.5))
        events = self.read()
        self.assert_curves_are_the_log(events["scalars"], TAGS | {"speed/mfu": "mfu"})
        self.assertEqual(set(events["images"]), {"samples"})
        grids = events["images"]["samples"]
        self.assertEqual([grid[0] for grid in grids], [10, STEPS])
        for step, width, height, encoded in grids:
            png = (self.folder / f"run/samples/step-{step:08}.png").read_bytes()
            self.assertEqual(b64decode(encoded), png)
            header = read_chunks(png)[0][1]
            self.assertEqual((width, height), (int.from_bytes(header[:4], "big"), int.from_bytes(header[4:8], "big")))

    def test_a_resumed_run_continues_the_curves(self):
        self.assert_done(self.train(train__checkpoint_every=10))
        first = self.read()["scalars"]
        self.assert_done(self.train("--resume", "latest", train__steps=STEPS + 10))
        events = self.read()
        self.assert_curves_are_the_log(events["scalars"], TAGS)
        self.assertEqual(list(self.steps())[-1], STEPS + 10)
        self.assertEqual(events["scalars"]["train/loss"][: len(first["train/loss"])], first["train/loss"])

    def test_steps_after_an_older_checkpoint_are_taken_back(self):
        """As after a crash: the process logged more than its last checkpoint holds."""
        self.assert_done(self.train(train__checkpoint_every=10))
        last = self.folder / f"run/checkpoints/step-{STEPS:08}"
        for path in last.iterdir():
            path.unlink()
        last.rmdir()
        # Another interval: steps 15 and 20 of the first process have no successor at the same step but 20.
        self.assert_done(self.train("--resume", "latest", train__log_every=4))
        self.assertEqual(list(self.steps()), [1, 2, 5, 10, 12, 16, 20])
        self.assert_curves_are_the_log(self.read()["scalars"], TAGS)

    def test_validation_has_a_curve(self):
        self.assert_done(self.train(data__validation=16, train__validate_every=5))
        logged = [(line["step"], line["loss"]) for line in self.log() if line["event"] == "validate"]
        seen = [(step, value) for step, value, _ in self.read()["scalars"]["validation/loss"]]
        self.assertEqual([step for step, _ in seen], [5, 10, 15, 20])
        for (_, value), (_, expected) in zip(seen, logged, strict=True):
            self.assertAlmostEqual(value, expected, delta=1e-6 * expected)

    def test_can_be_switched_off(self):
        self.assert_done(self.train(log__tensorboard="false"))
        self.assertFalse((self.folder / "run/tensorboard").exists())


if __name__ == "__main__":
    programs.TRAIN = Path(sys.argv[1]).resolve()
    unittest.main(argv=sys.argv[:1])
