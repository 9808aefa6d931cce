"""policies/README.md's table of process-wide state is that of the sources.

Each thread_local, each variable of a namespace or static one that is not const, each static pointer to a leaked object
and each torch::Library that registers kernels for good has a row: its name, and its file, in policies/ or by its whole
path. The usual forms of declarations are known here; data_symbols.py asks the built libraries.
"""

import re
from pathlib import Path

import tree

README = "policies/README.md"
TABLE = re.compile(r"(?<=<!-- process-wide state -->\n).*?(?=<!-- /process-wide state -->)", re.DOTALL)
STATE = re.compile(
    r"\bthread_local\b[^;={(]*?\b(?P<local>\w+)\s*[;={]"
    r"|^(?!using\b|const|namespace\b|return\b|extern\b|static\b|inline const|volatile const|struct\b|class\b|enum\b|concept\b|friend\b)"
    r"(?:(?:inline|volatile|unsigned|signed|long|short)\s+)*[\w:]+(?:<[^;(=]*>)?[\s*&]+(?P<global>\w+)\s*(?:\[[^;=\]]*\]\s*)*(?:=[^;]*|\{[^;}]*\}|\((?=[\d\"'-])[^;]*\))?;"
    r"|^const\s+[\w:]+(?:<[^;(=]*>)?\s*\*\s*(?!const\b)(?P<pointer>\w+)\s*(?:=[^;]*|\{[^;}]*\})?;"
    r"|^constinit\s+(?!const\b)[^;={(]*?\b(?P<constinit>\w+)\s*(?:=[^;]*|\{[^;}]*\})?;"
    r"|\bstatic\s+(?:(?:inline|constinit)\s+)*(?!const|inline|thread_local)"
    r"[\w:]+(?:<[^;=]*?>)?[\s*&]+(?P<static>\w+)\s*(?:[;={[]|\((?=[\d\"'-]))"
    r"|\bstatic\s+(?:const\s+)?auto\s*[*&]\s*(?:const\s+)?(?P<leaked>\w+)\s*="
    r"|\bstatic\s+const\s+[\w:]+(?:<[^;=]*>)?\s*[*&]\s*(?:const\s+)?(?P<bound>\w+)\s*=\s*\*?\s*new\b"
    r"|\bstatic\s+const\s+auto\s+(?P<owner>\w+)\s*=\s*std::make_(?:unique|shared)\b"
    r"|\bstatic\s+const\s+(?:at::Generator|std::(?:shared|unique)_ptr<[^;=]*>)\s+(?P<handle>\w+)\s*[;={(]"
    r"|\bauto\s*\*\s*(?:const\s+)?(?P<kernels>\w+)\s*=\s*new\s+torch::Library\b"
    r"|\bauto\s+(?P<released>\w+)\s*=\s*std::make_unique<torch::Library>",
    re.MULTILINE,
)
NAME = re.compile(r"`([^`]+)`")


def of_sources(root: Path) -> dict[tuple[str, str], str]:
    """Where each is, by file and name."""
    found = {}
    for path in tree.code(root, "policies", "models", "toolkit"):
        text = tree.without_comments(path.read_text(encoding="utf-8"), strings=False)
        for match in STATE.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            name = next(group for group in match.groups() if group)
            found[path.relative_to(root).as_posix().removeprefix("policies/"), name] = tree.place(root, path, line)
    return found


def of_table(root: Path) -> set[tuple[str, str]] | None:
    """Files and names of the first two columns; None without a table."""
    readme = root / README
    table = TABLE.search(readme.read_text(encoding="utf-8")) if readme.is_file() else None
    if table is None:
        return None
    found = set()
    for row in table[0].strip().split("\n")[2:]:
        names, files = row.strip("|").split("|")[:2]
        found |= {(file, name) for file in NAME.findall(files) for name in NAME.findall(names)}
    return found


def check(root: Path) -> list[str]:
    sources, table = of_sources(root), of_table(root)
    if table is None:
        return [f"{README}: no table of process-wide state"] if sources else []
    unlisted = [
        f"{place}: {name} is process-wide or a thread's, and has no row in {README}"
        for (file, name), place in sources.items()
        if (file, name) not in table
    ]
    gone = [f"{README}: no {name} in {file}" for file, name in sorted(table - sources.keys())]
    return unlisted + gone


if __name__ == "__main__":
    tree.run(check)
