"""hardened.py BUILD PROGRAM...: what the programs are compiled and linked with against overflows is in them.

A release build only: sanitizers have their own ways. toolkit/SECURITY.md says what each is for.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path


def readelf(program: Path, *options: str) -> str:
    environment = dict(os.environ, LC_ALL="C")
    return subprocess.run(
        ["readelf", "-W", *options, str(program)], capture_output=True, text=True, check=True, env=environment
    ).stdout


def lacking(program: Path) -> list[str]:
    header, segments = readelf(program, "-h"), readelf(program, "-l").splitlines()
    dynamic, symbols = readelf(program, "-d"), readelf(program, "--dyn-syms")
    stack = [line.split() for line in segments if "GNU_STACK" in line]
    has = {
        "a position of its own at each start (-pie)": "Type:" in header and " DYN " in header,
        "functions bound before the start (-z now)": "BIND_NOW" in dynamic or "NOW" in dynamic,
        "a table of functions that is read-only then (-z relro)": any("GNU_RELRO" in line for line in segments),
        "a stack that is not executable (-z noexecstack)": bool(stack) and "E" not in stack[0][6],
        "watched return addresses (-fstack-protector-strong)": "__stack_chk_fail" in symbols,
        "checked sizes (_FORTIFY_SOURCE)": "_chk@" in symbols,
    }
    return [what for what, found in has.items() if not found]


# What no program shows: how much is checked, and that no page of the stack is jumped over.
LIBRARY = re.compile(r" -o (toolkit|policies|models)/\S*CMakeFiles/dtk_")
FLAGS = ("-D_FORTIFY_SOURCE=3", "-fstack-protector-strong", "-fstack-clash-protection")


def compiled_without(build: Path) -> list[str]:
    commands = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    libraries = [command["command"] for command in commands if LIBRARY.search(command["command"])]
    if not libraries:
        return [f"{build}/compile_commands.json: compiles no library"]
    return [
        f"{command.split()[-1]}: compiled without {flag}"
        for command in libraries
        for flag in FLAGS
        if flag not in command.split()
    ]


def check(build: Path, names: list[str]) -> list[str]:
    offences = compiled_without(build)
    for name in names:
        program = build / name
        if not program.is_file():
            offences.append(f"{program}: not built; build all targets first")
        else:
            offences += [f"{program}: lacks {what}" for what in lacking(program)]
    return offences


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: hardened.py BUILD PROGRAM...")
    found = check(Path(sys.argv[1]), sys.argv[2:])
    print("\n".join(found) or "clean")
    sys.exit(1 if found else 0)
