"""packages_test.py BUILD LIBTORCH PYTHON: what is installed without a compiler: the wheel, and a prefix that was moved.

Both come from BUILD, build/release. PYTHON, of .deps/venv, has auditwheel; LIBTORCH is the torch of its packages.
"""

import functools
import os
import re
import shutil
import subprocess
import sys
import time
import unittest
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
MAX_BYTES = 15_000_000
PROGRAMS = ("dit-export", "dit-plan", "dit-sample", "dit-train")
BUILD = LIBTORCH = PYTHON = ""


def work() -> Path:
    return Path(BUILD).resolve() / "tests/packages_test"


def environment(**more: object) -> dict[str, str]:
    """Without what would lead a program to a LibTorch."""
    hidden = ("DTK_TORCH", "VIRTUAL_ENV", "LD_LIBRARY_PATH")
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    return kept | {name: str(value) for name, value in more.items()}


def run(*command: object, **variables: object) -> subprocess.CompletedProcess:
    folder = work() / "elsewhere"  # not the checkout, which has configurations of its own
    folder.mkdir(parents=True, exist_ok=True)
    words = [str(part) for part in command]
    return subprocess.run(words, capture_output=True, text=True, cwd=folder, env=environment(**variables))


def done(result: subprocess.CompletedProcess) -> str:
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@functools.cache
def fresh() -> None:
    shutil.rmtree(work(), ignore_errors=True)


@functools.cache
def wheel() -> Path:
    fresh()
    done(run(PYTHON, "-B", ROOT / "cmake/wheel.py", "--build", BUILD, "--out", work() / "wheel"))
    (made,) = (work() / "wheel").glob("*.whl")
    return made


@functools.cache
def venv() -> Path:
    """With the wheel, and with the torch of .deps in sight."""
    place = work() / "venv"
    made = wheel()
    done(run(PYTHON, "-m", "venv", place))
    (packages,) = place.glob("lib/python3*/site-packages")
    (packages / "deps.pth").write_text(f"{Path(LIBTORCH).parent}\n", encoding="utf-8")
    done(run(place / "bin/pip", "install", "--quiet", "--no-index", "--no-deps", made))
    return place


@functools.cache
def moved_prefix() -> Path:
    fresh()
    done(run("cmake", "--install", BUILD, "--prefix", work() / "installed"))
    return (work() / "installed").rename(work() / "a moved prefix")


class Wheel(unittest.TestCase):
    def test_is_small_and_names_its_platform_and_its_torch(self):
        self.assertRegex(wheel().name, r"^dit_train-[\d.]+-py3-none-manylinux_2_\d+_x86_64\.whl$")
        self.assertLess(wheel().stat().st_size, MAX_BYTES)
        with zipfile.ZipFile(wheel()) as file:
            names = file.namelist()
            (metadata,) = [name for name in names if name.endswith("/METADATA")]
            text = file.read(metadata).decode()
        version = (Path(LIBTORCH) / "version.py").read_text(encoding="utf-8")
        minor = re.search(r"__version__ = '(\d+\.\d+)", version)[1]
        self.assertIn(f"\nRequires-Dist: torch=={minor}.*\n", text)
        self.assertEqual([name for name in names if re.search("libtorch|libc10|libcudart", name)], [])
        licences = {name.rpartition("/")[2] for name in names if "/licenses/" in name}
        self.assertLessEqual({"LICENSE", "libfmt-dev", "libjpeg62-turbo-dev", "libpng-dev", "libssl-dev", "libtomlplusplus-dev", "libwebp-dev"}, licences)

    def test_programs_load_nothing_that_a_system_may_lack(self):
        (folder,) = venv().glob("lib/python3*/site-packages/dit_train/bin")
        for name in PROGRAMS:
            libraries = re.findall(r"^\t(\S+) => (\S+)", done(run("ldd", folder / name, LD_LIBRARY_PATH=f"{LIBTORCH}/lib")), re.M)
            beside = {library for library, path in libraries if Path(path).parent == folder}
            self.assertEqual({library.partition(".so")[0] for library in beside}, {"libfmt", "libcrypto", "libjpeg", "libpng16", "libwebp"})
            self.assertNotIn(str(ROOT).encode(), (folder / name).read_bytes())
            if name != "dit-train":  # the others start that one under their name
                self.assertTrue((venv() / "bin" / name).read_bytes().startswith(b"#!/bin/sh\n"))
                self.assertIn(name, run(venv() / "bin" / name, "--help", DTK_TORCH=LIBTORCH).stdout)
                continue
            launcher = run("readelf", "-d", venv() / "bin" / name).stdout
            self.assertLessEqual(set(re.findall(r"NEEDED.*\[(\S+?)\.so", launcher)), {"libc", "libm", "ld-linux-x86-64"})

    def test_trains_a_shipped_configuration_also_without_its_data_set(self):
        for seconds, more in ((20, []), (5, ["--set", "data.images=/nowhere/images.gz", "--set", "data.labels=/nowhere/labels.gz"])):
            out = work() / f"run-{seconds}"
            trained = run(venv() / "bin/dit-train", "--verbose", "--config", "base", "--set", f"train.seconds={seconds}",
                          "--set", f"train.out={out}", *more)  # fmt: skip
            text = done(trained)
            self.assertIn("\nfinal loss ", text)
            self.assertEqual(len(list((out / "samples").glob("*.png"))), 1)
            if more or not Path("/usr/share/datasets/fashion-mnist").is_dir():
                self.assertRegex(text, r"data: 4000 drawn images 1x28x28, 10 classes \(SYNTHETIC: there is no /\S+\)")
                self.assertRegex(text, r"\ndata +SYNTHETIC: ")
            else:
                self.assertNotIn("SYNTHETIC", text)
            rows = re.findall(r"^(\w+) +[\d,]+ +[\d,]+ +(\S+)$", text.partition("planned against measured")[2], re.M)
            self.assertGreaterEqual(len(rows), 8)
            # On a machine busy with other tests the loader may lag in the one first step, and hold less than planned.
            above = [row for row in rows if not row[1].startswith("-") and row[1] != "0"]
            self.assertEqual(above, [])

    def test_a_configuration_that_is_neither_file_nor_shipped_is_refused(self):
        for program in ("dit-train", "dit-plan"):
            result = run(venv() / "bin" / program, "--config", "bas")
            self.assertEqual(result.returncode, 2)
            self.assertIn("--config bas: there is no such file, nor a shipped configuration of that name; "
                          "did you mean base?", result.stderr)  # fmt: skip
        named = run(venv() / "bin/dit-train", "--config", "base.toml")
        self.assertEqual((named.returncode, "base.toml" in named.stderr), (2, True), named.stderr)

    def test_doctor_names_what_it_found(self):
        text = done(run(venv() / "bin/dit-train", "--doctor"))
        self.assertIn(f" in {LIBTORCH}\n", text)
        self.assertIn("                --config base\n", text)
        self.assertTrue(text.endswith("ready: dit-train can start\n"))

    def test_another_torch_or_none_ends_with_code_2(self):
        (packages,) = venv().glob("lib/python3*/site-packages")
        paths = packages / "deps.pth"
        text = paths.read_text(encoding="utf-8")
        paths.unlink()
        try:
            for name in PROGRAMS:
                result = run(venv() / "bin" / name, "--help")
                self.assertEqual((result.returncode, result.stdout), (2, ""))
                self.assertIn(f"the environment of this program: torch is not installed in {venv()}\n", result.stderr)
            doctor = run(venv() / "bin/dit-train", "--doctor")
            self.assertEqual(doctor.returncode, 2)
            self.assertIn("nothing can be trained, planned or sampled", doctor.stdout)
            other = packages / "torch"
            (other / "lib").mkdir(parents=True)
            (other / "lib/libtorch_cpu.so").touch()
            (other / "version.py").write_text("__version__ = '2.7.1+cu126'\n", encoding="utf-8")
            result = run(venv() / "bin/dit-train", "--help")
            self.assertEqual(result.returncode, 2)
            self.assertIn(f"the environment of this program: LibTorch 2.7.1+cu126 in {other}\n", result.stderr)
            shutil.rmtree(other)
        finally:
            paths.write_text(text, encoding="utf-8")

    def test_the_launcher_takes_10_ms_at_most(self):
        program = work() / "launch/bin/dit-train"
        program.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(venv() / "bin/dit-train", program)
        (program.parents[1] / "libexec/dit-train").mkdir(parents=True, exist_ok=True)
        shutil.copy("/bin/true", program.parents[1] / "libexec/dit-train/dit-train")

        def seconds(*command: object, **variables: object) -> float:
            started = time.perf_counter()
            done(run(*command, **variables))
            return time.perf_counter() - started

        # The fastest of many: a busy machine only adds.
        with_launcher = min(seconds(program, DTK_TORCH=LIBTORCH) for _ in range(20))
        alone = min(seconds("/bin/true") for _ in range(20))
        self.assertLess(with_launcher - alone, 0.010)


class Prefix(unittest.TestCase):
    def test_a_moved_prefix_plans_trains_and_is_found_by_cmake(self):
        program = moved_prefix() / "bin/dit-train"
        out = work() / "moved run"
        text = done(run(program, "--config", "base", "--set", "train.steps=2", "--set", "train.seconds=default",
                        "--set", "schedule.warmup=0", "--set", "sample.steps=2", "--set", f"train.out={out}",
                        DTK_TORCH=LIBTORCH))  # fmt: skip
        self.assertIn("\nplanned peak ", text)  # by dit-plan, which it starts
        for name in PROGRAMS:
            self.assertTrue((moved_prefix() / "share/bash-completion/completions" / name).is_file())
        self.assertEqual(done(run("strings", "-a", moved_prefix() / "bin/dit-train")).count(str(ROOT)), 0)
        source = work() / "find"
        source.mkdir(exist_ok=True)
        (source / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.25)\nproject(find LANGUAGES CXX)\nfind_package(dtk 0.1 REQUIRED)\n"
            "get_target_property(headers dtk::policies INTERFACE_INCLUDE_DIRECTORIES)\n"
            'message(STATUS "headers in ${headers};")\n', encoding="utf-8")  # fmt: skip
        found = done(run("cmake", "-S", source, "-B", work() / "found", f"-DCMAKE_PREFIX_PATH={moved_prefix()}",
                         f"-DTORCH_PREFIX={LIBTORCH}"))  # fmt: skip
        self.assertIn(f"headers in {moved_prefix()}/include;", found)

    def test_an_incomplete_installation_says_so(self):
        place = work() / "half/bin"
        place.mkdir(parents=True, exist_ok=True)
        shutil.copy(moved_prefix() / "bin/dit-sample", place)
        result = run(place / "dit-sample", DTK_TORCH=LIBTORCH)
        self.assertEqual(result.returncode, 2)
        self.assertIn("the installation is incomplete", result.stderr)
        shutil.copy(moved_prefix() / "bin/dit-train", place)
        doctor = run(place / "dit-train", "--doctor", DTK_TORCH=LIBTORCH)
        self.assertEqual((doctor.returncode, doctor.stdout), (2, ""))
        self.assertIn("the installation is incomplete", doctor.stderr)


class Completion(unittest.TestCase):
    def completed(self, *words: str) -> set[str]:
        """What bash offers for the last word."""
        script = f"""
            compopt() {{ :; }}
            source '{moved_prefix()}'/share/bash-completion/completions/dit-train
            COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
            _dit_complete "$1" "${{@: -1}}" "${{@: -2:1}}"
            printf '%s\\n' "${{COMPREPLY[@]}}"
        """
        program = moved_prefix() / "bin/dit-train"
        result = run("bash", "-c", script, "bash", program, *words, DTK_TORCH=LIBTORCH)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return set(result.stdout.split())

    def test_options_configurations_and_keys(self):
        self.assertEqual(self.completed("--re"), {"--resume"})
        self.assertIn("--doctor", self.completed("--"))
        self.assertEqual(self.completed("--config", "ba"), {"base"})
        self.assertEqual(self.completed("--config", "=", "ba"), {"base"})
        self.assertEqual(self.completed("--device", "cu"), {"cuda"})
        self.assertEqual(self.completed("--config", "=", "base", "--set", "train.seed"), {"train.seed="})
        self.assertEqual(self.completed("--config", "base", "--set", "train.seed"), {"train.seed="})
        self.assertIn("train.steps=", self.completed("--config", "base", "--set", "train.s"))


if __name__ == "__main__":
    BUILD, LIBTORCH, PYTHON = sys.argv[1:4]
    unittest.main(argv=sys.argv[:1])
