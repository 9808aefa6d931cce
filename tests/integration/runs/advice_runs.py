"""Advice in error texts: each use of advise() in the sources is provoked, and what it says, done literally, is accepted."""

import re
import struct
import unittest
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import programs
from programs import CLASSES, ProgramTest, execute, settings

SOURCE = Path(__file__).resolve().parents[3]
USE = re.compile(r"(?<!string )\badvise\(\s*([^,]+?),")
ADVICE = re.compile(r"set ([a-z_]+(?:\.[a-z_0-9]+)+) = (\"[^\"]*\"|[^\s,;.]+(?:\.\d+)?)")
BY_HAND = re.compile(r"\"[^\"\n]*(?<!-)\b(?:set|use|or) [a-z_]+(?:\.[a-z_]+)+ ?= ?[\\\w][^\"\n]*\"?")
NAMES = {  # of keys in the sources
    "kEnabled": "policies.attention.enabled",
    "kCheckpointEnabled": "policies.checkpoint.enabled",
    "kKey": "policies.checkpoint.keep",
    "kKernel": "policies.attention.kernel",
    "kSwitch": "policies.fusion.enabled",
    "kOnCuda": "policies.fusion.cuda",
    "key": "diffusion_planner.process.prefix",
    "probability": "diffusion_planner.augmentation.probability",
    "smooth": "diffusion_planner.augmentation.smooth",
}


def key_of(argument: str) -> str:
    return argument.strip('"') if argument.startswith('"') else NAMES[argument]


def joined(text: str) -> str:
    """Literals that stand in several pieces as one, in C++ or Python."""
    text = re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)
    return re.sub(r"""["']\s*\n\s*r?["']""", "", text)


@dataclass
class Provoked:
    """How a use is provoked: `keys` set over tiny.toml; `key` is what the advice sets first."""

    key: str
    keys: dict
    runs: bool = True  # else --print-config refuses it
    base: str = "tiny.toml"
    prepare: Callable[["Advice"], None] = lambda test: None
    arguments: tuple[str, ...] = ()  # instead of a new run
    gone: bool = False  # what is left to say is another matter: only this message must be gone


def rule(key: str, **keys) -> Provoked:
    return Provoked(key, keys, runs=False)


def png(channels: int, bits: int, side: int = 8) -> bytes:
    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    kind = {1: 0, 3: 2}[channels]
    rows = b"".join(b"\0" + bytes((x * 29 + y * 7) % 256 for x in range(side * channels * bits // 8)) for y in range(side))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, bits, kind, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))  # fmt: skip


def pictures(channels: int, bits: int = 8) -> Callable[["Advice"], None]:
    def write(test: "Advice") -> None:
        for i in range(16):
            path = test.folder / f"photos/c{i % 2}/{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(png(channels, bits))

    return write


def trained(**keys) -> Callable[["Advice"], None]:
    def train(test: "Advice") -> None:
        test.assert_done(test.train(train__out="first", **keys))

    return train


FOLDER = {"data__kind": "images", "data__folder": "photos", "data__images": "default", "data__labels": "default"}
EPSILON = {"diffusion__objective": "epsilon", "model__learn_sigma": "default", "diffusion__steps": 50}
UP = "diffusion_planner_up"
NESTED = '["encoder.encoder.lane_encoder", "encoder.encoder.lane_encoder.blocks.*"]'
TIGHT = {"data__batch": 64, "memory__budget": 500_000, "policies__checkpoint__enabled": "false"}
GATHERED_BF16 = {"policies__shard__level": "parameters", "policies__shard__gather": "bf16"}

PROVOKED: dict[str, list[Provoked]] = {
    "toolkit/config/rules.cpp": [
        rule("schedule.kind", schedule__kind="epochs"),
        rule("schedule.warmup", schedule__warmup=1000),
        rule("policies.checkpoint.keep", policies__checkpoint__keep="auto"),
        rule("policies.shard.level", policies__shard__level="auto"),
        rule("policies.precision.enabled", **GATHERED_BF16, policies__precision__cpu="default"),
        rule("policies.shard.gather", **GATHERED_BF16),
        rule("policies.precision.enabled", policies__precision__enabled="true", policies__precision__cpu="bf16"),
        rule("policies.attention.enabled", policies__attention__enabled="false",
             policies__checkpoint__keep='["aten::scaled_dot_product_attention"]'),
        rule("memory.ledger", memory__on_out_of_memory="escalate", memory__ledger="false"),
        rule("memory.on_out_of_memory", memory__on_out_of_memory="escalate", memory__ledger="false"),
        rule("train.validate_ema", train__validate_ema="true", data__validation=8, policies__ema__enabled="false"),
        rule("sample.ema", sample__ema="true", policies__ema__enabled="false"),
        rule("data.batch", train__accumulate=3),
    ],
    "toolkit/families/dit/configuration.cpp": [
        rule("model.name", model__name="DiT-S/4"),
        rule("sample.guidance", model__class_dropout=0),
        rule("model.channels", **FOLDER, data__convert="rgb"),
        rule("model.learn_sigma", model__learn_sigma="true"),
        rule("diffusion.betas", **EPSILON | {"diffusion__steps": 10}),
    ],
    "toolkit/families/dit/open_data.cpp": [
        Provoked("model.channels", {"model__image_size": 16}),
        Provoked("model.image_size", {"model__image_size": 16}),
        Provoked("model.classes", {"model__classes": 2}),
        Provoked("data.samples", {"data__samples": 3}),
    ],
    "toolkit/families/dit/weights.cpp": [
        Provoked("model.classes", {"train__init_from": "first", "model__classes": CLASSES + 3}, prepare=trained()),
        Provoked("model.classes", {"train__init_from": "first", "model__class_dropout": 0, "sample__guidance": 1},
                 prepare=trained()),
        Provoked("model.image_size", {"train__init_from": "first", "model__image_size": 16}, prepare=trained()),
        Provoked("model.learn_sigma", {"train__init_from": "first", **EPSILON, "model__learn_sigma": "false"},
                 prepare=trained(**EPSILON)),
        Provoked("model.learn_sigma", {"train__init_from": "first", **EPSILON}, prepare=trained()),
    ],
    "toolkit/data/loader.cpp": [Provoked("data.batch", {"data__batch": 512})],
    "toolkit/data/image.cpp": [
        Provoked("data.convert", {**FOLDER, "data__convert": "none", "model__channels": 3}, prepare=pictures(3, 16)),
        Provoked("data.convert", {**FOLDER, "data__convert": "none", "model__channels": 3},
                 prepare=lambda test: test.write_cmyk()),
    ],
    "toolkit/data/image_folder.cpp": [
        Provoked("data.convert", {**FOLDER, "data__convert": "none", "model__channels": 3}, prepare=pictures(1)),
        Provoked("model.channels", FOLDER, prepare=pictures(3)),
    ],
    "toolkit/run/training_run.cpp": [
        Provoked("train.sample_every", {"train__sample_every": 5, "sample__per_class": 64, "data__batch": 1,
                                        "memory__budget": 260_000, "memory__on_over_budget": "warn"}, gone=True),
    ],
    "toolkit/run/folder.cpp": [
        Provoked("train.threads", {"train__threads": 2, "train__steps": 30}, prepare=trained(),
                 arguments=("--resume", "first")),
        Provoked("train.allow_thread_change", {"train__threads": 2, "train__steps": 30}, prepare=trained(),
                 arguments=("--resume", "first")),
    ],
    "toolkit/run/out_of_memory.cpp": [
        Provoked("memory.budget", TIGHT),
        Provoked("data.batch", TIGHT),
        Provoked("train.accumulate", TIGHT),
        Provoked("policies.ema.enabled", {"memory__budget": 190_000}, gone=True),
    ],
    "toolkit/run/start.cpp": [
        Provoked("memory.on_over_budget", TIGHT | {"memory__budget": 600_000}, gone=True),
        Provoked("data.allow_change", {"train__steps": 30}, prepare=lambda test: test.train_and_add_samples(),
                 arguments=("--resume", "first")),
    ],
    "toolkit/families/diffusion_planner/configuration.cpp": [
        Provoked("diffusion_planner.process.prefix", {"diffusion_planner__process__prefix": "true"}, runs=False, base=UP),
        Provoked("diffusion_planner.augmentation.probability", {"diffusion_planner__augmentation__probability": 0.5},
                 runs=False, base=UP),
        Provoked("diffusion_planner.augmentation.smooth", {"diffusion_planner__augmentation__probability": 0.5},
                 runs=False, base=UP),
    ],
    "toolkit/plan/place_checkpoints.cpp": [
        Provoked("policies.checkpoint.keep", {"policies__checkpoint__keep": "auto", "memory__budget": "40MB",
                                              "policies__checkpoint__targets": NESTED}, base=UP, gone=True),
        Provoked("policies.checkpoint.keep", {"policies__checkpoint__keep": "auto", "policies__checkpoint__targets": "[]",
                                              "memory__budget": "40MB"}),
    ],
    "policies/set/built_in_kinds.cpp": [Provoked("policies.attention.kernel", {"policies__attention__kernel": "cudnn"})],
    "policies/ema/ema.cpp": [Provoked("policies.ema.device", {"policies__ema__enabled": "true"})],
    "policies/precision/precision.cpp": [
        Provoked("policies.precision.enabled", {
            "policies__precision__enabled": "true", "policies__precision__cpu": "default",
            "policies__precision__fp32": '["*", "blocks.*"]'}),
    ],
    "policies/activations/checkpoint_policy.cpp": [
        Provoked("policies.checkpoint.keep", {"policies__checkpoint__enabled": "true", "policies__checkpoint__keep": "all"}),
        Provoked("policies.checkpoint.enabled", {"policies__checkpoint__enabled": "true",
                                                 "policies__checkpoint__keep": '["blocks.*: all"]'}),
        Provoked("policies.checkpoint.enabled", {"policies__checkpoint__enabled": "true", "policies__checkpoint__keep": "all"}),
        Provoked("policies.checkpoint.enabled", {"policies__checkpoint__enabled": "true", "policies__checkpoint__targets": "[]"}),
        Provoked("policies.checkpoint.enabled", {"policies__checkpoint__enabled": "true",
                                                 "policies__checkpoint__targets": '["y_embedder"]'}),
        Provoked("policies.checkpoint.segment", {"policies__checkpoint__segment": 2, "policies__checkpoint__targets": NESTED},
                 base=UP, gone=True),
    ],
}  # fmt: skip

# What no command here leads to: the key, the test that has the message to the letter, and a part of it.
OF_LIBRARIES: dict[str, list[tuple[str, str, str]]] = {
    "toolkit/run/out_of_memory.cpp": [
        ("policies.shard.level", "tests/integration/ranks/rank_plans_test.py", 'divide the weights too, which by its plan fits: set policies.shard.level = "parameters"'),
    ],
    "toolkit/train/validation.cpp": [
        ("train.validate_ema", "tests/toolkit/train/validation_test.cpp", "as its policies say; set train.validate_ema = false"),
    ],
    "toolkit/run/start.cpp": [
        ("memory.on_over_budget", "tests/integration/runs/memory_refusals.py", r'so it cannot hold the run; use a smaller model or data\.batch, or set memory\.on_over_budget'),
        ("policies.checkpoint.keep", "tests/toolkit/plan/placement_run_test.cpp", 'nobody plans this run; set policies.checkpoint.keep = "block"'),
    ],
    "toolkit/distributed/agreement.cpp": [
        ("distributed.backend", "tests/integration/ranks/ranks_test.py", r'CPU; set distributed\.backend = "auto"'),
        ("data.batch", "tests/integration/ranks/ranks_test.py", r"3 ranks do not divide it; set data\.batch = 9"),
        ("train.accumulate", "tests/integration/ranks/ranks_test.py", r"1, 2 or 4 ranks, or set train\.accumulate = 6"),
        ("memory.split", "tests/integration/ranks/ranks_test.py", r"set memory\.split = 1 and raise train\.accumulate"),
        ("memory.on_out_of_memory", "tests/integration/ranks/ranks_test.py", r'not be the others\'; set memory\.on_out_of_memory = "stop"'),
    ],
    "toolkit/families/diffusion_planner/weights.cpp": [
        ("diffusion_planner.preset", "tests/toolkit/families/diffusion_planner/weights_test.cpp", 'set diffusion_planner.preset = "H", or "M"'),
    ],
    "toolkit/families/vggt/inference.cpp": [
        ("policies.inference.narrow_weights", "tests/integration/families/vggt_test.py", "remove it, or set policies.inference.narrow_weights = false"),
    ],
    "policies/attention/attention.cpp": [
        ("policies.attention.enabled", "tests/policies/attention/attention_test.cpp", "LibTorch has no fused kernel for the attention of the model"),
        ("policies.attention.enabled", "tests/policies/attention/attention_test.cpp", "attn stores attention weights of its own"),
        ("policies.attention.enabled", "tests/policies/attention/attention_test.cpp", "the forward pass did not call the seam's attention"),
        ("policies.attention.kernel", "tests/planner/device/simulated_cuda_test.cpp", "has no effect: LibTorch took it for no call"),
    ],
    "policies/fusion/fusion.cpp": [
        ("policies.fusion.cuda", "tests/policies/fusion/fusion_test.cpp", "and are taken only if asked for; set policies.fusion.cuda = true"),
        ("policies.fusion.enabled", "tests/policies/fusion/fusion_test.cpp", "which runs LibTorch's operators there and says so"),
        ("policies.fusion.enabled", "tests/policies/fusion/fusion_test.cpp", "no module of this model has a fused form; set"),
    ],
    "policies/ema/ema.cpp": [
        ("policies.ema.enabled", "tests/policies/ema/ema_test.cpp", "change that, or set policies.ema.enabled = false"),
    ],
    "policies/precision/precision.cpp": [
        ("policies.precision.enabled", "tests/policies/set/seam_checks_test.cpp", "but no forward pass ran within forward_scope()"),
    ],
    "policies/set/built_in_kinds.cpp": [
        ("policies.precision.enabled", "tests/policies/shard/divided_weights_test.cpp", "set policies.precision.enabled = true, or remove it"),
    ],
    "policies/activations/keep_spec.cpp": [
        ("policies.checkpoint.keep", "tests/policies/activations/checkpoint_policy_test.cpp", 'or set policies.checkpoint.keep = "block"'),
    ],
}


class Advice(ProgramTest):
    def write_cmyk(self) -> None:
        pictures(3)(self)
        stored = programs.read_safetensors(SOURCE / "tests/fixtures/converted_images.safetensors")
        (self.folder / "photos/c0/cmyk.jpg").write_bytes(stored["cmyk.jpg"][1])

    def train_and_add_samples(self) -> None:
        self.assert_done(self.train(train__out="first"))
        (self.folder / "images").write_bytes(programs.idx_images(programs.IMAGES + 8))
        (self.folder / "labels").write_bytes(programs.idx_labels(programs.IMAGES + 8))

    def run_one(self, one: Provoked, more: dict) -> tuple[int, str]:
        base = [] if one.arguments else ["--config", one.base]
        command = [*base, *one.arguments, "--device", "cpu", *settings(one.keys | more)]
        result = execute(programs.TRAIN, self.folder, *command, *([] if one.runs else ["--print-config"]))
        return result.returncode, result.stderr

    def check(self, one: Provoked) -> None:
        one.prepare(self)
        code, message = self.run_one(one, {})
        self.assertIn(code, (2, 3, 4), message)  # configuration, memory, data
        # An alternative ends at "or"; "and" and "with" belong to it.
        parts = [part for part in re.split(r"[,;] (?:or )?", message) if f"set {one.key} = " in part]
        self.assertTrue(parts, f"no advice to set {one.key}: {message}")
        said = dict(ADVICE.findall(parts[0]))
        said |= dict(re.findall(r"with ([a-z_]+\.[a-z_]+) = (\w+)", parts[0]))  # what it asks for beside
        self.assertIn(one.key, said, message)
        code, after = self.run_one(one, {key.replace(".", "__"): value for key, value in said.items()})
        if one.gone:
            self.assertNotIn(parts[0], after)
        else:
            self.assertEqual((code, after), (0, ""), f"{message}\ndone: {said}")

    def test_each_is_accepted(self):
        for path, scenarios in PROVOKED.items():
            for number, one in enumerate(scenarios):
                with self.subTest(f"{path} {number} {one.key}"):
                    self.setUp()
                    self.check(one)


class Sources(unittest.TestCase):
    def texts(self):
        for library in ("toolkit", "policies"):
            for path in sorted(SOURCE.glob(f"{library}/**/*.[ch]*")):
                if path.name != "advice.h" and path.suffix in (".cpp", ".h"):
                    yield path.relative_to(SOURCE).as_posix(), path.read_text(encoding="utf-8")

    def test_every_use_is_provoked(self):
        uses = Counter((path, key_of(argument)) for path, text in self.texts() for argument in USE.findall(text))
        tried = Counter((path, one.key) for path, scenarios in PROVOKED.items() for one in scenarios)
        tried.update((path, key) for path, messages in OF_LIBRARIES.items() for key, _, _ in messages)
        self.assertEqual(uses, tried)

    def test_what_only_libraries_say_is_tested_there(self):
        for messages in OF_LIBRARIES.values():
            for _, test, part in messages:
                text = joined((SOURCE / test).read_text(encoding="utf-8")).replace('\\"', '"')
                self.assertIn(part, text, test)

    def test_no_advice_is_written_by_hand(self):
        found = [f"{path}: {match[0]}" for path, text in self.texts() for match in BY_HAND.finditer(joined(text))]
        self.assertEqual(found, [])
