"""How LibTorch is used: thin headers, our own attention seam, no link to its CUDA library, and one header that names
what is borrowed of its process-wide tables."""

import re
from pathlib import Path

import tree

IN_INCLUDES = [
    (
        re.compile(r"#\s*include\s*[<\"]torch/torch\.h[>\"]"),
        "torch/torch.h costs 17 s and 1.4 GB a file; include what is used from ATen/ and torch/csrc/",
    ),
]
IN_NAMES = [  # a message may well say what not to use
    (
        re.compile(r"\b\w*(?i:multi_?head_?attention)\w*"),
        "LibTorch's multi-head attention keeps the attention weights; use at::scaled_dot_product_attention",
    ),
]
MAY_NAME = "tests/policies/attention/stock_attention_test.cpp"  # shows that the attention policy finds it
IN_CMAKE = [
    (re.compile(r"\b(?:torch_cuda|c10_cuda)\b"), "libtorch_cuda is loaded with dlopen, never linked"),
    (
        re.compile(r"-ltorch\b|\bTORCH_LIBRARIES\b|\bfind_package\s*\(\s*Torch\b"),
        "this drags libtorch_cuda into every process; link dtk::torch",
    ),
]
BORROWED = "policies/include/dtk/policies/internal/dispatch_keys.h"
VERSIONS = "policies/include/dtk/policies/internal/torch_versions.h"  # a slot that only some versions have
SLOT = re.compile(r"\bc10::(?:DispatchKey|DebugInfoKind)::(\w+)")
OWN = r"(?:CPU|CUDA|Meta|Composite\w+|Autograd|AutogradFunctionality|AutogradCPU|AutogradCUDA)\b"  # what is not borrowed
OF_LIBRARIES = ("policies/", "models/", "toolkit/")


def slots(where: str, named: str) -> list:
    """A rule for what libraries may name of LibTorch's slots, in a TORCH_LIBRARY_IMPL too, and for others by `named`."""
    key = rf"(?!{OWN})\w+" if where.startswith(OF_LIBRARIES) else rf"(?:{named})\b"
    kind = r"\w+" if where.startswith(OF_LIBRARIES) else rf"(?:{named})\b"
    pattern = rf"\bDispatchKey::{key}|\bDebugInfoKind::{kind}|\bTORCH_LIBRARY_IMPL\s*\([^,]*,\s*{key}"
    return [(re.compile(pattern), f"borrowed of LibTorch; use its name in {BORROWED}")]


def borrowed(root: Path) -> str:
    """The header's own names of LibTorch's."""
    headers = [path for path in (root / BORROWED, root / VERSIONS) if path.is_file()]
    lines = [line for header in headers for line in tree.read_code(header)]
    return "|".join(sorted({name for line in lines for name in SLOT.findall(line)})) or "none"


def check(root: Path) -> list[str]:
    found = []
    named = borrowed(root)
    for path in tree.code(root):
        inside = path.relative_to(root).as_posix()
        names = ([] if inside == MAY_NAME else IN_NAMES) + ([] if inside in (BORROWED, VERSIONS) else slots(inside, named))
        for rules, strings in ((IN_INCLUDES, True), (names, False)):
            for number, line in enumerate(tree.read_code(path, strings=strings), 1):
                found += offences(root, path, number, line, rules)
    for path in tree.cmake_files(root):
        for number, line in enumerate(tree.read_cmake(path), 1):
            found += offences(root, path, number, line, IN_CMAKE)
    return found


def offences(root: Path, path: Path, number: int, line: str, rules: list) -> list[str]:
    return [
        f"{tree.place(root, path, number)}: {match.group(0)}: {why}"
        for pattern, why in rules
        if (match := pattern.search(line))
    ]


if __name__ == "__main__":
    tree.run(check)
