"""The other side of benchmarks/policies/checkpoint_overhead.py: PyTorch's checkpoint, in the form without reentrance."""

import sys
import time
import warnings

warnings.filterwarnings("ignore", message="Failed to initialize NumPy")  # not needed, so not installed

import torch
from torch.utils.checkpoint import checkpoint


def chain(segments: int, checkpointed: bool, with_tanh: bool, x, w) -> tuple[float, float]:
    """Microseconds a segment, of forward and of backward."""

    def body(h):
        return (h * w).tanh() if with_tanh else h * w

    begin = time.process_time()
    h = x
    for _ in range(segments):
        h = checkpoint(body, h, use_reentrant=False) if checkpointed else body(h)
    middle = time.process_time()
    h.backward()
    del h
    end = time.process_time()
    return 1e6 * (middle - begin) / segments, 1e6 * (end - middle) / segments


def main() -> None:
    segments = int(sys.argv[2])
    torch.set_num_threads(1)
    x, w = (torch.ones((), requires_grad=True) for _ in range(2))
    print("ready 1", flush=True)
    forward = 0.0
    for request in sys.stdin:
        word = request.strip()
        if word in ("round", "again"):
            with_engine, without = (chain(segments, on, word == "again", x, w) for on in (True, False))
            forward = with_engine[0] - without[0]
            print(f"{word} {sum(with_engine) - sum(without):.4f}", flush=True)
        else:
            print(f"forward {forward:.4f}", flush=True)


if __name__ == "__main__":
    main()
