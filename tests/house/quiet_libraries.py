"""Libraries never print and never end the process: they throw, and log through what they are given."""

import re
from pathlib import Path

import tree

FOLDERS = ("policies", "models", "toolkit")
PROGRAMS = Path("toolkit", "programs")
CALL = r"(?<![\w.>])(?:std::|::)?"
FORBIDDEN = [
    (re.compile(r"\bstd::(?:cout|cerr|clog|wcout|wcerr)\b"), "prints"),
    (re.compile(r"#\s*include\s*<(?:iostream|print)>"), "includes a header that only printing needs"),
    (re.compile(CALL + r"(?:v?f?printf|puts|fputs|putchar|perror|println)\s*\("), "prints"),
    (re.compile(r"(?<![\w.>])(?:::)?write\s*\(\s*(?:[012]|STD(?:OUT|ERR)_FILENO)\s*,"), "prints"),
    (re.compile(CALL + r"(?:_?exit|_Exit|quick_exit|abort|terminate)\s*\("), "ends the process"),
]


def check(root: Path) -> list[str]:
    found = []
    for path in tree.code(root, *FOLDERS):
        if PROGRAMS in path.relative_to(root).parents:
            continue
        for number, line in enumerate(tree.read_code(path), 1):
            for pattern, what in FORBIDDEN:
                match = pattern.search(line)
                if match:
                    found.append(
                        f"{tree.place(root, path, number)}: a library {what}: {match.group(0).strip()}"
                    )
    return found


if __name__ == "__main__":
    tree.run(check)
