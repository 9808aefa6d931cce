"""data_symbols.py ROOT BUILD: what the built libraries can write to is in policies/README.md's table of process-wide state.

process_state.py reads sources, and a declaration can be written in more ways than it knows; the compiler sees them all.
A symbol of writable memory is in the table, is declared const in a source of its object or in a header (values that are
made when the program starts lie there too), or registers operators.
"""

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import process_state
import tree

LIBRARIES = (
    "policies/libdtk_policies.a", "policies/planner/libdtk_planner.a", "models/libdtk_models.a",
    "toolkit/libdtk_toolkit.a", "toolkit/programs/libdtk_program.a", "toolkit/launch/libdtk_launch.a",
)  # fmt: skip
WITHOUT_ANY = ("toolkit/launch/libdtk_launch.a",)  # may be all code
SYMBOL = re.compile(r"^[^:\n]+:(?P<object>[^:\n]+):[0-9a-f]+ [bBdDuV] (?P<name>dtk::.*)$", re.MULTILINE)
MADE_BY_LIBTORCH = re.compile(r"\bTORCH_LIBRARY_(?:IMPL_|FRAGMENT_)?static_init_")
CONST = re.compile(r"\bconst(?:expr|eval)?\b[^;={}]*?\b(\w+)(?:\[\w*\])?\s*[={;(]")
CONST_FUNCTION = re.compile(r"\(\s*\*\s*const\s+(\w+)\s*\)\s*\(")  # a pointer to one
SEVERAL = re.compile(r"^\s*(?:(?:static|inline)\s+)*const(?:expr)?\b[^;]*;", re.MULTILINE)  # of one statement


def symbols(library: Path) -> list[tuple[str, str]]:
    """Objects and their symbols."""
    command = ["nm", "-A", "-C", "--defined-only", str(library)]
    result = subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ, LC_ALL="C"))
    return sorted(set(SYMBOL.findall(result.stdout)))


def sources(root: Path, library: Path, name: str) -> list[Path]:
    """Those that an object of a library was compiled from: all of a unity build's batch, or what has its name."""
    stem = name.removesuffix(".o")
    batches = list(library.parent.glob(f"CMakeFiles/{library.stem.removeprefix('lib')}.dir/Unity/{stem}"))
    if batches:
        return [Path(path) for path in re.findall(r'#include "(.*\.cpp)"', batches[0].read_text(encoding="utf-8"))]
    return [path for path in tree.code(root, "policies", "models", "toolkit") if path.name == stem]


def own_name(symbol: str) -> str:
    """Of "dtk::keys()::all[abi:cxx11]": all."""
    return re.sub(r"\[abi:\w+\]$", "", symbol).rpartition("::")[2]


def constants(paths: Iterable[Path]) -> set[str]:
    found = set()
    for path in paths:
        text = tree.without_comments(path.read_text(encoding="utf-8"), strings=False)
        found |= set(CONST.findall(text)) | set(CONST_FUNCTION.findall(text))
        for statement in SEVERAL.findall(text):
            found |= set(re.findall(r",\s*\*?(\w+)(?:\[\w*\])?\s*[={]", statement))
    return found


def check(root: Path, build: Path) -> list[str]:
    table = process_state.of_table(root) or set()
    everywhere = constants(path for path in tree.code(root, "policies", "models", "toolkit") if path.suffix == ".h")
    everywhere |= {symbol for file, symbol in table if file.endswith(".h")}
    built = {path.relative_to(build).as_posix() for folder in ("policies", "models", "toolkit") for path in (build / folder).rglob("lib*.a")}
    found = [f"{name}: not among the libraries of {Path(__file__).name}" for name in sorted(built - set(LIBRARIES))]
    for name in LIBRARIES:
        library = build / name
        if not library.is_file():
            found.append(f"{library}: not built; build all targets first")
            continue
        seen = symbols(library)
        if not seen and name not in WITHOUT_ANY:
            found.append(f"{library}: has no data of dtk::, which cannot be")
        for compiled, symbols_of_it in itertools.groupby(seen, key=lambda one: one[0]):
            paths = sources(root, library, compiled)
            files = {path.resolve().relative_to(root.resolve()).as_posix().removeprefix("policies/") for path in paths}
            known = everywhere | constants(paths) | {symbol for file, symbol in table if file in files}
            found += [
                f"{name}: {symbol} can be written, and has no row in {process_state.README}"
                for _, symbol in symbols_of_it
                if own_name(symbol) not in known and not MADE_BY_LIBTORCH.search(symbol)
            ]
    return found


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: data_symbols.py ROOT BUILD")
    offences = check(Path(sys.argv[1]), Path(sys.argv[2]))
    print("\n".join(offences) or "clean")
    sys.exit(1 if offences else 0)
