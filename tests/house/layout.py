"""The top level holds the agreed entries and nothing else; CI calls tests/run and nothing else."""

import os
import re
from pathlib import Path

import tree

REQUIRED = {
    "toolkit",
    "models",
    "policies",
    "configs",
    "examples",
    "tests",
    "cmake",
    "CMakeLists.txt",
    "CMakePresets.json",
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
}
ALLOWED = REQUIRED | {"benchmarks"}
COMMANDS = ("examples/quickstart", "tests/run", ".ci/run")


def ci_offences(root: Path) -> list[str]:
    path = root / ".ci" / "run"
    lines = [line.strip() for line in path.read_text().split("\n")] if path.is_file() else []
    commands = [line for line in lines if line and not line.startswith("#")]
    if len(commands) == 1 and re.fullmatch(r'exec "\S+( \S+)?/tests/run"( --browser)?', commands[0]):
        return []
    return [".ci/run: must be one command, exec of tests/run; seen: " + ("; ".join(commands) or "nothing")]


def lonely_readmes(root: Path) -> list[str]:
    """Folders that hold a README and nothing to read about."""
    found = []
    for path in sorted(root.glob("*/**/README.md")):
        is_ours = path.relative_to(root).parts[0] in ALLOWED
        if is_ours and [entry.name for entry in path.parent.iterdir()] == ["README.md"]:
            found.append(f"{path.relative_to(root).as_posix()}: the only file of its folder")
    return found


def empty_rooms(root: Path) -> list[str]:
    """Folders of a library without code in them or below."""
    found = []
    for library in ("toolkit", "models", "policies"):
        for path in sorted(path for path in (root / library).glob("**/") if "__pycache__" not in path.parts):
            if next(tree.code(root, path.relative_to(root).as_posix()), None) is None:
                found.append(f"{path.relative_to(root).as_posix()}: a folder without code")
    return found


def check(root: Path) -> list[str]:
    present = {entry.name for entry in root.iterdir()} - tree.ignored(root)
    found = [
        f"{name}: not an agreed top-level entry; allowed are {', '.join(sorted(ALLOWED))} and dot-files"
        for name in sorted(present - ALLOWED)
        if not name.startswith(".")
    ]
    found += [f"{name}: missing at the top level" for name in sorted(REQUIRED - present)]
    found += [
        f"{name}: missing or not executable" for name in COMMANDS if not os.access(root / name, os.X_OK)
    ]
    return found + lonely_readmes(root) + empty_rooms(root) + ci_offences(root)


if __name__ == "__main__":
    tree.run(check)
