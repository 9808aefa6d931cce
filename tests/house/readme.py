"""README's first screen names the two commands that do all the set-up and shows what comes of them; README and CHANGELOG
stay short."""

from pathlib import Path

import tree

FIRST_SCREEN = 60
SHOWN = ("examples/quickstart", "tests/run", "quickstart_samples.png", "policies.svg")
MAX_LINES = {"README.md": 200, "CHANGELOG.md": 60}


def check(root: Path) -> list[str]:
    path = root / "README.md"
    if not path.is_file():
        return ["README.md: missing"]
    first_screen = "\n".join(path.read_text(encoding="utf-8").split("\n")[:FIRST_SCREEN])
    missing = [
        f"README.md: {name} is not in the first {FIRST_SCREEN} lines" for name in SHOWN if name not in first_screen
    ]
    lines = {name: len((root / name).read_text(encoding="utf-8").splitlines()) for name in MAX_LINES}
    return missing + [
        f"{name}: {lines[name]} lines; at most {most}" for name, most in MAX_LINES.items() if lines[name] > most
    ]


if __name__ == "__main__":
    tree.run(check)
