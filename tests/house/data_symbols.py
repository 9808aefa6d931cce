"""data_symbols.py ROOT BUILD: what the built libraries can write to is in policies/README.md's table of process-wide state.

process_state.py reads sources, and a declaration can be written in more ways than it knows; the compiler sees them all.
A symbol of writable memory is in the table, is declared const in the sources (values that are made when the program
starts lie there too), or registers operators.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import process_state
import tree

LIBRARIES = ("policies/libdtk_policies.a", "policies/planner/libdtk_planner.a", "models/libdtk_models.a", "toolkit/libdtk_toolkit.a")
SYMBOL = re.compile(r"^[0-9a-f]+ [bBdDuV] (dtk::.*)$", re.MULTILINE)
MADE_BY_LIBTORCH = re.compile(r"\bTORCH_LIBRARY_(?:IMPL_|FRAGMENT_)?static_init_")
CONST = re.compile(r"\bconst(?:expr|eval)?\b[^;={}]*?\b(\w+)(?:\[\w*\])?\s*[={;(]")
SEVERAL = re.compile(r"^\s*(?:(?:static|inline)\s+)*const(?:expr)?\b[^;]*;", re.MULTILINE)  # of one statement


def symbols(library: Path) -> list[str]:
    command = ["nm", "-C", "--defined-only", str(library)]
    result = subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ, LC_ALL="C"))
    return sorted(set(SYMBOL.findall(result.stdout)))


def own_name(symbol: str) -> str:
    """Of "dtk::keys()::all[abi:cxx11]": all."""
    return re.sub(r"\[abi:\w+\]$", "", symbol).rpartition("::")[2]


def constants(root: Path) -> set[str]:
    found = set()
    for path in tree.code(root, "policies", "models", "toolkit"):
        text = tree.without_comments(path.read_text(encoding="utf-8"), strings=False)
        found |= set(CONST.findall(text))
        for statement in SEVERAL.findall(text):
            found |= set(re.findall(r",\s*\*?(\w+)(?:\[\w*\])?\s*[={]", statement))
    return found


def check(root: Path, build: Path) -> list[str]:
    known = constants(root) | {name for _, name in process_state.of_table(root) or ()}
    found = []
    for name in LIBRARIES:
        library = build / name
        if not library.is_file():
            found.append(f"{library}: not built; build all targets first")
            continue
        seen = symbols(library)
        if not seen:
            found.append(f"{library}: has no data of dtk::, which cannot be")
        found += [
            f"{name}: {symbol} can be written, and has no row in {process_state.README}"
            for symbol in seen
            if own_name(symbol) not in known and not MADE_BY_LIBTORCH.search(symbol)
        ]
    return found


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: data_symbols.py ROOT BUILD")
    offences = check(Path(sys.argv[1]), Path(sys.argv[2]))
    print("\n".join(offences) or "clean")
    sys.exit(1 if offences else 0)
