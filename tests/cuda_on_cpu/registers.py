"""Registers and spilled bytes of each CUDA kernel, as ptxas tells them; needs nvcc and no GPU.

    registers.py [--write] [--nvcc NVCC] [architecture...]

Compares with registers.md beside this script; --write renews it. Exit code 1 if they differ, or if a kernel spills;
77 if there is no nvcc, or one of another version than the table's. Named architectures only are compiled
where some are named.
"""

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
KERNELS = HERE.parent.parent / "models" / "ops" / "cuda"
TABLE = HERE / "registers.md"
ARCHITECTURES = ["80", "86", "89", "90", "100", "120"]
SKIPPED = 77

ENTRY = re.compile(r"Compiling entry function '(\w+)'")
SPILL = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
NAME = re.compile(r"(\w+_kernel)(?:<([^>]*)>)?\(")


def names_of(mangled: list[str]) -> dict[str, str]:
    """norm_forward_kernel<3, float, __half> of each."""
    text = subprocess.run(["c++filt"], input="\n".join(mangled), capture_output=True, text=True, check=True).stdout
    found = {}
    for name, readable in zip(mangled, text.splitlines()):
        kernel, types = NAME.search(readable).groups()
        types = types.replace("(int)", "").replace("__nv_bfloat16", "bf16").replace("__half", "fp16").replace("float", "fp32") if types else ""
        found[name] = f"{kernel.removesuffix('_kernel')} {types}".strip()
    return found


def measured(nvcc: str, architecture: str) -> dict[str, str]:
    """"72", or "72, 16 spilled", by kernel."""
    found: dict[str, str] = {}
    for source in sorted(KERNELS.glob("*.cu")):
        command = [nvcc, "-std=c++20", "-O3", "-DNDEBUG", "-cubin", f"-arch=sm_{architecture}", "-Xptxas", "-v", "-o", "/dev/null", str(source)]
        said = subprocess.run(command, capture_output=True, text=True)
        if said.returncode != 0:
            sys.exit(said.stderr)
        mangled, spilled = "", 0
        figures = {}
        for line in said.stderr.splitlines():
            if entry := ENTRY.search(line):
                mangled = entry[1]
            elif spill := SPILL.search(line):
                spilled = max(int(spill[1]), int(spill[2]))
            elif used := USED.search(line):
                if "_kernel" in mangled:  # error_here.cu's does nothing
                    figures[mangled] = f"{used[1]}, {spilled} spilled" if spilled else used[1]
        names = names_of(list(figures))
        found |= {names[name]: figure for name, figure in figures.items()}
    return found


def sorted_by_number(names: set[str]) -> list[str]:
    return sorted(names, key=lambda name: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)])


def page(version: str, columns: dict[str, dict[str, str]]) -> str:
    kernels = sorted_by_number({kernel for column in columns.values() for kernel in column})
    lines = [
        "# Registers of the CUDA kernels",
        "",
        f"Of ptxas, nvcc {version}; by `tests/cuda_on_cpu/registers.py --write`. Numbers in a name: groups of four columns a",
        "lane holds (`norm_forward`, `norm_backward`, `rms_forward`, `rms_backward`), or columns a thread takes at once. Not run",
        "on a GPU.",
        "",
        "| kernel | " + " | ".join(f"sm_{name}" for name in columns) + " |",
        "|---|" + "---|" * len(columns),
    ]
    lines += ["| " + " | ".join([kernel, *(column.get(kernel, "-") for column in columns.values())]) + " |" for kernel in kernels]
    return "\n".join(lines) + "\n"


def read_table() -> dict[str, dict[str, str]]:
    rows = [line.strip("| ").split(" | ") for line in TABLE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    return {name.removeprefix("sm_"): {row[0]: row[i] for row in rows[1:]} for i, name in enumerate(rows[0]) if i > 0}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("architectures", nargs="*", default=ARCHITECTURES)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--nvcc", default=shutil.which("nvcc"))
    options = parser.parse_args()
    if not options.nvcc:
        print("no nvcc")
        return SKIPPED
    said = subprocess.run([options.nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    version = re.search(r"V([\d.]+)", said)[1]
    if not options.write and f"nvcc {version};" not in TABLE.read_text(encoding="utf-8"):
        print(f"{TABLE.name} is of another nvcc than {version}")
        return SKIPPED
    columns = {name: measured(options.nvcc, name) for name in options.architectures}
    wrong = [
        f"sm_{name}: {kernel}: {figure}"
        for name, column in columns.items()
        for kernel, figure in column.items()
        if "spilled" in figure
    ]
    if options.write:
        TABLE.write_text(page(version, columns), encoding="utf-8")
    else:
        table = read_table()
        for name, column in columns.items():
            there = table[name]
            wrong += [
                f"sm_{name}: {kernel}: {column.get(kernel, 'no such kernel')}; {TABLE.name} says {there.get(kernel, 'nothing')}"
                for kernel in sorted_by_number(set(column) | {kernel for kernel in there if there[kernel] != "-"})
                if column.get(kernel) != there.get(kernel)
            ]
    for line in wrong:
        print(line)
    print(f"{len(wrong)} differ or spill" if wrong else f"{sum(map(len, columns.values()))} kernels, as they should be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
