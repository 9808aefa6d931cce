"""weights_exchange_test.py DIT_EXPORT DIT_SAMPLE [unittest arguments]: weights to and from PyTorch.

Needs the Python packages that `bash cmake/setup.sh full` installs: torch and safetensors.
"""

import argparse
import collections
import math
import subprocess
import sys
import tempfile
import unittest
import warnings
from pathlib import Path

warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
import safetensors.torch  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

FIXTURE = Path(__file__).resolve().parents[2] / "fixtures" / "dit_tiny"
EXPORT = SAMPLE = Path()
HIDDEN, DEPTH, HEADS, PATCH, SIDE, CHANNELS, CLASSES = 64, 2, 4, 2, 8, 4, 10
OUTPUTS = 2 * CHANNELS  # the prediction, then what the variance is made of

CONFIG = f"""\
[train]
steps = 1
[model]
depth = {DEPTH}
hidden = {HIDDEN}
heads = {HEADS}
patch = {PATCH}
image_size = {SIDE}
channels = {CHANNELS}
classes = {CLASSES}
learn_sigma = true
[diffusion]
objective = "epsilon"
"""


def modulate(x, shift, scale):
    x = functional.layer_norm(x, x.shape[-1:], eps=1e-6)
    return x * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)


class Holder(nn.Module):
    """Gives its members the names of the original's modules."""

    def __init__(self, **members):
        super().__init__()
        for name, member in members.items():
            setattr(self, name, member)


def modulation(chunks):
    return nn.Sequential(nn.SiLU(), nn.Linear(HIDDEN, chunks * HIDDEN))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = Holder(qkv=nn.Linear(HIDDEN, 3 * HIDDEN), proj=nn.Linear(HIDDEN, HIDDEN))
        self.mlp = Holder(fc1=nn.Linear(HIDDEN, 4 * HIDDEN), fc2=nn.Linear(4 * HIDDEN, HIDDEN))
        self.adaLN_modulation = modulation(6)

    def attend(self, x):
        n, tokens, _ = x.shape
        q, k, v = self.attn.qkv(x).reshape(n, tokens, 3, HEADS, HIDDEN // HEADS).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-2, -1) / math.sqrt(HIDDEN // HEADS)).softmax(-1)
        return self.attn.proj((weights @ v).transpose(1, 2).reshape(n, tokens, HIDDEN))

    def forward(self, x, c):
        shift1, scale1, gate1, shift2, scale2, gate2 = self.adaLN_modulation(c).chunk(6, dim=1)
        x = x + gate1.unsqueeze(1) * self.attend(modulate(x, shift1, scale1))
        inner = functional.gelu(self.mlp.fc1(modulate(x, shift2, scale2)), approximate="tanh")
        return x + gate2.unsqueeze(1) * self.mlp.fc2(inner)


class DiT(nn.Module):
    """The diffusion transformer with the module names of the published code."""

    def __init__(self):
        super().__init__()
        grid = SIDE // PATCH
        self.x_embedder = Holder(proj=nn.Conv2d(CHANNELS, HIDDEN, PATCH, PATCH))
        self.t_embedder = Holder(mlp=nn.Sequential(nn.Linear(256, HIDDEN), nn.SiLU(), nn.Linear(HIDDEN, HIDDEN)))
        self.y_embedder = Holder(embedding_table=nn.Embedding(CLASSES + 1, HIDDEN))
        self.pos_embed = nn.Parameter(torch.zeros(1, grid * grid, HIDDEN), requires_grad=False)
        self.blocks = nn.ModuleList(Block() for _ in range(DEPTH))
        self.final_layer = Holder(
            linear=nn.Linear(HIDDEN, PATCH * PATCH * OUTPUTS), adaLN_modulation=modulation(2)
        )

    def forward(self, x, t, y):
        frequencies = torch.exp(-math.log(10000) * torch.arange(128) / 128)
        angles = t[:, None].float() * frequencies
        time = self.t_embedder.mlp(torch.cat([angles.cos(), angles.sin()], dim=1))
        c = time + self.y_embedder.embedding_table(y)
        x = self.x_embedder.proj(x).flatten(2).transpose(1, 2) + self.pos_embed
        for block in self.blocks:
            x = block(x, c)
        shift, scale = self.final_layer.adaLN_modulation(c).chunk(2, dim=1)
        x = self.final_layer.linear(modulate(x, shift, scale))
        grid = SIDE // PATCH
        x = x.reshape(-1, grid, grid, PATCH, PATCH, OUTPUTS).permute(0, 5, 1, 3, 2, 4)
        return x.reshape(-1, OUTPUTS, SIDE, SIDE)


def fixture() -> dict[str, torch.Tensor]:
    return safetensors.torch.load_file(f"{FIXTURE}.safetensors")


def fixture_weights() -> dict[str, torch.Tensor]:
    return {name[2:]: tensor for name, tensor in fixture().items() if name.startswith("w.")}


def shifted(weights: dict[str, torch.Tensor], by: float) -> dict[str, torch.Tensor]:
    return {name: tensor + by for name, tensor in weights.items()}


class ExchangeTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "config.toml").write_text(CONFIG)
        self.weights = fixture_weights()

    def save(self, value: object, **options) -> None:
        torch.save(value, self.folder / "in.pt", **options)

    def export(self, *arguments: str, source: str = "in.pt", out: str = "out.pt"):
        command = [str(EXPORT), "--checkpoint", source, "--out", out, "--overwrite", *arguments]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=120)

    def exported(self, *arguments: str, **options) -> dict[str, torch.Tensor]:
        result = self.export(*arguments, **options)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.printed = result.stdout
        return torch.load(self.folder / "out.pt", weights_only=True)

    def assert_refused(self, code: int, message: str, *arguments: str) -> None:
        result = self.export(*arguments)
        self.assertEqual((result.returncode, result.stderr), (code, f"dit-export: {message}\n"))
        self.assertFalse((self.folder / "out.pt").exists())

    def assert_same(self, seen: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
        self.assertEqual(set(seen), set(expected))
        for name, tensor in expected.items():
            self.assertEqual(seen[name].dtype, torch.float32, name)
            self.assertTrue(torch.equal(seen[name], tensor.float()), name)


class Reading(ExchangeTest):
    """Files of torch.save, whose values dit-export hands on bit for bit."""

    def test_a_state_dict_by_every_protocol(self):
        model = DiT()
        model.load_state_dict(self.weights)
        for protocol in (2, 3, 4, 5):
            self.save(model.state_dict(), pickle_protocol=protocol)
            self.assert_same(self.exported(), self.weights)
            count = sum(1 for _ in self.weights)
            self.assertEqual(self.printed, f"{count} tensors of the weights of in.pt: out.pt\n")

    def test_plain_dicts_parameters_and_wrappers(self):
        model = DiT()
        model.load_state_dict(self.weights)
        for value in (
            dict(self.weights),
            model.state_dict(keep_vars=True),
            nn.DataParallel(model).state_dict(),
            {"state_dict": {f"_orig_mod.{name}": tensor for name, tensor in self.weights.items()}},
            {**self.weights, "epoch": 3, "note": "hello", "lr": 1e-4, "none": None},
        ):
            self.save(value)
            self.assert_same(self.exported(), self.weights)

    def test_what_the_original_trainer_writes(self):
        model = DiT()
        model.load_state_dict(self.weights)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        sum(parameter.sum() for parameter in model.parameters() if parameter.requires_grad).backward()
        optimizer.step()
        raw = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        arguments = argparse.Namespace(data_path=Path("/data"), epochs=1400, results_dir="results")
        self.save({"model": raw, "ema": self.weights, "opt": optimizer.state_dict(), "args": arguments})
        self.assert_same(self.exported(), self.weights)
        self.assertIn('of the "ema" weights of in.pt: out.pt', self.printed)
        self.assert_same(self.exported("--key", "model"), raw)
        self.assert_same(self.exported("--raw"), raw)
        (self.folder / "out.pt").unlink()
        self.assert_refused(
            2,
            '--key opt: in.pt has no weights under this key; allowed: "model" or "ema"',
            "--key",
            "opt",
        )

    def test_other_precisions_are_converted(self):
        for dtype, name in ((torch.float16, "float16"), (torch.bfloat16, "bfloat16"), (torch.float64, "float64")):
            converted = {key: tensor.to(dtype) for key, tensor in self.weights.items()}
            self.save(converted)
            self.assert_same(self.exported(), converted)
            self.assertTrue(
                self.printed.startswith(f"{len(converted)} tensors converted from {name} to float32\n")
            )

    def test_views_of_any_layout(self):
        flat = torch.cat([tensor.flatten() for tensor in self.weights.values()])
        views, begin = {}, 0
        for name, tensor in self.weights.items():
            views[name] = flat[begin : begin + tensor.numel()].view(tensor.shape)
            begin += tensor.numel()
        self.save(views)
        self.assert_same(self.exported(), self.weights)
        turned = {name: tensor.T.contiguous().T if tensor.dim() == 2 else tensor for name, tensor in views.items()}
        self.assertFalse(turned["blocks.0.attn.qkv.weight"].is_contiguous())
        self.save(turned)
        self.assert_same(self.exported(), self.weights)
        every_second = {name: torch.stack([tensor, tensor + 1], -1)[..., 0] for name, tensor in views.items()}
        self.save(every_second)
        self.assert_same(self.exported(), self.weights)
        self.save({**self.weights, "blocks.0.attn.qkv.bias": torch.ones(1).expand(3 * HIDDEN)})
        self.assertTrue(torch.equal(self.exported()["blocks.0.attn.qkv.bias"], torch.ones(3 * HIDDEN)))

    def test_without_checksums(self):
        before = torch.serialization.get_crc32_options()
        torch.serialization.set_crc32_options(False)
        self.addCleanup(torch.serialization.set_crc32_options, before)
        self.save(self.weights)
        self.assert_same(self.exported(), self.weights)

    def test_what_is_not_read(self):
        self.save(self.weights, _use_new_zipfile_serialization=False)
        self.assert_refused(
            4,
            "--checkpoint in.pt: in.pt: it is in the format that torch.save wrote before PyTorch 1.6, which is not read; write it "
            'again in Python: torch.save(torch.load("in.pt", map_location="cpu"), "new.pt")',
        )
        self.save(nn.Linear(2, 2))
        self.assert_refused(
            4,
            '--checkpoint in.pt: it holds no named tensors but an object of "torch.nn.modules.linear.Linear"; allowed: a state '
            'dict, or a dict of state dicts such as {"model": ..., "ema": ...}; write it so with torch.save',
        )
        self.save({**self.weights, "pos_embed": self.weights["pos_embed"].long()})
        self.assert_refused(
            2,
            "--checkpoint in.pt: the weights of in.pt are not those of this model\n  not floating-point (1): pos_embed holds Long\n"
            "  Allowed are the parameters of this model, all of them and no others, in floating point; name such "
            "weights, or set [model] as these were trained",
        )
        torch.jit.save(torch.jit.script(nn.Linear(2, 2)), self.folder / "in.pt")
        self.assert_refused(
            4,
            "--checkpoint in.pt: in.pt: it is a TorchScript archive, which is not read; save the model's state_dict() with "
            "torch.save",
        )

    def test_a_changed_byte_anywhere_in_the_data_is_noticed(self):
        self.save(self.weights)
        content = bytearray((self.folder / "in.pt").read_bytes())
        name = "blocks.1.mlp.fc2.weight"
        data = bytes(self.weights[name].contiguous().view(torch.uint8).flatten().tolist())
        content[content.index(data) + len(data) // 2] ^= 16
        (self.folder / "in.pt").write_bytes(content)
        result = self.export()
        self.assertEqual(result.returncode, 4)
        self.assertRegex(
            result.stderr,
            r'^dit-export: --checkpoint in\.pt: in\.pt: zip entry "in/data/\d+" has changed since it was written \(its CRC-32 '
            r"differs\); get the file again, or write it again with torch\.save$",
        )

    def test_a_hostile_pickle_runs_nothing(self):
        trace = self.folder / "trace"

        class Hostile:
            def __reduce__(self):
                return (open, (str(trace), "w"))

        self.save({"ema": self.weights, "hook": Hostile()})
        self.assert_same(self.exported(), self.weights)
        self.assertFalse(trace.exists())
        (self.folder / "out.pt").unlink()
        self.save(Hostile())
        self.assert_refused(
            4,
            '--checkpoint in.pt: it holds no named tensors but an object of "io.open"; allowed: a state dict, or a dict of '
            'state dicts such as {"model": ..., "ema": ...}; write it so with torch.save',
        )
        self.assertFalse(trace.exists())


class Writing(ExchangeTest):
    """What dit-export writes is read by the packages of others."""

    def load_strictly(self, state: dict[str, torch.Tensor]) -> DiT:
        model = DiT()
        model.load_state_dict(state, strict=True)
        return model.eval()

    def test_outputs_agree_with_the_stored_ones_of_the_original(self):
        self.save(self.weights)
        stored = fixture()
        for out, load in (
            ("out.pt", lambda path: torch.load(path, weights_only=True)),
            ("out.safetensors", safetensors.torch.load_file),
        ):
            self.exported(out="out.pt")
            self.assertEqual(self.export(out=out).returncode, 0)
            state = load(self.folder / out)
            self.assert_same(state, self.weights)
            with torch.no_grad():
                seen = self.load_strictly(state)(stored["x"], stored["t"], stored["y"])
            self.assertEqual(seen.shape, stored["out64"].shape)
            worst = (seen - stored["out64"]).abs().max().item()
            self.assertLess(worst, 1e-5)  # as the toolkit's own model in dit_test.cpp
            self.assertGreater(seen.abs().max().item(), 1)

    def test_a_state_dict_in_order(self):
        self.save(shifted(self.weights, 0.5))
        state = self.exported()
        self.assertIs(type(state), collections.OrderedDict)
        self.assertEqual(list(state)[:3], ["pos_embed", "x_embedder.proj.weight", "x_embedder.proj.bias"])
        self.assertTrue(all(tensor.is_contiguous() and not tensor.requires_grad for tensor in state.values()))
        mapped = torch.load(self.folder / "out.pt", weights_only=True, mmap=True)
        self.assert_same(mapped, shifted(self.weights, 0.5))

    def test_a_missing_position_table_is_made(self):
        expected = self.weights["pos_embed"]
        self.save({name: tensor for name, tensor in self.weights.items() if name != "pos_embed"})
        self.assertLess((self.exported()["pos_embed"] - expected).abs().max().item(), 1e-6)

    def test_samples_of_a_file_are_those_of_its_export(self):
        # A small shift: what the variance is made of stands in an exponent.
        self.save({"model": shifted(self.weights, 0.01), "ema": self.weights})
        drawn = []
        self.exported()
        self.assertEqual(self.export(out="out.safetensors").returncode, 0)
        self.assertEqual(self.export("--raw", out="raw.safetensors").returncode, 0)
        for number, weights in enumerate(
            (["in.pt"], ["out.pt"], ["out.safetensors"], ["in.pt", "--key", "model"], ["raw.safetensors"])
        ):
            command = [str(SAMPLE), "--weights", *weights, "--classes", "0,1", "--steps", "2"]
            command += ["--out", f"{number}.safetensors", "--device", "cpu", "--threads", "1"]
            result = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=120)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            drawn.append(safetensors.torch.load_file(self.folder / f"{number}.safetensors")["samples"])
        self.assertTrue(all(samples.isfinite().all() for samples in drawn))
        for other in drawn[1:3]:
            self.assertTrue(torch.equal(other, drawn[0]))
        self.assertTrue(torch.equal(drawn[4], drawn[3]))
        self.assertFalse(torch.equal(drawn[3], drawn[0]))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    EXPORT, SAMPLE = (Path(path).resolve() for path in sys.argv[1:3])
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
