"""The DiT of dit-train in PyTorch, written as its users write it, and a trainer that makes a step whenever a line
"step" comes in: the other side of benchmarks/step_time/step_time.py."""

import argparse
import math
import sys
import warnings
from pathlib import Path

warnings.filterwarnings("ignore", message="Failed to initialize NumPy")  # not needed, so not installed

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from eager_side import check_gradients, part, read_safetensors, serve  # noqa: E402

SIZES = {"S": (12, 384, 6), "B": (12, 768, 12), "L": (24, 1024, 16), "XL": (28, 1152, 16)}
CHANNELS, CLASSES, DROPOUT = 4, 1000, 0.1


class PatchEmbed(nn.Module):
    def __init__(self, hidden: int, patch: int):
        super().__init__()
        self.proj = nn.Conv2d(CHANNELS, hidden, patch, stride=patch)

    def forward(self, x):  # (N, C, S, S) -> (N, T, D)
        return self.proj(x).flatten(2).transpose(1, 2)


class TimeEmbed(nn.Module):
    def __init__(self, hidden: int):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(256, hidden), nn.SiLU(), nn.Linear(hidden, hidden))

    def forward(self, t):
        frequencies = torch.exp(-math.log(10000) * torch.arange(128, dtype=torch.float32, device=t.device) / 128)
        angles = t[:, None] * frequencies
        return self.mlp(torch.cat([angles.cos(), angles.sin()], dim=1))


class LabelEmbed(nn.Module):
    def __init__(self, hidden: int):
        super().__init__()
        self.embedding_table = nn.Embedding(CLASSES + 1, hidden)

    def forward(self, y):
        if self.training:
            y = torch.where(torch.rand(y.shape, device=y.device) < DROPOUT, CLASSES, y)
        return self.embedding_table(y)


def modulate(x, shift, scale):
    return x * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)


class Attention(nn.Module):
    def __init__(self, hidden: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.proj = nn.Linear(hidden, hidden)

    def forward(self, x):
        n, tokens, hidden = x.shape
        q, k, v = self.qkv(x).reshape(n, tokens, 3, self.heads, hidden // self.heads).permute(2, 0, 3, 1, 4)
        x = F.scaled_dot_product_attention(q, k, v)
        return self.proj(x.transpose(1, 2).reshape(n, tokens, hidden))


class Mlp(nn.Module):
    def __init__(self, hidden: int):
        super().__init__()
        self.fc1 = nn.Linear(hidden, 4 * hidden)
        self.fc2 = nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, hidden: int, heads: int):
        super().__init__()
        self.norm1 = nn.LayerNorm(hidden, elementwise_affine=False, eps=1e-6)
        self.attn = Attention(hidden, heads)
        self.norm2 = nn.LayerNorm(hidden, elementwise_affine=False, eps=1e-6)
        self.mlp = Mlp(hidden)
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(hidden, 6 * hidden))

    def forward(self, x, c):
        shift1, scale1, gate1, shift2, scale2, gate2 = self.adaLN_modulation(c).chunk(6, dim=1)
        x = x + gate1.unsqueeze(1) * self.attn(modulate(self.norm1(x), shift1, scale1))
        return x + gate2.unsqueeze(1) * self.mlp(modulate(self.norm2(x), shift2, scale2))


class FinalLayer(nn.Module):
    def __init__(self, hidden: int, patch: int):
        super().__init__()
        self.norm_final = nn.LayerNorm(hidden, elementwise_affine=False, eps=1e-6)
        self.linear = nn.Linear(hidden, patch * patch * CHANNELS)
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(hidden, 2 * hidden))

    def forward(self, x, c):
        shift, scale = self.adaLN_modulation(c).chunk(2, dim=1)
        return self.linear(modulate(self.norm_final(x), shift, scale))


class DiT(nn.Module):
    """Rectified flow, so without the channels of a learned variance."""

    def __init__(self, name: str, side: int):
        super().__init__()
        size, patch = name.removeprefix("DiT-").split("/")
        depth, hidden, heads = SIZES[size]
        self.patch, self.side = int(patch), side
        self.x_embedder = PatchEmbed(hidden, self.patch)
        self.t_embedder = TimeEmbed(hidden)
        self.y_embedder = LabelEmbed(hidden)
        self.pos_embed = nn.Parameter(torch.zeros(1, (side // self.patch) ** 2, hidden), requires_grad=False)
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(depth))
        self.final_layer = FinalLayer(hidden, self.patch)

    def forward(self, x, t, y):
        x = self.x_embedder(x) + self.pos_embed
        c = self.t_embedder(t) + self.y_embedder(y)
        for block in self.blocks:
            x = block(x, c)
        x = self.final_layer(x, c)
        n, side, p = x.shape[0], self.side // self.patch, self.patch
        return x.reshape(n, side, side, p, p, CHANNELS).permute(0, 5, 1, 3, 2, 4).reshape(n, CHANNELS, self.side, self.side)


def check_same_function(model: DiT, reference: dict[str, torch.Tensor], norms: dict, device: str) -> None:
    """Output and gradients of the same weights and batch are those of the other side, up to rounding."""
    model.eval()
    out = model(*(reference[name].to(device) for name in ("x", "t", "y")))
    torch.testing.assert_close(out.cpu(), reference["out"], rtol=1e-4, atol=1e-5)
    out.square().mean().backward()
    check_gradients(model, norms)
    model.train()


class Training:
    def __init__(self, model: nn.Module, batch: int, side: int, device: str, bf16: bool):
        self.model, self.batch, self.device, self.bf16 = model, batch, device, bf16
        parameters = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(parameters, lr=1e-4, weight_decay=0.0, fused=True)
        self.latents = torch.randn(64, batch, CHANNELS, side, side)
        self.labels = torch.randint(CLASSES, (64, batch))
        self.steps = 0
        self.loss_sum = torch.zeros((), device=device)

    def step(self) -> None:
        x0 = self.latents[self.steps % 64].to(self.device, non_blocking=True)
        y = self.labels[self.steps % 64].to(self.device, non_blocking=True)
        self.steps += 1
        with torch.autocast(x0.device.type, torch.bfloat16, enabled=self.bf16):
            noise = torch.randn_like(x0)
            t = torch.sigmoid(torch.randn(self.batch, device=x0.device))
            at = t[:, None, None, None]
            out = self.model((1 - at) * x0 + at * noise, 1000 * t, y)
        loss = F.mse_loss(out.float(), noise - x0)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.loss_sum += loss.detach()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="DiT-S/4")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--side", type=int, default=32)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--reference", help="file of the other side; without it the weights are PyTorch's own")
    arguments = parser.parse_args()
    model = DiT(arguments.model, arguments.side)
    if arguments.reference:
        tensors = read_safetensors(arguments.reference)
        reference, norms = part(tensors, "reference."), part(tensors, "gradient_norm.")
        model.load_state_dict(part(tensors, "weight."), strict=True)
    model.to(arguments.device)
    if arguments.reference:
        check_same_function(model, reference, norms, arguments.device)
    trained = torch.compile(model) if arguments.compile else model
    if arguments.device != "cpu":
        torch.cuda.reset_peak_memory_stats()  # the peak is a step's
    training = Training(trained, arguments.batch, arguments.side, arguments.device, arguments.bf16)
    serve(training.step, arguments.device)


if __name__ == "__main__":
    main()
