"""clean_root_test.py BUILD LIBTORCH: the packages of BUILD in a Debian 12 that has nothing else.

As root, with mmdebstrap and Debian's packages in reach. LIBTORCH is the torch of a wheel. When all passed it writes
BUILD/tests/clean_root.md, of which benchmarks/results/ holds the newest.
"""

import functools
import os
import re
import shutil
import subprocess
import sys
import time
import unittest
from pathlib import Path

BUILD = LIBTORCH = Path()
PROGRAMS = ("dit-export", "dit-plan", "dit-sample", "dit-train")
figures: list[tuple[str, str]] = []  # what was measured, for the result


def work() -> Path:
    return BUILD / "tests/clean_root_test"


def done(*command: object, **options: object) -> str:
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    assert result.returncode == 0, f"{command}\n{result.stdout}{result.stderr}"
    return result.stdout


def timed(what: str, action):
    started = time.monotonic()
    result = action()
    figures.append((what, f"{time.monotonic() - started:.0f} s"))
    return result


@functools.cache
def packages() -> dict[str, Path]:
    for older in (BUILD / "packages").glob("dit-train-*"):
        older.unlink() if older.is_file() else shutil.rmtree(older)
    timed("`cpack`", lambda: done("cpack", cwd=BUILD))
    made = {kind: next((BUILD / "packages").glob(f"*.{kind}")) for kind in ("deb", "tar.zst")}
    figures.extend((path.name, f"{path.stat().st_size:,} bytes") for path in made.values())
    return made


@functools.cache
def root() -> Path:
    """A fresh Debian with the Debian package, and without a LibTorch."""
    assert os.geteuid() == 0, "a root of its own needs root: start this test as root"
    assert shutil.which("mmdebstrap"), "mmdebstrap is missing: apt-get install mmdebstrap, or tests/run -L long"
    shutil.rmtree(work(), ignore_errors=True)
    work().mkdir(parents=True)
    place = work() / "root"
    timed("a clean root", lambda: done("mmdebstrap", "--quiet", "--variant=minbase", "bookworm", place))
    shutil.copy(packages()["deb"], place / "tmp/package.deb")
    result = inside("dpkg", "--install", "/tmp/package.deb")
    assert result.returncode == 0, result.stderr
    return place


def inside(*command: str, **variables: str) -> subprocess.CompletedProcess:
    place = work() / "root"
    enter = ["unshare", "--mount", "--pid", "--fork", f"--mount-proc={place}/proc", "chroot", place]
    words = ["env", "-i", "PATH=/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL=C.UTF-8"]
    words += [f"{name}={value}" for name, value in variables.items()]
    return subprocess.run([*enter, *words, *command], capture_output=True, text=True)


def give_torch(folder: str) -> str:
    """The libraries of LIBTORCH at `folder` of the root, with CUDA's beside it as in a wheel's environment."""
    place = root() / folder.lstrip("/")
    for source, copy in ((LIBTORCH / "lib", place / "lib"), (LIBTORCH.parent / "nvidia", place.parent / "nvidia")):
        copy.parent.mkdir(parents=True, exist_ok=True)
        if copy.exists() or not source.exists():
            continue
        if subprocess.run(["cp", "--archive", "--link", source, copy], capture_output=True).returncode != 0:
            shutil.rmtree(copy, ignore_errors=True)  # on another file system
            done("cp", "--archive", source, copy)
    shutil.copy(LIBTORCH / "version.py", place)
    return folder


def version(folder: str) -> str:
    return re.search(r"__version__ = '([^']+)", (root() / folder.lstrip("/") / "version.py").read_text())[1]


def torch_in_use(**variables: str) -> str:
    result = inside("dit-train", "--doctor", **variables)
    return re.search(r"^LibTorch +(.*)$", result.stdout, re.MULTILINE)[1]


class CleanRoot(unittest.TestCase):
    def test_1_without_a_libtorch_each_program_says_where_it_looked(self):
        root()
        for program in PROGRAMS:
            result = inside(program, "--config", "base")
            self.assertEqual((result.returncode, result.stdout), (2, ""), result)
            for place in ("DTK_TORCH is not set", "no Python environment is active", "/opt/libtorch: there is no "):
                self.assertIn(place, result.stderr)
        doctor = inside("dit-train", "--doctor")
        self.assertIn("nothing can be trained, planned or sampled", doctor.stdout)

    def test_2_the_debian_package_trains_plans_samples_and_exports(self):
        give_torch("/opt/libtorch")
        self.assertEqual(inside("dit-train", "--version").returncode, 0)
        result = timed(
            "`dit-train --config base --set train.seconds=20`",
            lambda: inside("dit-train", "--config", "base", "--set", "train.seconds=20", "--set", "train.out=/run1"),
        )
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("SYNTHETIC", result.stdout)  # the data set is recommended, not needed
        self.assertRegex(result.stdout, r"planned +")
        (picture,) = (root() / "run1/samples").glob("*.png")
        self.assertGreater(picture.stat().st_size, 1000)
        grid = ("--classes", "0,1", "--per-class", "2", "--out", "/run1/grid.png")
        for command in (
            ("dit-sample", "--checkpoint", "/run1", *grid),
            ("dit-export", "--checkpoint", "/run1", "--out", "/run1/weights.safetensors"),
            ("dit-plan", "--config", "dit_xl2_latents"),
        ):
            result = inside(*command)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertTrue((root() / "run1/weights.safetensors").exists())

    def test_3_the_places_are_looked_at_in_order(self):
        opt = give_torch("/opt/libtorch")
        packages = "/venv/lib/python3.11/site-packages"
        active = give_torch(f"{packages}/torch")
        given = give_torch("/elsewhere/mine")
        self.assertEqual(torch_in_use(), f"{version(opt)} in {opt}")
        self.assertEqual(torch_in_use(VIRTUAL_ENV="/venv"), f"{version(active)} in {active}")
        self.assertEqual(torch_in_use(VIRTUAL_ENV="/venv", DTK_TORCH=given), f"{version(given)} in {given}")

    def test_4_another_version_ends_with_code_2(self):
        folder = give_torch("/other/torch")
        file = root() / "other/torch/version.py"
        file.write_text(re.sub(r"'\d+\.\d+", "'2.9", file.read_text()))
        result = inside("dit-train", "--config", "base", DTK_TORCH=folder)
        self.assertEqual(result.returncode, 2)
        self.assertIn("DTK_TORCH: LibTorch 2.9", result.stderr)
        self.assertIn(f"in {folder}\n", result.stderr)

    def test_5_the_archive_runs_where_it_is_unpacked(self):
        give_torch("/opt/libtorch")
        place = root() / "srv"
        done("cmake", "-E", "tar", "xf", packages()["tar.zst"], cwd=place)
        (folder,) = (path for path in place.iterdir() if path.is_dir())
        self.assertEqual(inside("dpkg", "--remove", "dit-train").returncode, 0)
        self.assertNotEqual(inside("dit-train", "--version").returncode, 0)
        # dpkg leaves nothing of the package behind.
        left = [path for path in root().glob("usr/**/*dit-train*") if path.parts[-1] != "dit-train.list"]
        self.assertEqual(left, [])
        program = f"/srv/{folder.name}/bin/dit-train"
        result = inside(program, "--config", "base", "--set", "train.seconds=5", "--set", "train.out=/run2")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)


def result(tests: int) -> str:
    commit = done("git", "-C", Path(__file__).parent, "rev-parse", "--short", "HEAD").strip()
    rows = "".join(f"| {what} | {figure} |\n" for what, figure in figures)
    return f"""\
# The packages in a clean Debian 12

Command: `tests/run -L long`. Commit {commit}, {time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, LibTorch
{version('/opt/libtorch')}. All {tests} tests passed, in a root by `mmdebstrap --variant=minbase bookworm`.

| step | figure |
|---|---|
{rows}"""


if __name__ == "__main__":
    BUILD, LIBTORCH = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    program = unittest.main(argv=sys.argv[:1], exit=False)
    if program.result.wasSuccessful():
        (BUILD / "tests/clean_root.md").write_text(result(program.result.testsRun), encoding="utf-8")
    sys.exit(not program.result.wasSuccessful())
