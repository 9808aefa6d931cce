"""policies/planner/ names no model and no policy: a job's own code says all that it needs to know.

A policy's name is that of its options in policies/, a model's that of its options in models/. The planner includes no
header of either and has no word of its code that is one or begins with one. Operators of LibTorch are called what they are
called: "attention" is a word of theirs and may stand in names, though not as a string of its own. "checkpointing" is the
technique, of which an explanation says what it could give; its options and its switch are the policy's.
"""

import re
from pathlib import Path

import tree

PLANNER = "policies/planner"
OF_LIBTORCH = {"attention"}
TECHNIQUE = "checkpointing"
NO_POLICY = {"policy", "own"}  # the options of all of them, and of those that a program brings along
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]dtk/(policies|models)/(?:internal/|options/)?(\w+)\.h[>"]')
WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
STRING = re.compile(r'"((?:\\.|[^"\\])*)"')


def names(root: Path, library: str) -> set[str]:
    folder = root / library / "include" / "dtk" / library
    return {path.name.removesuffix("_options.h") for path in folder.rglob("*_options.h")} - NO_POLICY


def offence(line: str, policies: set[str], models: set[str]) -> str | None:
    include = INCLUDE.match(line)
    if include:
        library, header = include.groups()
        if library == "models" or any(re.match(rf"{name}(_|$)", header) for name in policies):
            return f"includes dtk/{library}/{header}.h"
        return None
    words = {word.lower() for word in WORD.findall(line)} - {TECHNIQUE}
    for name in sorted(policies | models):
        begins = len(name) > 3  # three letters begin many words
        is_word = any(word == name or begins and word.startswith(name) for word in words) and name not in OF_LIBTORCH
        if is_word or "_" in name and re.search(name.replace("_", "_?"), line, re.IGNORECASE) or name in STRING.findall(line):
            return f"names {name}"
    return None


def check(root: Path) -> list[str]:
    policies, models = names(root, "policies"), names(root, "models")
    found = []
    for path in tree.code(root, PLANNER):
        for number, line in enumerate(tree.read_code(path, strings=True), 1):
            seen = offence(line, policies, models)
            if seen:
                found.append(f"{tree.place(root, path, number)}: {seen}; the planner knows no model and no policy")
    return found


if __name__ == "__main__":
    tree.run(check)
