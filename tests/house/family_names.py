"""A family's name stands in its own folder and where families are registered: toolkit/ elsewhere asks the family object,
and policies/ knows no family, nor what one is made of, such as LoRA. A name counts within others, too: LlavaOptions,
dtk/models/vggt.h."""

import re
from pathlib import Path

import tree

FAMILIES = "toolkit/families"
MAY_NAME = {  # the one that is taken where none is named, and a table's name in old configurations
    "toolkit/config/config.h": "dit",
    "toolkit/config/reader.cpp": "diffusion_planner",
}
PROGRAMS = r"dit[-_](?:train|sample|plan|export|launch)"  # of ours
OF_ONE = {"lora"}


def names(root: Path) -> set[str]:
    folder = root / FAMILIES
    return {path.name for path in folder.iterdir() if path.is_dir()} if folder.is_dir() else set()


def form(word: str) -> str:
    """Of "diffusion_planner": also DiffusionPlanner. One of three letters is part of many words, such as "condition"."""
    parts = word.split("_")
    if len(word) > 3:
        return "(?i:" + "_?".join(parts) + ")"
    return rf"(?<![A-Za-z]){word}(?![a-z])|{word.capitalize()}(?![a-z])|(?<![A-Za-z]){word.upper()}(?![A-Z])"


def check(root: Path) -> list[str]:
    found = []
    for library, words in (("policies", names(root) | OF_ONE), ("toolkit", names(root))):
        for path in tree.code(root, library):
            inside = path.relative_to(root).as_posix()
            if inside.startswith(FAMILIES + "/"):
                continue
            banned = sorted(words - {MAY_NAME.get(inside)})
            pattern = re.compile("|".join(form(word) for word in banned)) if banned else None
            for number, line in enumerate(tree.read_code(path, strings=True), 1):
                for match in pattern.finditer(re.sub(PROGRAMS, "", line)) if pattern else ():
                    found.append(
                        f"{tree.place(root, path, number)}: names {match.group(0)}; ask the family (family_of())"
                    )
    return found


if __name__ == "__main__":
    tree.run(check)
