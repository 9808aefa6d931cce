"""The other side of time.py: a VGGT in eager PyTorch, written from the description of the network."""

import argparse
import math
import sys
import tomllib
from pathlib import Path

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from eager_side import check_gradients, part, read_safetensors, serve  # noqa: E402

SPECIAL = 5


class Vggt(torch.nn.Module):
    def __init__(self, sizes: dict, weights: dict[str, torch.Tensor]):
        super().__init__()
        self.sizes = sizes
        self.names = {name: name.replace(".", "-") for name in weights}
        for name, tensor in weights.items():
            self.register_parameter(self.names[name], torch.nn.Parameter(tensor.clone()))

    def w(self, name: str) -> torch.Tensor:
        return getattr(self, self.names[name])

    def norm(self, x, name, eps=1e-5):
        return F.layer_norm(x, x.shape[-1:], self.w(name + ".weight"), self.w(name + ".bias"), eps)

    def linear(self, x, name):
        return F.linear(x, self.w(name + ".weight"), self.w(name + ".bias"))

    def conv(self, x, name, bias=True, **options):
        return F.conv2d(x, self.w(name + ".weight"), self.w(name + ".bias") if bias else None, **options)

    def rotation(self, rows, columns, repeats):
        width = self.sizes["hidden"] // self.sizes["heads"]
        frequencies = 100.0 ** (-torch.arange(width // 4, dtype=torch.float) * 4 / width)
        places = torch.zeros(SPECIAL + rows * columns, 2)
        places[SPECIAL:, 0] = torch.arange(1, rows + 1.0).repeat_interleave(columns)
        places[SPECIAL:, 1] = torch.arange(1, columns + 1.0).repeat(rows)
        angles = (places[:, :, None, None] * frequencies).expand(-1, -1, 2, -1).flatten(1).repeat(repeats, 1)
        return angles.cos(), angles.sin()

    def block(self, x, name, eps=1e-5, rotation=None):
        def turned(t):
            a, b = t.unflatten(-1, (2, 2, -1)).unbind(-2)
            return t * rotation[0] + torch.stack((-b, a), -2).flatten(-3) * rotation[1]

        heads = self.sizes["heads"]
        q, k, v = self.linear(self.norm(x, name + ".norm1", eps), name + ".attn.qkv").unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)
        if rotation is not None:
            q, k = (turned(self.norm(t, f"{name}.attn.{which}_norm")) for t, which in ((q, "q"), (k, "k")))
        h = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + self.w(name + ".ls1.gamma") * self.linear(h, name + ".attn.proj")
        h = self.linear(F.gelu(self.linear(self.norm(x, name + ".norm2", eps), name + ".mlp.fc1")), name + ".mlp.fc2")
        return x + self.w(name + ".ls2.gamma") * h

    def tokens(self, pictures):
        name, patch, grid = "aggregator.patch_embed", self.sizes["patch"], self.sizes["image"] // self.sizes["patch"]
        mean, deviation = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
        x = (pictures.flatten(0, 1) - mean.view(3, 1, 1)) / deviation.view(3, 1, 1)
        x = self.conv(x, name + ".patch_embed.proj", stride=patch)
        rows, columns = x.shape[2:]
        x = torch.cat((self.w(name + ".cls_token").expand(x.shape[0], -1, -1), x.flatten(2).transpose(1, 2)), 1)
        places = self.w(name + ".pos_embed")
        patches = places[:, 1:].unflatten(1, (grid, grid)).permute(0, 3, 1, 2)
        patches = F.interpolate(patches, size=(rows, columns), mode="bicubic", antialias=True).flatten(2).transpose(1, 2)
        x = x + torch.cat((places[:, :1], patches), 1)
        x = torch.cat((x[:, :1], self.w(name + ".register_tokens").expand(x.shape[0], -1, -1), x[:, 1:]), 1)
        for i in range(self.sizes["encoder"]):
            x = self.block(x, f"{name}.blocks.{i}", 1e-6)
        return self.norm(x, name + ".norm", 1e-6)[:, SPECIAL:], rows, columns

    def entries(self, pictures):
        scenes, frames = pictures.shape[:2]
        x, rows, columns = self.tokens(pictures)

        def of_frames(name):
            w = self.w("aggregator." + name)
            return torch.cat((w[:, :1], w[:, 1:].expand(1, frames - 1, -1, -1)), 1).expand(scenes, -1, -1, -1).flatten(0, 1)

        x = torch.cat((of_frames("camera_token"), of_frames("register_token"), x), 1)
        one, all_of_them = self.rotation(rows, columns, 1), self.rotation(rows, columns, frames)
        entries = []
        for i in range(self.sizes["depth"]):
            frame = self.block(x, f"aggregator.frame_blocks.{i}", rotation=one)
            x = self.block(frame.unflatten(0, (scenes, frames)).flatten(1, 2), f"aggregator.global_blocks.{i}", rotation=all_of_them)
            x = x.unflatten(1, (frames, -1)).flatten(0, 1)
            if i in self.sizes["taps"]:
                entries.append(torch.cat((frame, x), 2))
        return entries, rows, columns

    def cameras(self, tokens):
        tokens, pose, rounds = self.norm(tokens, "camera_head.token_norm"), None, []
        for _ in range(4):
            given = self.w("camera_head.empty_pose_tokens").expand(*tokens.shape[:2], -1) if pose is None else pose.detach()
            shift, scale, gate = self.linear(F.silu(self.linear(given, "camera_head.embed_pose")), "camera_head.poseLN_modulation.1").chunk(3, -1)
            x = gate * (F.layer_norm(tokens, tokens.shape[-1:], eps=1e-6) * (1 + scale) + shift) + tokens
            for i in range(self.sizes["trunk"]):
                x = self.block(x, f"camera_head.trunk.{i}")
            more = self.linear(F.gelu(self.linear(self.norm(x, "camera_head.trunk_norm"), "camera_head.pose_branch.fc1")), "camera_head.pose_branch.fc2")
            pose = more if pose is None else pose + more
            rounds.append(torch.cat((pose[..., :7], F.relu(pose[..., 7:])), -1))
        return rounds

    def with_places(self, x, height, width):
        def waves(places, count):
            angles = places.double()[:, None] * (1.0 / 100 ** (torch.arange(count // 2, dtype=torch.double) / (count / 2.0)))
            return torch.cat((angles.sin(), angles.cos()), 1).to(x.dtype)

        channels, rows, columns = x.shape[1:]
        aspect = width / height
        diagonal = math.sqrt(aspect**2 + 1)
        u = torch.linspace(-1, 1, columns) * (aspect / diagonal * (columns - 1) / columns)
        v = torch.linspace(-1, 1, rows) * (1 / diagonal * (rows - 1) / rows)
        by_column = waves(u, channels // 2).T[:, None, :].expand(-1, rows, -1)
        by_row = waves(v, channels // 2).T[:, :, None].expand(-1, -1, columns)
        return x + 0.1 * torch.cat((by_column, by_row))

    def unit(self, x, name):
        x = F.relu(x)
        return self.conv(F.relu(self.conv(x, name + ".conv1", padding=1)), name + ".conv2", padding=1) + x

    def depths(self, entries, rows, columns, height, width):
        levels, head = [], "depth_head."
        for i, entry in enumerate(entries):
            x = self.norm(entry[:, SPECIAL:], head + "norm").transpose(1, 2).unflatten(2, (rows, columns))
            x = self.with_places(self.conv(x, f"{head}projects.{i}"), height, width)
            resize = f"{head}resize_layers.{i}"
            if i < 2:
                x = F.conv_transpose2d(x, self.w(resize + ".weight"), self.w(resize + ".bias"), stride=(4, 2)[i])
            if i == 3:
                x = self.conv(x, resize, stride=2, padding=1)
            levels.append(self.conv(x, f"{head}scratch.layer{i + 1}_rn", bias=False, padding=1))
        x = None
        for i in (3, 2, 1, 0):
            name = f"{head}scratch.refinenet{i + 1}"
            x = levels[i] if x is None else x + self.unit(levels[i], name + ".resConfUnit1")
            x = self.unit(x, name + ".resConfUnit2")
            size = levels[i - 1].shape[2:] if i else (2 * x.shape[2], 2 * x.shape[3])
            x = self.conv(F.interpolate(x, size=size, mode="bilinear", align_corners=True), name + ".out_conv")
        x = F.interpolate(self.conv(x, head + "scratch.output_conv1", padding=1), size=(height, width), mode="bilinear", align_corners=True)
        x = self.with_places(x, height, width)
        x = self.conv(F.relu(self.conv(x, head + "scratch.output_conv2.0", padding=1)), head + "scratch.output_conv2.2")
        return x[:, 0].exp(), 1 + x[:, 1].exp()

    def forward(self, pictures):
        scenes, frames, _, height, width = pictures.shape
        entries, rows, columns = self.entries(pictures)
        rounds = self.cameras(entries[-1][:, 0].unflatten(0, (scenes, frames)))
        depth, confidence = self.depths(entries, rows, columns, height, width)
        return rounds, depth.unflatten(0, (scenes, frames)), confidence.unflatten(0, (scenes, frames))


def loss_of(rounds, depth, confidence, poses, wanted):
    camera = 0
    for i, pose in enumerate(rounds):
        error = (pose - poses).abs()
        camera = camera + 0.6 ** (3 - i) / 4 * (error[..., :3].clamp(max=100).mean() + error[..., 3:7].mean() + error[..., 7:].mean() / 2)
    valid, error = (wanted > 0).float(), depth - wanted

    def mean(values, where):
        return (values * where).sum() / where.sum().clamp(min=1)

    loss = mean(confidence * error.abs() - 0.2 * confidence.log() + error.abs(), valid)
    gradient = 0
    for stride in (1, 2, 4):
        e, v = error[:, :, ::stride, ::stride], valid[:, :, ::stride, ::stride]
        gradient = gradient + mean((e[:, :, 1:] - e[:, :, :-1]).abs(), v[:, :, 1:] * v[:, :, :-1])
        gradient = gradient + mean((e[..., 1:] - e[..., :-1]).abs(), v[..., 1:] * v[..., :-1])
    return 5 * camera + loss + gradient / 3


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    parser.add_argument("--reference", required=True)
    parser.add_argument("--mode", choices=["infer", "train"], required=True)
    arguments = parser.parse_args()
    sizes = tomllib.loads(Path(arguments.config).read_text())["vggt"]
    tensors = read_safetensors(arguments.reference)
    reference, norms, weights = (part(tensors, begin) for begin in ("reference.", "gradient_norm.", "weight."))
    model = Vggt(sizes, weights)
    pictures = reference["pictures"]
    with torch.inference_mode():
        rounds, depth, confidence = model(pictures)
    for seen, name in ((rounds[-1], "poses"), (depth, "depths"), (confidence, "depth_confidence")):
        torch.testing.assert_close(seen, reference[name], rtol=1e-3, atol=1e-4)
    if arguments.mode == "infer":

        def infer():
            with torch.inference_mode():
                model(pictures)

        return serve(infer, "cpu")
    given = (reference["true_poses"], reference["true_depths"])
    loss = loss_of(*model(pictures), *given)
    torch.testing.assert_close(loss.detach().reshape(1), reference["loss"], rtol=1e-4, atol=1e-5)
    loss.backward()
    for parameter in model.parameters():  # of what no loss reaches
        parameter.requires_grad_(parameter.grad is not None)
    check_gradients(model, {model.names[name]: norm for name, norm in norms.items()}, 1e-6)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4, fused=True)

    def step():
        loss_of(*model(pictures), *given).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    serve(step, "cpu")


if __name__ == "__main__":
    main()
