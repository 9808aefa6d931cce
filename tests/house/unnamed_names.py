"""A name of an unnamed namespace stands once in its library: a release build compiles several files as one.

Functions of one name may differ in their parameters; `using` and namespace aliases may be repeated as they are.
"""

import re
from collections import defaultdict
from pathlib import Path

import tree

LIBRARIES = ("policies/planner", "policies", "models", "toolkit")  # a file's is the first that holds it
NAMESPACE = re.compile(r"namespace ([\w:]+) \{")
ALIAS = re.compile(r"(?:using|namespace) (\w+) = ")
TYPE = re.compile(r"(?:class|struct|union|enum(?: class)?) (\w+)")
FUNCTION = re.compile(r"[^=({]*?(?<!:)\b(\w+)\(([^)]*)")
VARIABLE = re.compile(r"[^=({;]*?\b(\w+)(?:\[\w*\])*\s*[=({;]")
SKIPPED = re.compile(r"template\b|using namespace\b|using [\w:]+;|static_assert\b|[\w:<>&* ]*\w::~?\w+\(|[A-Z_]+\(")


def declarations(text: str) -> list[tuple[str, int, str]]:
    """Namespace, line and text up to its body of each declaration in an unnamed namespace; all begin in column 0."""
    found: list[tuple[str, int, str]] = []
    around: list[str] = []
    inside = False
    code = tree.without_comments(text, strings=False).split("\n")
    for number, line in enumerate(text.split("\n")):
        if line == "namespace {":
            inside = True
        elif opened := NAMESPACE.fullmatch(line):
            around.append(opened[1])
        elif line.startswith("}  // namespace"):
            if not inside and around:
                around.pop()
            inside = False
        elif inside and code[number] and code[number][0] not in " \t}#)":
            rest = " ".join(code[number:])
            found.append(("::".join(around), number + 1, " ".join(re.match(r"[^{;]*[{;]?", rest)[0].split())))
    return found


def name_and_kind(declaration: str) -> tuple[str, str] | None:
    """Two of one name clash unless both are aliases with one text, or functions with other texts."""
    if SKIPPED.match(declaration):
        return None
    if alias := ALIAS.match(declaration):
        return alias[1], declaration
    if declared := TYPE.match(declaration):
        return None if declaration.endswith(";") else (declared[1], "type")
    if function := FUNCTION.match(declaration):
        return function[1], f"({function[2]})"
    if variable := VARIABLE.match(declaration):
        return variable[1], "variable"
    return None


def clash(one: str, other: str) -> bool:
    is_alias = one.startswith(("using", "namespace"))
    return one != other if is_alias else not (one.startswith("(") and other.startswith("(") and one != other)


def check(root: Path) -> list[str]:
    seen: dict[tuple[str, str, str], list[tuple[str, str]]] = defaultdict(list)
    found = []
    for path in tree.code(root, "policies", "models", "toolkit"):
        if path.suffix != ".cpp":
            continue
        where = path.relative_to(root).as_posix()
        library = next(name for name in LIBRARIES if where.startswith(name + "/"))
        for namespace, line, declaration in declarations(path.read_text(encoding="utf-8")):
            named = name_and_kind(declaration)
            if named is None:
                continue
            name, kind = named
            others = seen[library, namespace, name]
            for other_place, other_kind in others:
                if not other_place.startswith(where + ":") and clash(kind, other_kind):
                    found.append(f"{where}:{line}: {name} stands at {other_place} too, and may be compiled with it")
                    break
            others.append((f"{where}:{line}", kind))
    return found


if __name__ == "__main__":
    tree.run(check)
