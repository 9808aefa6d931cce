"""No source file is longer than 600 lines; those above 400 are listed."""

from pathlib import Path

import tree

SOFT, HARD = 400, 600
SUFFIXES = tree.CODE | {".py", ".sh", ".cmake", ".txt", ".toml", ""}


def is_source(root: Path, path: Path) -> bool:
    inside = path.relative_to(root).parts
    return path.suffix in SUFFIXES and path.name != "LICENSE" and inside[:2] != ("tests", "fixtures")


def lengths(root: Path) -> dict[str, int]:
    return {
        tree.place(root, path): len(path.read_bytes().splitlines())
        for path in tree.files(root)
        if is_source(root, path)
    }


def above_soft(root: Path) -> list[str]:
    return [
        f"{where}: {lines} lines, aim for {SOFT}"
        for where, lines in lengths(root).items()
        if SOFT < lines <= HARD
    ]


def check(root: Path) -> list[str]:
    for line in above_soft(root):
        print(line)
    return [
        f"{where}: {lines} lines; at most {HARD} are allowed, split the file"
        for where, lines in lengths(root).items()
        if lines > HARD
    ]


if __name__ == "__main__":
    tree.run(check)
