"""diffusion_planner_weights_test.py PROGRAM [unittest arguments]: the driving model's weights from PyTorch and back to it.

PROGRAM is diffusion_planner_weights, which puts a file's weights into the model and writes the model's. Needs torch, which
`bash cmake/setup.sh full` installs.
"""

import collections
import subprocess
import sys
import tempfile
import unittest
import warnings
from pathlib import Path

warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
import torch  # noqa: E402
from torch import nn  # noqa: E402

KEYS = Path(__file__).resolve().parents[2] / "fixtures" / "diffusion_planner" / "keys.txt"
PROGRAM = Path()


def published(preset: str) -> dict[str, list[int]]:
    """Names and shapes of the published state dict, in its order."""
    shapes = {}
    for line in KEYS.read_text().splitlines():
        if line.startswith(f"{preset}\t"):
            _, name, shape, _ = line.split("\t")
            shapes[name] = [int(size) for size in shape.strip("[]").split(",")]
    return shapes


def weights(preset: str, seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=generator) for name, shape in published(preset).items()}


class Node(nn.Module):
    """A module of a tree of modules and parameters that dotted names describe, as any PyTorch model is one."""

    def __init__(self, shapes: dict[str, list[int]]):
        super().__init__()
        parts = collections.defaultdict(dict)
        for name, shape in shapes.items():
            first, dot, rest = name.partition(".")
            if dot:
                parts[first][rest] = shape
            else:
                self.register_parameter(first, nn.Parameter(torch.zeros(shape)))
        for name, part in parts.items():
            self.add_module(name, Node(part))


def as_the_original_saves(raw: dict[str, torch.Tensor], average: dict[str, torch.Tensor]) -> dict[str, object]:
    """The file of a run of several processes, with the state of a real optimizer and of a real schedule."""
    parameter = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW([parameter], lr=1e-4)
    parameter.sum().backward()
    optimizer.step()
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=4)

    def under_ddp(state):
        return collections.OrderedDict((f"module.{name}", tensor) for name, tensor in state.items())

    return {
        "epoch": 3,
        "model": under_ddp(raw),
        "ema_state_dict": under_ddp(average),
        "optimizer": optimizer.state_dict(),
        "schedule": schedule.state_dict(),
        "loss": 0.25,
        "wandb_id": None,
    }


class DiffusionPlannerWeightsTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_program(self, value: object, preset: str, *key: str) -> subprocess.CompletedProcess:
        torch.save(value, self.folder / "in.pth")
        command = [str(PROGRAM), preset, "in.pth", "out.pth", *key]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=120)

    def through(self, value: object, preset: str, *key: str) -> dict[str, torch.Tensor]:
        result = self.run_program(value, preset, *key)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.printed = result.stdout
        return torch.load(self.folder / "out.pth", weights_only=True)

    def assert_same(self, seen: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
        self.assertEqual(list(seen), list(expected))  # in the published order, too
        for name, tensor in expected.items():
            self.assertEqual(seen[name].dtype, torch.float32, name)
            self.assertTrue(torch.equal(seen[name].view(torch.int32), tensor.view(torch.int32)), name)

    def test_state_dicts_of_both_models_there_and_back(self):
        of_h = ("H", 740, 14545305)
        for preset, (file_of, count, numbers) in (("H", of_h), ("M", of_h), ("UP", ("UP", 276, 6042628))):
            state = weights(file_of, 1)
            self.assertEqual((len(state), sum(tensor.numel() for tensor in state.values())), (count, numbers))
            seen = self.through(collections.OrderedDict(state), preset)
            self.assertIs(type(seen), collections.OrderedDict)
            self.assert_same(seen, state)
            model = Node(published(file_of))
            model.load_state_dict(seen, strict=True)
            self.assert_same({name: model.state_dict()[name] for name in state}, state)

    def test_a_model_under_a_wrapper(self):
        model = Node(published("UP"))
        state = weights("UP", 2)
        model.load_state_dict(state)
        self.assert_same(self.through(nn.DataParallel(model).state_dict(), "UP"), state)
        self.assert_same(self.through({**state, "epoch": 3, "note": "hello"}, "UP"), state)

    def test_the_file_of_a_training(self):
        raw, average = weights("H", 3), weights("H", 4)
        file = as_the_original_saves(raw, average)
        self.assert_same(self.through(file, "H"), raw)
        self.assertEqual(self.printed, 'the "model" weights of in.pth\n')
        self.assert_same(self.through(file, "H", "ema_state_dict"), average)
        self.assertEqual(self.printed, 'the "ema_state_dict" weights of in.pth\n')
        result = self.run_program(file, "H", "ema")
        self.assertEqual(
            (result.returncode, result.stderr),
            (2, '--key ema: in.pth has no weights under this key; allowed: "model" or "ema_state_dict"\n'),
        )

    def test_what_does_not_fit_is_named(self):
        state = weights("UP", 5)
        name = "encoder.encoder.pos_emb.bias"
        result = self.run_program({**state, name: torch.ones(193)}, "UP")
        self.assertEqual(result.returncode, 2)
        self.assertIn(f"  of another shape (1): {name} is [193], not [192]\n", result.stderr)
        result = self.run_program(state, "H")
        self.assertEqual(result.returncode, 2)
        self.assertIn("\n  missing (740): encoder.route_position_embedding [1, 25, 256], ", result.stderr)
        self.assertIn("\n  unknown (276): ", result.stderr)
        self.assertTrue(result.stderr.endswith('of another preset; set diffusion_planner.preset = "UP"\n'), result.stderr)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    PROGRAM = Path(sys.argv[1]).resolve()
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
