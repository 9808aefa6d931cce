"""A text of four or more parts is written by fmt::format(), where a reader sees it whole; `+` joins shorter ones.

Of toolkit/ but what starts without a library: its launcher, and the room `launch`.
"""

import re
from pathlib import Path

import tree

MOST = 3  # parts
WITHOUT_FMT = ("toolkit/launch/", "toolkit/programs/launcher.cpp")
OPERATOR = re.compile(r"::|->|[-+*/%&|<>=!]=|<<|>>|&&|\|\||(?<=\s)\+(?=\s)|[][(){},;?:=&|<>\"]|\breturn\b")


def joined(text: str) -> list[int]:
    """Lines on which an expression begins that joins more than MOST parts, one of them a literal."""
    text = tree.literals_emptied(text)
    found: list[int] = []
    chains = [([], [])]  # of each open bracket: where "+" and literals stand in the expression so far

    def end() -> None:
        pluses, literals = chains[-1]
        if len(pluses) >= MOST and literals:
            found.append(text.count("\n", 0, pluses[0]) + 1)
        chains[-1] = ([], [])

    for match in OPERATOR.finditer(text):
        token = match[0]
        if token == "+":
            chains[-1][0].append(match.start())
        elif token == '"':
            chains[-1][1].append(match.start())
        elif token in "([{":
            chains.append(([], []))
        elif token in ")]}":
            end()
            if len(chains) > 1:
                chains.pop()
        elif token not in ("::", "->"):
            end()
    return found


def check(root: Path) -> list[str]:
    return [
        f"{tree.place(root, path, line)}: joins more than {MOST} parts of a text by +; write fmt::format() (toolkit/core/format.h)"
        for path in tree.code(root, "toolkit")
        if not tree.place(root, path).startswith(WITHOUT_FMT)
        for line in joined(path.read_text(encoding="utf-8"))
    ]


if __name__ == "__main__":
    tree.run(check)
