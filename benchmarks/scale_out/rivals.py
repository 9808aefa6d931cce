"""One rank of several that train the same DiT under PyTorch's own ways, which makes a step whenever a line "step" comes in:
the other sides of scale_out.py. The model is the one of ../step_time/eager_dit.py, whose function step_time.py checks."""

import argparse
import ctypes
import sys
import time
import warnings
from contextlib import nullcontext
from pathlib import Path

warnings.filterwarnings("ignore")

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "step_time"))
from eager_dit import CHANNELS, CLASSES, DiT  # noqa: E402

SIDE = 32


def adamw(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-4, weight_decay=0.0, fused=True)


class Training:
    def __init__(self, way: str, model: DiT, batch: int, accumulate: int):
        self.way, ranks = way, dist.get_world_size()
        self.micro_batches, self.samples = accumulate // ranks, batch // accumulate
        trained = [one for one in model.parameters() if one.requires_grad]
        self.bytes = 4 * sum(one.numel() for one in trained)
        if way == "fsdp2":
            from torch.distributed.device_mesh import init_device_mesh
            from torch.distributed.fsdp import fully_shard

            mesh = init_device_mesh("cpu", (ranks,))
            for block in model.blocks:
                fully_shard(block, mesh=mesh)
            self.model = fully_shard(model, mesh=mesh)
        else:
            self.model = DistributedDataParallel(model, gradient_as_bucket_view=True)
        if way == "zero":
            from torch.distributed.optim import ZeroRedundancyOptimizer

            self.optimizer = ZeroRedundancyOptimizer(
                trained, torch.optim.AdamW, lr=1e-4, weight_decay=0.0, fused=True
            )
        else:
            self.optimizer = adamw(one for one in self.model.parameters() if one.requires_grad)
        self.latents = torch.randn(16, self.samples, CHANNELS, SIDE, SIDE)
        self.labels = torch.randint(CLASSES, (16, self.samples))
        self.taken = 0

    def micro_batch(self, is_last: bool) -> None:
        x0, y = self.latents[self.taken % 16], self.labels[self.taken % 16]
        self.taken += 1
        if self.way == "fsdp2":
            self.model.set_requires_gradient_sync(is_last)
        waits = nullcontext() if self.way == "fsdp2" or is_last else self.model.no_sync()
        with waits:
            noise = torch.randn_like(x0)
            t = torch.sigmoid(torch.randn(self.samples))
            at = t[:, None, None, None]
            out = self.model((1 - at) * x0 + at * noise, 1000 * t, y)
            (F.mse_loss(out, noise - x0) / self.micro_batches).backward()

    def step(self) -> None:
        for number in range(self.micro_batches):
            self.micro_batch(number + 1 == self.micro_batches)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=["ddp", "zero", "fsdp2"])
    parser.add_argument("counting", help="the library that counts")
    parser.add_argument("--model", default="DiT-S/4")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--accumulate", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(1)
    count = ctypes.CDLL(given.counting)
    count.dtk_count_alive.restype = count.dtk_count_peak.restype = ctypes.c_int64
    dist.init_process_group("gloo")
    count.dtk_count_install()
    before = count.dtk_count_alive()
    torch.manual_seed(1)
    training = Training(given.way, DiT(given.model, SIDE), given.batch, given.accumulate)
    answers = {
        "reset": lambda: count.dtk_count_reset() or 0,
        "state": lambda: count.dtk_count_alive() - before,
        "peak": lambda: count.dtk_count_peak() - before,
        "parameters": lambda: training.bytes,
    }
    print("ready", torch.get_num_threads(), flush=True)
    for line in sys.stdin:
        request = line.strip()
        if request == "step":
            begin = time.perf_counter()
            training.step()
            print(f"ms {1e3 * (time.perf_counter() - begin):.4f}", flush=True)
        else:
            print(request, answers[request](), flush=True)


if __name__ == "__main__":
    main()
