"""A header that a comment names is there: names in comments are not renamed by a compiler's errors."""

import re
from pathlib import Path

import tree

NAMED = re.compile(r"(?<![\w/.<\"-])(?:[\w-]+/)*([a-z]\w*\.h)\b")  # of LibTorch they begin with capitals


def check(root: Path) -> list[str]:
    there = {path.name for path in tree.code(root)}
    found = []
    for path in tree.code(root):
        text = path.read_text(encoding="utf-8")
        code = tree.without_comments(text, strings=True).split("\n")
        for number, (line, without) in enumerate(zip(text.split("\n"), code), 1):
            comment = line[len(without.rstrip()) :]
            for name in NAMED.findall(comment):
                if name not in there:
                    found.append(f"{tree.place(root, path, number)}: the comment names {name}, which is no file here")
    return found


if __name__ == "__main__":
    tree.run(check)
