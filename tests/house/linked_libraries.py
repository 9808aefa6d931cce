"""linked_libraries.py BUILD: no program of the build needs libtorch_cuda to start."""

import os
import re
import subprocess
import sys
from pathlib import Path

NEEDED = re.compile(r"\(NEEDED\).*\[(.+?)\]")
FORBIDDEN = re.compile(r"libtorch\.so|libtorch_cuda|libc10_cuda|libtorch_python")


def programs(build: Path) -> list[Path]:
    """Executables in the build folder and its tests/, by their first bytes."""
    found = []
    for folder in (build, build / "tests"):
        for path in sorted(folder.iterdir()) if folder.is_dir() else []:
            if path.is_file() and os.access(path, os.X_OK) and path.read_bytes()[:4] == b"\x7fELF":
                found.append(path)
    return found


def needed(program: Path) -> list[str]:
    environment = dict(os.environ, LC_ALL="C")
    result = subprocess.run(
        ["readelf", "-d", str(program)], capture_output=True, text=True, check=True, env=environment
    )
    return NEEDED.findall(result.stdout)


def check(build: Path, expected: tuple[str, ...]) -> list[str]:
    seen = programs(build)
    names = {program.name for program in seen}
    found = [f"{build / name}: not built; build all targets first" for name in expected if name not in names]
    for program in seen:
        found += [
            f"{program}: needs {library}; programs link torch_cpu and c10 only"
            for library in needed(program)
            if FORBIDDEN.match(library)
        ]
    return found


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: linked_libraries.py BUILD [PROGRAM-THAT-MUST-BE-THERE ...]")
    offences = check(Path(sys.argv[1]), tuple(sys.argv[2:]))
    print("\n".join(offences) or "clean")
    sys.exit(1 if offences else 0)
