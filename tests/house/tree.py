"""Reading the project's tree, for the house checks. Standard library only."""

import os
import re
import sys
from pathlib import Path
from typing import Callable, Iterator

CODE = {".h", ".cpp", ".cu", ".cuh"}


def ignored(root: Path) -> set[str]:
    """Top-level entries that .gitignore names as /entry or /entry/; build outputs live there."""
    path = root / ".gitignore"
    lines = path.read_text().split() if path.is_file() else []
    return {".git"} | {line.strip("/") for line in lines if line.startswith("/")}


def files(root: Path, *folders: str) -> Iterator[Path]:
    """All files below the given folders (below root without any), sorted, build outputs left out."""
    skipped = ignored(root)
    starts = [root / folder for folder in folders] if folders else [root]
    for start in starts:
        for folder, names, leaves in os.walk(start):
            if Path(folder) == root:
                names[:] = [name for name in names if name not in skipped]
            names[:] = sorted(name for name in names if name != "__pycache__")
            yield from (Path(folder) / leaf for leaf in sorted(leaves))


def code(root: Path, *folders: str) -> Iterator[Path]:
    return (path for path in files(root, *folders) if path.suffix in CODE)


def cmake_files(root: Path, *folders: str) -> Iterator[Path]:
    for path in files(root, *folders):
        if path.name == "CMakeLists.txt" or path.suffix == ".cmake":
            yield path


# Comments, raw strings, strings, characters; digit separators are not taken for characters of any length.
_TOKEN = re.compile(
    r"//[^\n]*"
    r"|/\*.*?\*/"
    r'|R"(?P<tag>[^()\\\s]{0,16})\(.*?\)(?P=tag)"'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'(?:\\.|[^'\\\n]){1,4}'",
    re.DOTALL,
)


def without_comments(text: str, strings: bool) -> str:
    """C++ text with comments blanked, and string literals too unless `strings`; lines keep their numbers."""

    def blank(match: re.Match) -> str:
        token = match.group(0)
        if token.startswith(("//", "/*")) or not strings:
            return re.sub(r"[^\n]", " ", token)
        return token

    return _TOKEN.sub(blank, text)


def literals_emptied(text: str) -> str:
    """C++ text with comments blanked and strings reduced to their quotes; lines keep their numbers."""

    def emptied(match: re.Match) -> str:
        token = match.group(0)
        return ('""' if token.endswith('"') and not token.startswith("//") else " ") + "\n" * token.count("\n")

    return _TOKEN.sub(emptied, text)


def read_code(path: Path, strings: bool = False) -> list[str]:
    return without_comments(path.read_text(encoding="utf-8"), strings).split("\n")


def read_cmake(path: Path) -> list[str]:
    return [line.split("#")[0] for line in path.read_text(encoding="utf-8").split("\n")]


def place(root: Path, path: Path, line: int | None = None) -> str:
    where = path.relative_to(root).as_posix()
    return where if line is None else f"{where}:{line}"


def run(check: Callable[[Path], list[str]]) -> None:
    """Runs a check as a program: `check.py ROOT` prints each offence and exits 1 when there is one."""
    if len(sys.argv) != 2:
        sys.exit(f"usage: {Path(sys.argv[0]).name} ROOT")
    offences = check(Path(sys.argv[1]).resolve())
    for offence in offences:
        print(offence)
    print(f"{len(offences)} offences" if offences else "clean")
    sys.exit(1 if offences else 0)
