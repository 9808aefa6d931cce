"""configs_test.py DIT_TRAIN CONFIGS: each shipped configuration is read, its model is the one that it names, and its
objective, optimizer, policies and sampler train and sample: two steps with a narrower model, once on made-up samples,
once on files of the kind, the name and the shape that its [data] gives, which is taken as it is. Those of the driving
model are read here and trained by driving_test.py."""

import json
import re
import struct
import subprocess
import sys
import tempfile
import tomllib
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from png import write_png  # noqa: E402

TRAIN = CONFIGS = Path()
DATA_KEYS = ("images", "labels", "if_missing", "folder", "latents", "latent_scale", "flip", "on_corrupt")
SIZE_KEYS = ("name", "depth", "hidden", "heads", "patch")
CLASSES = 8
SAMPLES = 24


def narrow(config: dict, own_data: bool) -> list[str]:
    """The settings that keep everything but the size of model, data and run; with `own_data` the kind of data too."""
    data, model, train = config["data"], config["model"], config["train"]
    values: dict[str, object] = {"data.batch": 4}
    if not own_data:
        values |= {f"data.{key}": "default" for key in DATA_KEYS if key in data}
        values |= {"data.kind": "synthetic", "data.samples": SAMPLES, "model.classes": CLASSES}
    elif data["kind"] == "idx":  # named by their places on a system
        values |= {f"data.{key}": Path(data[key]).stem for key in ("images", "labels")}
    values |= {f"model.{key}": "default" for key in SIZE_KEYS if key in model}
    values |= {f"train.{key}": "default" for key in ("seconds", "accumulate", "checkpoint_every") if key in train}
    values |= {"model.hidden": 16, "model.depth": 2, "model.heads": 2}
    values |= {"model.patch": model["image_size"] // 4, "train.steps": 2, "train.threads": 1}
    values |= {"train.out": "run", "sample.steps": 4, "sample.per_class": 1, "policies.precision.cpu": "fp32"}
    values |= {"sample.classes": "0-1"}
    values |= {key: 2 for key in ("train.validate_every", "train.sample_every") if key.split(".")[1] in train}
    if "validation" in data:
        values["data.validation"] = 4
    if "warmup" in config.get("schedule", {}):
        values["schedule.warmup"] = 1
    return [word for key, value in values.items() for word in ("--set", f"{key}={value}")]


def write_data(config: dict, folder: Path) -> str:
    """Writes samples to the files that the configuration names, and returns what a run says of them."""
    data, model = config["data"], config["model"]
    channels, side = model["channels"], model["image_size"]
    shape = f"{channels}x{side}x{side}"
    labels = [i % 2 for i in range(SAMPLES - 1)] + [min(model["classes"], CLASSES) - 1]
    if data["kind"] == "idx":
        images, names = Path(data["images"]).stem, Path(data["labels"]).stem
        pixels = bytes(i * 37 % 256 for i in range(SAMPLES * side * side))
        (folder / images).write_bytes(struct.pack(">IIII", 2051, SAMPLES, side, side) + pixels)
        (folder / names).write_bytes(struct.pack(">II", 2049, SAMPLES) + bytes(labels))
        return f"{SAMPLES} images {shape}, {labels[-1] + 1} classes (IDX, {images})"
    if data["kind"] == "images":
        for i in range(SAMPLES):  # of another size than the model's
            file = folder / data["folder"] / f"class{i % 2}" / f"{i}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            write_png(file, side + 9, side + 2, bytes(j * 11 % 256 for j in range((side + 9) * (side + 2) * channels)),
                      channels)  # fmt: skip
        return f"{SAMPLES} images {shape}, 2 classes (image folder, {data['folder']})"
    count = SAMPLES * channels * side * side
    values = struct.pack("<101f", *(i / 50 - 1 for i in range(101))) * (count // 101 + 1)
    header = {"latents": {"dtype": "F32", "shape": [SAMPLES, channels, side, side], "data_offsets": [0, 4 * count]},
              "labels": {"dtype": "I64", "shape": [SAMPLES], "data_offsets": [4 * count, 4 * count + 8 * SAMPLES]}}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / data["latents"]).write_bytes(struct.pack("<Q", len(text)) + text + values[: 4 * count]
                                           + struct.pack(f"<{SAMPLES}q", *labels))  # fmt: skip
    return f"{SAMPLES} latents {shape}, {labels[-1] + 1} classes (float32, {data['latents']})"


class Configurations(unittest.TestCase):
    maxDiff = None

    def run_train(self, folder: str, *arguments: str) -> str:
        command = [str(TRAIN), "--device", "cpu", *arguments]
        result = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout

    def each(self, models: tuple[str, ...] = ("dit",)):
        paths = sorted(CONFIGS.glob("*.toml"))
        self.assertGreaterEqual(len(paths), 5)
        for path in paths:
            if tomllib.loads(path.read_text())["train"].get("model", "dit") not in models:
                continue
            with self.subTest(path.name), tempfile.TemporaryDirectory() as folder:
                yield path, folder

    def test_print_config_repeats_what_the_file_says(self):
        for path, folder in self.each(("dit", "diffusion_planner", "llava", "vggt")):
            printed = tomllib.loads(self.run_train(folder, "--config", str(path), "--print-config"))
            for table, keys in tomllib.loads(path.read_text()).items():
                for key, value in keys.items():
                    if isinstance(value, dict):
                        self.assertLessEqual(value.items(), printed[table][key].items())
                    else:
                        self.assertEqual(printed[table][key], value, f"{table}.{key}")

    def test_the_page_of_keys_is_what_the_program_prints(self):
        with tempfile.TemporaryDirectory() as folder:
            page = self.run_train(folder, "--keys")
            readme = (CONFIGS.parent / "toolkit/config/README.md").read_text(encoding="utf-8")
            self.assertIn(f"\n```\n{page}```\n", readme, "write what dit-train --keys prints into toolkit/config/README.md")
            self.assertTrue(all(len(line) < 80 for line in page.splitlines()), page)
            part = self.run_train(folder, "--keys", "policies.ema")
            self.assertIn(part, page)
            self.assertEqual(part.splitlines()[0], "[policies.ema]")
            self.assertEqual(self.run_train(folder, "--keys=data.bat"), "[data]\n  batch = 16                          an integer in [1, inf)\n      samples of an optimizer step\n")
            result = subprocess.run([str(TRAIN), "--keys", "data.bats"], capture_output=True, text=True)
            self.assertEqual((result.returncode, result.stdout, result.stderr),
                             (2, "", "dit-train: --keys data.bats: no key begins so; near: data.batch\n"))  # fmt: skip

    def test_every_key_of_a_printed_configuration_is_on_the_page(self):
        for path, folder in self.each(("dit", "diffusion_planner", "llava", "vggt")):
            printed = self.run_train(folder, "--config", str(path), "--print-config")
            table = ""
            for line in printed.splitlines():
                if line.startswith("["):
                    table = line
                    continue
                name = line.removeprefix("# ").split(" ")[0]
                if name:
                    self.assertIn(f"{table}\n", self.keys())
                    self.assertRegex(f"\n{self.keys()}".split(f"\n{table}\n")[1].split("\n[")[0], rf"(?m)^  {re.escape(name)} = ")

    def keys(self) -> str:
        if not hasattr(Configurations, "page"):
            Configurations.page = self.run_train(".", "--keys")
        return Configurations.page

    def check_run(self, path: Path, folder: str, own_data: bool) -> str:
        config = tomllib.loads(path.read_text())
        output = self.run_train(folder, "--config", str(path), *narrow(config, own_data))
        self.assertIn(" after 2 steps, ", output)
        images = config["model"]["channels"] in (1, 3)
        self.assertTrue(list(Path(folder, "run/samples").glob("*.png" if images else "*.safetensors")))
        return output

    def test_trains_and_samples(self):
        for path, folder in self.each():
            self.check_run(path, folder, own_data=False)

    def test_its_data_are_read_as_it_says(self):
        kinds = set()
        for path, folder in self.each():
            config = tomllib.loads(path.read_text())
            said = write_data(config, Path(folder))
            output = self.check_run(path, folder, own_data=True)
            self.assertIn(f"\ndata: {said}\n", output)
            saved = tomllib.loads(Path(folder, "run/config.toml").read_text())["data"]
            places = ("images", "labels") if config["data"]["kind"] == "idx" else ()
            for key, value in config["data"].items():
                if key not in ("batch", "validation", *places):
                    self.assertEqual(saved[key], value, f"data.{key}")
            kinds.add(config["data"]["kind"])
        self.assertEqual(kinds, {"idx", "images", "latents"})


if __name__ == "__main__":
    TRAIN, CONFIGS = (Path(argument).resolve() for argument in sys.argv[1:3])
    unittest.main(argv=sys.argv[:1])
