"""Texts of errors decide nothing: what a program does next depends on an error's type or on a field of it.

What comes from what() is followed through the variables of a function, and into functions of the same file that take it:
it may be printed, joined and cut, but not searched or compared.
"""

import re
from pathlib import Path

import tree

SEARCHES = r"(?:find\w*|rfind|starts_with|ends_with|contains|compare)"
SEARCH_FUNCTIONS = r"(?:std(?:::ranges)?::)?(?:strn?(?:str|cmp|casecmp)|regex_(?:search|match)|search)"
# They hold such a text wherever they come from.
KNOWN = {"problem", "refusal", "message", "reason"}
TAKEN = re.compile(r"(?<![\w.>])((?:\w+(?:\.|->))*\w+)(?:\[[^\]\n]*\])?\s*(?:\+?=(?!=)|\{|\()(?=[^;{}]*\bwhat\(\))")
CALLED = re.compile(r"\b(\w+)\((?=[^;{}()]*(?:\([^;{}()]*)?\bwhat\(\))")
NO_FUNCTIONS = {"if", "while", "for", "switch", "return", "catch"}
# Where texts are taken apart for a reader's sake: nothing is decided by them.
FOR_READERS = {"policies/shard/collectives.cpp"}  # leaves LibTorch's "[...] " and advice out of a message


def uses(name: str) -> str:
    """A text that is searched or compared."""
    name = re.escape(name)
    return (
        rf"(?<![\w.>]){name}\s*(?:\.|->)\s*{SEARCHES}\s*\("
        rf"|(?<![\w.>]){name}\s*[!=]=(?!=)|[!=]=\s*{name}\b(?!\s*(?:[\w.([]|->|::))"
        rf"|\b{SEARCH_FUNCTIONS}\s*\(\s*(?:[^;()]*,\s*)?{name}\b|(?:\.|->){SEARCHES}\s*\(\s*{name}\b"
    )


DIRECT = re.compile(
    rf"\bwhat\(\)\s*\)*\s*(?:\.|->)\s*{SEARCHES}\s*\(|\bwhat\(\)\s*\)*\s*[!=]="
    r"|[!=]=\s*(?:std::string(?:_view)?[({]\s*)?\w+(?:\.|->)what\(\)"
    rf"|\b{SEARCH_FUNCTIONS}\s*\([^;]*\bwhat\(\)|(?:\.|->){SEARCHES}\s*\([^;(){{}}]*\bwhat\(\)"
    rf"|\b(?:{'|'.join(sorted(KNOWN))})(?:\(\))?\s*(?:\.|->)\s*{SEARCHES}\s*\("
)


def end_of_function(text: str, begin: int) -> int:
    """Functions of a file end with a brace that begins a line."""
    end = re.compile(r"^\}", re.MULTILINE).search(text, begin)
    return end.start() if end else len(text)


def searched(text: str, name: str, begin: int) -> list[tuple[int, str]]:
    """Where a variable, or one that is made of it, is searched or compared from there on."""
    end = end_of_function(text, begin)
    found, names, todo = [], {name}, [(name, begin)]
    while todo:
        held, since = todo.pop()
        found += [(match.start(), match[0]) for match in re.compile(uses(held)).finditer(text, since, end)]
        made = re.compile(rf"\b(?:auto|string|string_view|char\*)\s*[&*]*\s*(?:const\s+)?(\w+)\s*(?:=(?!=)|\{{|\()[^;{{}}]*(?<![\w.>]){re.escape(held)}\b(?!\s*(?:\.|->)\s*\w*(?:size|empty|length)\b)")
        for match in made.finditer(text, since, end):
            if match[1] not in names:
                names.add(match[1])
                todo.append((match[1], match.end()))
    return found


def parameters(text: str, function: str) -> list[tuple[str, int]]:
    """Names of texts that functions of that name take, each with the place of its body."""
    found = []
    for match in re.finditer(rf"(?<![.>\w]){function}\(([^;{{}}()]*)\)\s*(?:const\s*)?(?:noexcept\s*)?\{{|\b{function}\s*=\s*\[[^\]]*\]\s*\(([^;{{}}()]*)\)[^;{{}}]*\{{", text):
        for parameter in (match[1] or match[2] or "").split(","):
            named = re.search(r"\b(?:auto|string|string_view|char)\b[\s&*]*(?:const\s+)?(\w+)\s*$", parameter)
            found += [(named[1], match.end())] if named else []
    return found


def offences(text: str) -> dict[int, str]:
    """By line."""
    found = [(match.start(), match[0]) for match in DIRECT.finditer(text)]
    for match in TAKEN.finditer(text):
        end = text.find(";", match.end())
        found += searched(text, match[1], end if end >= 0 else match.end())
    for function in {match[1] for match in CALLED.finditer(text)} - NO_FUNCTIONS:
        for name, begin in parameters(text, function):
            found += searched(text, name, begin)
    return {text.count("\n", 0, at) + 1: " ".join(what.split()) for at, what in sorted(found, reverse=True)}


def check(root: Path) -> list[str]:
    found = []
    for path in tree.code(root, "toolkit", "policies", "models"):
        if path.relative_to(root).as_posix() in FOR_READERS:
            continue
        text = tree.without_comments(path.read_text(encoding="utf-8"), strings=True)
        for line, what in sorted(offences(text).items()):
            found.append(f"{tree.place(root, path, line)}: {what}; ask a type or a field: texts of errors decide nothing")
    return found


if __name__ == "__main__":
    tree.run(check)
