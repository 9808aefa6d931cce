"""No ten lines of the libraries' code stand twice, comments, includes and lone brackets left aside."""

import re
from pathlib import Path

import tree

LINES = 10
# Models and policies meet in types alone, and each has its own of the seam.
TWINS = (("policies/include/dtk/policies/seam.h", "models/include/dtk/models/seam.h"), ("policies/seam/policy.cpp", "models/seam/seam.cpp"))
LONE = re.compile(r"[{}();]*|\}\s.*|(?:public|private|protected):|#.*")


def lines_of(path: Path) -> list[tuple[int, str]]:
    lines = [(number, line.strip()) for number, line in enumerate(tree.read_code(path, strings=True), 1)]
    return [(number, line) for number, line in lines if not LONE.fullmatch(line)]


def check(root: Path) -> list[str]:
    first: dict[tuple[str, ...], tuple[str, int]] = {}
    found = {}  # of two files: where the first block begins
    for path in tree.code(root, "toolkit", "policies", "models"):
        where = path.relative_to(root).as_posix()
        lines = lines_of(path)
        for at in range(len(lines) - LINES + 1):
            block = tuple(line for _, line in lines[at : at + LINES])
            other, number = first.setdefault(block, (where, lines[at][0]))
            if (other, number) != (where, lines[at][0]) and (where, other) not in TWINS and (other, where) not in TWINS:
                found.setdefault((where, other), f"{where}:{lines[at][0]}: {LINES} lines that stand in {other}:{number}, too")
    return list(found.values())


if __name__ == "__main__":
    tree.run(check)
