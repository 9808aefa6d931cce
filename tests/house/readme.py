"""README's first screen names the two commands that do all the set-up."""

from pathlib import Path

import tree

FIRST_SCREEN = 60
COMMANDS = ("examples/quickstart", "tests/run")


def check(root: Path) -> list[str]:
    path = root / "README.md"
    if not path.is_file():
        return ["README.md: missing"]
    first_screen = "\n".join(path.read_text(encoding="utf-8").split("\n")[:FIRST_SCREEN])
    return [
        f"README.md: {command} is not in the first {FIRST_SCREEN} lines"
        for command in COMMANDS
        if command not in first_screen
    ]


if __name__ == "__main__":
    tree.run(check)
