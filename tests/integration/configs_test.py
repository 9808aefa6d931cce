"""configs_test.py DIT_TRAIN CONFIGS: each shipped configuration is read, its model is the one that it names, and its
objective, optimizer, policies and sampler train and sample: two steps on made-up samples, with a narrower model."""

import subprocess
import sys
import tempfile
import tomllib
import unittest
from pathlib import Path

TRAIN = CONFIGS = Path()
DATA_KEYS = ("images", "labels", "folder", "latents", "latent_scale", "flip", "on_corrupt")
SIZE_KEYS = ("name", "depth", "hidden", "heads", "patch")
CLASSES = 8


def narrow(config: dict) -> list[str]:
    """The settings that keep everything but the size of model, data and run."""
    data, model, train = config["data"], config["model"], config["train"]
    values = {f"data.{key}": "default" for key in DATA_KEYS if key in data}
    values |= {f"model.{key}": "default" for key in SIZE_KEYS if key in model}
    values |= {f"train.{key}": "default" for key in ("seconds", "accumulate", "checkpoint_every") if key in train}
    values |= {"data.kind": "synthetic", "data.samples": 24, "data.batch": 4}
    values |= {"model.hidden": 16, "model.depth": 2, "model.heads": 2, "model.classes": CLASSES}
    values |= {"model.patch": model["image_size"] // 4, "train.steps": 2, "train.threads": 1}
    values |= {"train.out": "run", "sample.steps": 4, "sample.per_class": 1, "policies.precision.cpu": "fp32"}
    values |= {key: 2 for key in ("train.validate_every", "train.sample_every") if key.split(".")[1] in train}
    if "validation" in data:
        values["data.validation"] = 4
    if "warmup" in config.get("schedule", {}):
        values["schedule.warmup"] = 1
    return [word for key, value in values.items() for word in ("--set", f"{key}={value}")]


class Configurations(unittest.TestCase):
    maxDiff = None

    def run_train(self, folder: str, *arguments: str) -> str:
        command = [str(TRAIN), "--device", "cpu", *arguments]
        result = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout

    def each(self):
        paths = sorted(CONFIGS.glob("*.toml"))
        self.assertGreaterEqual(len(paths), 5)
        for path in paths:
            with self.subTest(path.name), tempfile.TemporaryDirectory() as folder:
                yield path, folder

    def test_print_config_repeats_what_the_file_says(self):
        for path, folder in self.each():
            printed = tomllib.loads(self.run_train(folder, "--config", str(path), "--print-config"))
            for table, keys in tomllib.loads(path.read_text()).items():
                for key, value in keys.items():
                    if table == "policies":
                        self.assertLessEqual(value.items(), printed["policies"][key].items())
                    else:
                        self.assertEqual(printed[table][key], value, f"{table}.{key}")

    def test_trains_and_samples(self):
        for path, folder in self.each():
            config = tomllib.loads(path.read_text())
            output = self.run_train(folder, "--config", str(path), *narrow(config))
            self.assertIn(" after 2 steps, ", output)
            images = config["model"]["channels"] in (1, 3)
            self.assertTrue(list(Path(folder, "run/samples").glob("*.png" if images else "*.safetensors")))


if __name__ == "__main__":
    TRAIN, CONFIGS = (Path(argument).resolve() for argument in sys.argv[1:3])
    unittest.main(argv=sys.argv[:1])
