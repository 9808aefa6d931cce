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
    return found + ci_offences(root)


if __name__ == "__main__":
    tree.run(check)
