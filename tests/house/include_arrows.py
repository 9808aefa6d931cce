"""policies/ and models/ know only the standard library and LibTorch; only programs know toolkit/.

policies/planner/ is a library of its own above policies/, which does not know it."""

import re
from pathlib import Path

import tree

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
LIBTORCH = ("ATen/", "c10/", "caffe2/", "torch/")
LIBRARIES = ("policies", "models")
PLANNER = Path("policies", "planner")
# The system's own headers, by the one file that wraps them: no library reserves addresses without memory.
SYSTEM = {Path("policies", "src", "reserved_memory.cpp"): ("sys/mman.h", "unistd.h")}
MAY_USE_TOOLKIT = ("toolkit", "tests", "benchmarks", "examples")


def is_standard(name: str) -> bool:
    return re.fullmatch(r"[a-z_0-9]+", name) is not None


def is_own(root: Path, library: str, path: Path, name: str) -> bool:
    if name.startswith(f"dtk/{library}/"):
        return True
    target = (path.parent / name).resolve()
    return target.is_file() and (root / library) in target.parents


def library_offences(root: Path, library: str) -> list[str]:
    found = []
    for path in tree.code(root, library):
        own = (f"dtk/{library}/",)
        if PLANNER in path.relative_to(root).parents:
            own += ("dtk/planner/",)
        for number, line in enumerate(tree.read_code(path, strings=True), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            quoted, name = match.group(1) == '"', match.group(2)
            if is_standard(name) or name.startswith(LIBTORCH + own):
                continue
            if quoted and is_own(root, library, path, name):
                continue
            if name in SYSTEM.get(path.relative_to(root), ()):
                continue
            found.append(
                f"{tree.place(root, path, number)}: includes {name}; {library}/ may include the standard "
                f"library, LibTorch and dtk/{library}/ only"
            )
    return found


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
        top = path.relative_to(root).parts[0]
        if top in MAY_USE_TOOLKIT or top in LIBRARIES:
            continue
        for number, line in enumerate(tree.read_code(path, strings=True), 1):
            match = INCLUDE.match(line)
            if match and match.group(2).startswith("dtk/toolkit/"):
                found.append(
                    f"{tree.place(root, path, number)}: toolkit/ headers are for "
                    f"{', '.join(MAY_USE_TOOLKIT)} only"
                )
    return found


def check(root: Path) -> list[str]:
    found = toolkit_offences(root)
    for library in LIBRARIES:
        found += library_offences(root, library) + link_offences(root, library)
    return found


if __name__ == "__main__":
    tree.run(check)
