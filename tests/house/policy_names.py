"""toolkit/ names a policy only where its table says why: what all policies do, a run asks of their kinds.

toolkit/config has the rules between keys, and toolkit/families the defaults of a family; both name whom they like. To take a
policy's options by their type or out of a variable that holds the options of all names it too.
"""

import re
from pathlib import Path

import planner_names
import tree

FREE = ("toolkit/config/", "toolkit/families/")
# What has to be said of a policy by name, and where.
MAY_NAME = {
    "ema": {"run/out_of_memory.cpp"},  # advice, where memory is not enough
    "attention": {"run/out_of_memory.cpp"},
    "fusion": {"programs/dit_train.cpp", "programs/installed.cpp"},  # its kernels are a library that a program opens
    "inference": set(),
    # A CPU's is chosen by trial steps, or by what fits.
    "precision": {
        "train/precision_choice.cpp", "train/validation.cpp", "run/start.cpp", "run/other_fits.cpp", "run/folder.cpp", "run/out_of_memory.cpp", "report/plan_summary.cpp",
        "plan/plan.cpp", "plan/plan_text.cpp", "plan/calibrate.cpp", "plan/place_checkpoints.cpp", "commands/plan.cpp", "commands/init.cpp",
    },
    # keep = "auto" is chosen by plans, and plans compare what is kept.
    "checkpoint": {
        "report/placement.h", "report/placement.cpp", "run/start.cpp", "run/escalation.cpp", "run/out_of_memory.cpp", "commands/plan.cpp",
        "plan/plan.cpp", "plan/alternatives.h", "plan/alternatives.cpp", "plan/calibrate.cpp", "plan/per_token.cpp", "plan/place_checkpoints.cpp",
    },
    # Ranks divide by it, and level = "auto" is chosen by plans.
    "shard": {"train/apply_policies.cpp", "report/level_choice.cpp", "plan/worlds.cpp", "run/other_fits.cpp", "run/out_of_memory.cpp"},
}  # fmt: skip


HOLDERS = re.compile(  # variables that hold the options of all
    r"\bPolicyOptions\s*&{0,2}\s*(?!const\b)(\w+)\s*(?=[=;,){(])"
    r"|[\w&*>]\s*[\s&*,]\s*(\w+)\s*(?:=\s*|\{\s*|\(\s*)&?(?:\w+(?:\(\))?(?:\.|->))+policies_?(?:\(\))?(?=\s*[;,)}])"
)


def holders(path: Path) -> set[str]:
    """Those of a file, and of the header beside it."""
    found = set()
    for file in {path, path.with_suffix(".h")}:
        if file.is_file():
            text = tree.without_comments(file.read_text(encoding="utf-8"), strings=False)
            found |= {match[1] or match[2] for match in HOLDERS.finditer(text)}
    return found


def naming(names: list[str], held: set[str]) -> re.Pattern:
    """A policy by its key, its type or a member of what holds the options of all."""
    types = "|".join("".join(part.capitalize() for part in name.split("_")) for name in names)
    of = "|".join(sorted({r"policies_?(?:\(\))?"} | held))
    return re.compile(
        rf"\b(?:{of})\s*(?:\.|->)\s*({'|'.join(names)})\b"
        rf"|\b({types})Options\b|\bpolicies::({types})(?:Policy)?\b|\b({types})(?:Policy)?::kName\b"
    )


def named(match: re.Match) -> str:
    name = next(group for group in match.groups() if group)
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def check(root: Path) -> list[str]:
    found = []
    names = sorted(planner_names.names(root, "policies"))
    seen = set()
    for path in tree.code(root, "toolkit"):
        where = path.relative_to(root).as_posix()
        if where.startswith(FREE):
            continue
        pattern = naming(names, holders(path))
        for number, line in enumerate(tree.read_code(path, strings=True), 1):
            for name in sorted({named(match) for match in pattern.finditer(line)}) if names else ():
                seen.add((name, where))
                if where.removeprefix("toolkit/") not in MAY_NAME.get(name, set()):
                    found.append(f"{tree.place(root, path, number)}: names policies.{name}; ask its kind (policy_kind.h), or say why in {Path(__file__).name}")
    gone = [(name, file) for name, files in MAY_NAME.items() if name in names for file in sorted(files) if (name, f"toolkit/{file}") not in seen]
    return found + [f"toolkit/{file}: no longer names policies.{name}; take it out of {Path(__file__).name}" for name, file in gone]


if __name__ == "__main__":
    tree.run(check)
