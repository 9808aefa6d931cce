"""Includes run one way: between the libraries, and between the rooms of one.

policies/ and models/ know only the standard library and LibTorch, policies/planner/ policies/ too; toolkit/ knows the
public headers of all three, and only programs, tests, benchmarks and examples know toolkit/. Within a library rooms.py
says which room may include which. Above the libraries examples/ stand alone, benchmarks/ know them and tests/support/,
and tests all; the headers of policies/ and models/ that are not installed are for their libraries and tests.
"""

import re
from pathlib import Path

import rooms
import tree

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')
# That the arrows cannot follow: through a macro, over two lines, by another directive.
ODD = re.compile(r"^\s*(?:#|%:|\?\?=)\s*(?:import\b|include_next\b|include\b(?!\s*[<\"][^>\"]+[>\"]))|^\s*(?:%:|\?\?=)\s*include\b")
BY_MACRO = Path("toolkit", "core", "format.h")  # fmt's header, which CMake finds
LIBTORCH = ("ATen/", "c10/", "caffe2/", "torch/")
LIBRARIES = ("policies", "models", "toolkit")
PLANNER = Path("policies", "planner")
# The system's own headers, by the one file that wraps them: no library reserves addresses without memory.
SYSTEM = {Path("policies", "memory", "virtual_memory.cpp"): ("sys/mman.h", "unistd.h")}
# Of the CUDA toolkit, by kernels.
KERNELS = {".cu", ".cuh"}
CUDA = ("cuda_runtime.h", "cuda_bf16.h", "cuda_fp16.h")
MAY_USE_TOOLKIT = ("toolkit", "tests", "benchmarks", "examples")
ABOVE = {
    "tests/support": ("tests/", "toolkit/", "models/", "policies/"),
    "examples": ("examples/", "toolkit/"),
    "benchmarks": ("benchmarks/", "examples/", "tests/support/", "toolkit/"),
}
# The one that measures operators by the calls behind their schemas.
OF_OPERATORS = ("benchmarks/policies/operator_bandwidth.cpp", "models/ops/operators.h")


def is_standard(name: str) -> bool:
    return re.fullmatch(r"[a-z_0-9]+", name) is not None


def target(root: Path, path: Path, name: str) -> str | None:
    """The file of a library that a file of one includes, relative to the root: by the library's include roots."""
    public = name.split("/")
    if name.startswith("dtk/") and public[1] in rooms.PUBLIC:
        return f"{rooms.PUBLIC[public[1]]}/include/{name}"
    inside = path.relative_to(root)
    own = PLANNER if PLANNER in inside.parents else Path(inside.parts[0])
    for folder in (root, root / own, path.parent):
        found = (folder / name).resolve()
        if found.is_file() and root in found.parents:
            return found.relative_to(root).as_posix()
    return None


def library_of(path: str) -> str:
    return "policies/planner" if path.startswith("policies/planner/") else path.split("/")[0]


def wrong(root: Path, path: Path, name: str) -> str | None:
    """What is wrong with an include of a library's file."""
    inside = path.relative_to(root)
    library, other = library_of(inside.as_posix()), target(root, path, name)
    if other is None:
        if library == "toolkit" and name.startswith("fmt/"):
            return "LibTorch's own fmt would be found first; include toolkit/core/format.h"
        if library == "toolkit" or is_standard(name) or name.startswith(LIBTORCH) or name in SYSTEM.get(inside, ()):
            return None
        if inside.suffix in KERNELS and name in CUDA:
            return None
        return f"{inside.parts[0]}/ may include the standard library, LibTorch and dtk/{inside.parts[0]}/ only"
    below = {"policies": [], "policies/planner": ["policies"], "models": []}
    if library_of(other) != library:
        public = "/include/dtk/" in other
        if public and library_of(other) in below.get(library, ["policies", "policies/planner", "models"]):
            return None if library == "toolkit" else room_offence(root, inside.as_posix(), other)
        return f"{library}/ may not include {other}"
    return room_offence(root, inside.as_posix(), other)


def room_offence(root: Path, path: str, other: str) -> str | None:
    here, there = rooms.room_of(root, path), rooms.room_of(root, other)
    if here is None or there is None:
        return f"{other if here else path} stands in no room of tests/house/rooms.py"
    if rooms.may_include(here, there):
        return None
    return f"{here}/ may not include {there}/ (tests/house/rooms.py)"


def include_offences(root: Path, library: str) -> list[str]:
    found = []
    for path in tree.code(root, library):
        for number, line in enumerate(tree.read_code(path, strings=True), 1):
            match = INCLUDE.match(line)
            why = match and wrong(root, path, match.group(1))
            if why:
                found.append(f"{tree.place(root, path, number)}: includes {match.group(1)}; {why}")
    return found


def odd_offences(root: Path) -> list[str]:
    return [
        f"{tree.place(root, path, number)}: an include that no check can follow; write #include \"...\" or <...>"
        for path in tree.code(root)
        if path.relative_to(root) != BY_MACRO
        for number, line in enumerate(tree.read_code(path, strings=True), 1)
        if ODD.match(line)
    ]


def link_offences(root: Path, library: str) -> list[str]:
    found = []
    for path in tree.cmake_files(root, library):
        own = {library, "planner"} if PLANNER in path.relative_to(root).parents else {library}
        others = [name for name in ("policies", "planner", "models", "toolkit") if name not in own]
        target = re.compile(r"\bdtk(?:::|_)(" + "|".join(others) + r")\b")
        for number, line in enumerate(tree.read_cmake(path), 1):
            for match in target.finditer(line):
                found.append(f"{tree.place(root, path, number)}: {library}/ must not link {match.group(0)}")
    return found


def toolkit_offences(root: Path) -> list[str]:
    found = []
    for path in tree.code(root):
        if path.relative_to(root).parts[0] in (*MAY_USE_TOOLKIT, *LIBRARIES):
            continue
        for number, line in enumerate(tree.read_code(path, strings=True), 1):
            match = INCLUDE.match(line)
            if match and match.group(1).startswith("toolkit/"):
                found.append(
                    f"{tree.place(root, path, number)}: toolkit/ headers are for "
                    f"{', '.join(MAY_USE_TOOLKIT)} only"
                )
    return found


def offences_above(root: Path) -> list[str]:
    found = []
    for folder, known in ABOVE.items():
        for path in tree.code(root, folder):
            for number, line in enumerate(tree.read_code(path, strings=True), 1):
                match = INCLUDE.match(line)
                places = [path.parent, *(root / one for one in ("", folder, "examples", "benchmarks", "tests", *LIBRARIES, PLANNER))]
                files = (place / match.group(1) for place in places if match)
                other = next((file.resolve().relative_to(root).as_posix() for file in files if file.is_file()), None)
                allowed = other is None or other.startswith(known) or (path.relative_to(root).as_posix(), other) == OF_OPERATORS
                if not allowed:
                    found.append(f"{tree.place(root, path, number)}: includes {match.group(1)}; {folder}/ may not include {other}")
    return found


def check(root: Path) -> list[str]:
    found = odd_offences(root) + toolkit_offences(root) + offences_above(root)
    for library in LIBRARIES:
        found += include_offences(root, library)
    return found + link_offences(root, "policies") + link_offences(root, "models")


if __name__ == "__main__":
    tree.run(check)
