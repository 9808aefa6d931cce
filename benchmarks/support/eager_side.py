"""The side of a comparison of step times that is PyTorch's: what it reads of the other side, and how it answers."""

import json
import math
import sys
import time

import torch


def read_safetensors(path: str) -> dict[str, torch.Tensor]:
    """A file that our own program has just written: nothing in it is checked."""
    dtypes = {"F32": torch.float32, "I64": torch.int64, "I32": torch.int32, "BOOL": torch.bool}
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        data = bytearray(file.read())
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        flat = torch.frombuffer(data, dtype=dtypes[entry["dtype"]], count=math.prod(entry["shape"]), offset=begin)
        tensors[name] = flat.reshape(entry["shape"]).clone()
    return tensors


def part(tensors: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def check_gradients(model, norms: dict[str, torch.Tensor], min_norm: float = 0.0) -> None:
    """Each gradient's norm is the other side's, up to rounding; those below `min_norm` are no more than that."""
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        seen, wanted = parameter.grad.norm().item(), norms[name].item()
        same = math.isclose(seen, wanted, rel_tol=1e-3, abs_tol=min_norm)
        assert same, f"gradient of {name}: norm {seen}, not {wanted}"
    model.zero_grad(set_to_none=True)


def print_operators(step) -> None:
    """Calls of each operator in one step, as the other side's program prints them."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        step()
    for entry in profile.key_averages():
        if entry.key.startswith("aten::"):
            print(entry.key, entry.count)
    print("end 0", flush=True)


def serve(step, device: str) -> None:
    """A step for each line "step" of the input, and what else a Side of step_pairs.py asks for."""
    print("ready", torch.get_num_threads(), flush=True)
    cuda = device != "cpu"
    for line in sys.stdin:
        if line.strip() == "peak":
            print("peak", torch.cuda.max_memory_allocated() if cuda else 0, flush=True)
            continue
        if line.strip() == "operators":
            print_operators(step)
            continue
        begin = time.perf_counter()
        step()
        if cuda:
            torch.cuda.synchronize()
        print(f"ms {1e3 * (time.perf_counter() - begin):.4f}", flush=True)
