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
    chains = [[0, False, 0]]  # of each open bracket: "+" so far, whether there is a literal, where it began

    def end(at: int) -> None:
        count, literal, begin = chains[-1]
        if count >= MOST and literal:
            found.append(text.count("\n", 0, begin) + 1)
        chains[-1] = [0, False, at]

    for match in OPERATOR.finditer(text):
        token = match[0]
        if token == "+":
            if chains[-1][0] == 0:
                chains[-1][2] = match.start()
            chains[-1][0] += 1
        elif token == '"':
            chains[-1][1] = True
        elif token in "([{":
            chains.append([0, False, match.end()])
        elif token in ")]}":
            end(match.end())
            if len(chains) > 1:
                chains.pop()
        elif token not in ("::", "->"):
            end(match.end())
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
