"""install_test.py BUILD COMPILER LAUNCHER LIBTORCH: the installed package, as a stranger's project meets it.

Installs BUILD into a prefix below BUILD/tests/install_test and builds examples/own_network, own_model, own_plan and own_ranks there
against it, without a build type: neither optimised nor with NDEBUG, as a stranger may.
"""

import difflib
import functools
import os
import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests/integration/support"), str(ROOT / "tests/house")]
import linked_libraries  # noqa: E402
from ranks import environment, free_port  # noqa: E402

EXAMPLE = ROOT / "examples/own_network"
PLAN = ROOT / "tests/integration/own_plan"
MODEL = ROOT / "tests/integration/own_model"
RANKS = ROOT / "tests/integration/own_ranks"
MAX_LINES = 12
LIBRARIES = {"libdtk_policies.a", "libdtk_planner.a", "libdtk_models.a"}
BUILD = COMPILER = LAUNCHER = LIBTORCH = ""

# A stranger's project that asks for dtk after LibTorch's own package, whose targets these stand for.
STOCK = """\
cmake_minimum_required(VERSION 3.25)
project(stock LANGUAGES CXX)
add_library(torch_cpu SHARED IMPORTED)
set_target_properties(torch_cpu PROPERTIES IMPORTED_CONFIGURATIONS RELEASE
  IMPORTED_LOCATION_RELEASE "{libtorch}/lib/libtorch_cpu.so" INTERFACE_LINK_LIBRARIES libmore_behind.so)
add_library(c10 SHARED IMPORTED)
set_target_properties(c10 PROPERTIES IMPORTED_LOCATION "{libtorch}/lib/libc10.so")
add_library(torch INTERFACE IMPORTED)
add_subdirectory("{example}" own)
"""

# Says which LibTorch dtk's package took.
ASK = """\
find_package(dtk 0.1 REQUIRED)
get_target_property(libraries dtk::torch INTERFACE_LINK_LIBRARIES)
string(REGEX REPLACE "/lib/libtorch_cpu.*" "" root "${libraries}")
message(STATUS "dtk found LibTorch in ${root};")
"""


def work() -> Path:
    return Path(BUILD).resolve() / "tests/install_test"


def run(*command: object, **options) -> subprocess.CompletedProcess:
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)


def configure(source: Path, build: Path, prefix: object, *more: str) -> subprocess.CompletedProcess:
    places = ("CMAKE_PREFIX_PATH", "TORCH_PREFIX")
    environment = {name: value for name, value in os.environ.items() if name not in places}
    return run(
        "cmake", "-G", "Ninja", "-S", source, "-B", build,
        f"-DCMAKE_PREFIX_PATH={prefix}",
        f"-DCMAKE_CXX_COMPILER={COMPILER}",
        f"-DCMAKE_CXX_COMPILER_LAUNCHER={LAUNCHER}",
        *more,
        env=environment,
    )  # fmt: skip


def one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text)


@functools.cache
def prefix() -> Path:
    """Moved since it was installed."""
    shutil.rmtree(work(), ignore_errors=True)
    result = run("cmake", "--install", BUILD, "--prefix", work() / "installed", "--component", "libraries")
    assert result.returncode == 0, result.stderr
    return (work() / "installed").rename(work() / "prefix")


def built(source: Path) -> Path:
    build = work() / source.name
    for result in (configure(source, build, f"{prefix()};{LIBTORCH}"), run("cmake", "--build", build)):
        assert result.returncode == 0, result.stdout + result.stderr
    return build


@functools.cache
def own_network() -> Path:
    return built(EXAMPLE)


class Install(unittest.TestCase):
    def test_holds_the_libraries_and_their_package(self):
        files = {path.relative_to(prefix()).as_posix() for path in prefix().rglob("*") if path.is_file()}
        headers = {
            path.relative_to(ROOT / library).as_posix()
            for library in ("policies", "policies/planner", "models")
            for path in (ROOT / library / "include").rglob("*.h")
        }
        self.assertIn("include/dtk/policies/policy_set.h", headers)
        self.assertIn("include/dtk/planner/simulate.h", headers)
        self.assertEqual({name for name in files if name.startswith("include/")}, headers)
        others = {Path(name).name for name in files - headers}
        targets = {name for name in others if re.fullmatch(r"dtkTargets(-\w+)?\.cmake", name)}
        self.assertEqual(len(targets), 2, others)
        package = {"dtkConfig.cmake", "dtkConfigVersion.cmake", "DtkTorch.cmake"}
        self.assertEqual(others - targets, LIBRARIES | package)

    def test_its_libraries_go_into_a_shared_object(self):
        for name in LIBRARIES:
            (archive,) = prefix().rglob(name)
            whole = (f"-Wl,--whole-archive,{archive}", "-Wl,--no-whole-archive")
            result = run(COMPILER, "-shared", "-o", work() / f"{name}.so", *whole)
            self.assertEqual(result.returncode, 0, result.stderr[-2000:])

    def test_programs_are_a_component_and_find_libtorch(self):
        place = work() / "programs"
        prefix()
        result = run("cmake", "--install", BUILD, "--prefix", place, "--component", "programs")
        self.assertEqual(result.returncode, 0, result.stderr)
        files = sorted(path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file())
        names = ["dit-export", "dit-plan", "dit-sample", "dit-train"]
        self.assertEqual(files[:4], [f"bin/{name}" for name in names])
        self.assertLessEqual({f"libexec/dit-train/{name}" for name in names}, set(files))
        # Opened at run time; there where nvcc and nccl.h were.
        opened = [f"libexec/dit-train/libdtk_{name}.so" for name in ("cuda_kernels", "nccl")]
        self.assertEqual([name for name in files if "libdtk" in name or name.startswith("include/")],
                         [name for name in opened if name in files])
        environment = dict(os.environ, DTK_TORCH=LIBTORCH)
        self.assertEqual(run(place / "bin/dit-train", "--help", env=environment).returncode, 0)


class OwnNetwork(unittest.TestCase):
    def test_trains_under_the_defaults_and_prints_the_measured_saving(self):
        result = run(own_network() / "own_network")
        print(result.stdout)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        without, attention, defaults = re.split(r"^\S.*\n", result.stdout, flags=re.MULTILINE)[1:4]
        peaks = [int(value) for value in re.findall(r"peak: (\d+) bytes", result.stdout)]
        self.assertEqual(len(peaks), 3)
        summary = re.search(r"^saved: (\d+) bytes of (\d+) \((\d+) by attention alone\)$", result.stdout, re.M)
        saved, of, alone = (int(value) for value in summary.groups())
        self.assertEqual((saved, of, alone), (peaks[0] - peaks[2], peaks[0], peaks[0] - peaks[1]))
        self.assertGreater(saved, alone)
        self.assertGreater(alone, 0)
        for part in (without, attention, defaults):
            first, last = (float(value) for value in re.findall(r"loss (\S+)", part))
            self.assertLess(last, first / 2)
            reports = re.findall(r"^  (\w+) (?:on|off): ", part, re.M)
            self.assertEqual(reports, ["precision", "attention", "fusion", "ema", "checkpoint"])
        losses = [re.findall(r"loss \S+", part) for part in (without, attention, defaults)]
        self.assertEqual(losses[1], losses[2])  # checkpointing changes no bit
        # A fused kernel sums in another order.
        for seen, expected in zip(losses[1], losses[0]):
            self.assertAlmostEqual(float(seen[5:]), float(expected[5:]), delta=1e-3)
        self.assertNotIn(" on: ", without)
        self.assertIn("attention on: fused kernels, no weights are stored\n", attention)
        self.assertIn("attention on: fused kernels, no weights are stored\n", defaults)
        self.assertIn("checkpoint on: recomputes 5 modules in 5 segments, from blocks.0", defaults)

    def test_the_readme_states_the_peaks_that_the_program_prints(self):
        printed = run(own_network() / "own_network", env={**os.environ, "OMP_NUM_THREADS": "1"}).stdout
        peaks = [int(value) for value in re.findall(r"peak: (\d+) bytes", printed)]
        text = (ROOT / "policies/README.md").read_text()
        table = re.search(r"^\| policies, `OMP_NUM_THREADS=1 build/own/own_network` \|.*\n\|.*\n((?:\|.*\n)+)", text, re.M)
        self.assertIsNotNone(table, "policies/README.md: the table of own_network's peaks")
        stated = [int(value.replace(",", "")) for value in re.findall(r"\| ([\d,]+) bytes \|$", table[1], re.M)]
        self.assertEqual(len(stated), 3, table[0])
        self.assertEqual(stated, peaks, "policies/README.md's table of own_network, and what the program prints")

    def test_few_lines_are_there_for_dtk(self):
        """Counted are the lines that a program without dtk does not have, or has otherwise: what puts the
        policies in and trains under them, and apart from that what reports and compares them."""
        plain = ROOT / "tests/integration/installed/own_network_before.cpp"
        headers = [f"-isystem{LIBTORCH}/include", f"-isystem{LIBTORCH}/include/torch/csrc/api/include"]
        compiled = run(COMPILER, "-std=c++20", "-fsyntax-only", *headers, plain)
        self.assertEqual(compiled.returncode, 0, compiled.stderr)
        before = plain.read_text().splitlines()
        used, reported = [], []
        function = ""
        for line in difflib.ndiff(before, (EXAMPLE / "main.cpp").read_text().splitlines()):
            mark, text = line[0], line[2:]
            if mark in " +" and text[:1].isalpha():  # a definition begins
                function = text
            if mark != "+" or not re.search(r"\w", text) or text.startswith("//"):
                continue
            only_reports = re.match(r"(void report|int64_t peak_of|int main)\(", function)
            only_reports = only_reports or text in ("  report(policies);", "#include <dtk/policies/step_meter.h>")
            (reported if only_reports else used).append(text)
        cmake = [line for line in (EXAMPLE / "CMakeLists.txt").read_text().splitlines() if "dtk" in line]
        counted = f"{len(used)} lines of main.cpp, {len(reported)} more that report, {len(cmake)} of CMakeLists.txt"
        print(counted)
        self.assertGreater(len(used), 6)
        self.assertLessEqual(len(used), MAX_LINES, "\n".join(used))
        self.assertEqual(len(cmake), 2)
        self.assertTrue(f"{len(used)} of its lines" in one_line((ROOT / "policies/README.md").read_text()), counted)
        hiding = ("using", "namespace", "define")
        self.assertFalse([text for text in used if any(word in text for word in hiding)])
        self.assertFalse([text for text in used if text.count(";") > 1 and not text.strip().startswith("for (")])

    def test_takes_nothing_from_the_stranger(self):
        rules = (own_network() / "build.ninja").read_text()
        self.assertNotIn("NDEBUG", rules)
        needed = linked_libraries.needed(own_network() / "own_network")
        self.assertIn("libtorch_cpu.so", needed)
        self.assertFalse([name for name in needed if linked_libraries.FORBIDDEN.match(name)])


class OwnModel(unittest.TestCase):
    def test_an_installed_model_trains_under_the_policies(self):
        result = run(built(MODEL) / "own_model")
        print(result.stdout)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        loss, gradients, trained = re.search(r"^loss (\S+), (\d+) gradients of (\d+) ", result.stdout).groups()
        self.assertEqual(float(loss), 1.0)  # a new DiT's output is 0
        self.assertEqual(gradients, trained)
        self.assertGreater(int(trained), 20)
        self.assertIn("checkpoint on: recomputes 2 modules in 2 segments, from blocks.0 to blocks.1, which repeat\n", result.stdout)


def planned_as_measured(program: Path) -> tuple[str, dict[str, dict[str, int]]]:
    """What a program prints, and the peaks of its jobs by phase, which are those that it planned."""
    result = run(program, env={**os.environ, "OMP_NUM_THREADS": "1"})
    print(result.stdout)
    assert (result.returncode, result.stderr) == (0, ""), result.stderr
    peaks = {}
    for part in re.split(r"^(?=\S)", result.stdout, flags=re.MULTILINE)[1:]:
        rows = re.findall(r"^  (\w+): planned (-?\d+), measured (\d+)$", part, re.MULTILINE)
        if not rows:
            continue
        assert {"backward", "build", "forward", "update"} <= {row[0] for row in rows}, rows
        for phase, planned, measured in rows:
            assert planned == measured, f"{phase} of: {part}"
        peaks[part.split()[0]] = {phase: int(planned) for phase, planned, _ in rows}
    return result.stdout, peaks


class FrozenTower(unittest.TestCase):
    def test_a_packed_tower_and_a_decoder_of_a_stranger_are_planned_to_the_byte(self):
        printed, peaks = planned_as_measured(built(MODEL) / "frozen_tower")
        self.assertLess(peaks["With"]["forward"], peaks["Without"]["forward"])
        self.assertIn("checkpoint on: recomputes 3 modules in 3 segments, from decoder.0 to decoder.2", printed)
        self.assertRegex(printed, r"Refused\n  .*tower\.0.*without a graph")


class OwnPlan(unittest.TestCase):
    def test_a_model_and_a_policy_of_a_stranger_are_planned_to_the_byte(self):
        _, peaks = planned_as_measured(built(PLAN) / "own_plan")
        # Each is a job of its own: the policy shows in what forward keeps.
        self.assertLess(peaks["With"]["forward"], peaks["Without"]["forward"])


class OwnRanks(unittest.TestCase):
    def said(self, program: Path, ranks: int, level: str = "optimizer") -> list[str]:
        port = free_port()
        started = [
            subprocess.Popen([program, level], env=environment(rank, ranks, port), stdout=subprocess.PIPE, text=True)
            for rank in range(ranks)
        ]
        said = [process.communicate(timeout=60)[0] for process in started]
        self.assertEqual([process.returncode for process in started], [0] * ranks, said)
        return said

    def test_a_network_of_a_stranger_has_one_ranks_bits_on_its_own_group(self):
        program = built(RANKS) / "own_ranks"
        ((alone, bits),) = [re.fullmatch(r"updates (\d+)\n(.*)", text, re.S).groups() for text in self.said(program, 1)]
        self.assertEqual(len(set(re.findall(r"\d+", bits))), 2)  # weights and averages
        for ranks, level, has in ((2, "optimizer", "moments"), (4, "optimizer", "moments"), (4, "parameters", "weights, moments")):
            updated = 0
            for text in self.said(program, ranks, level):
                reason, own, seen = re.fullmatch(r"(.*)\nupdates (\d+)\n(.*)", text, re.S).groups()
                self.assertIn(f" of {ranks} updates {own} of {alone} parameters, and has {has}", reason)
                self.assertLess(int(own), int(alone))
                self.assertEqual(seen, bits)
                updated += int(own)
            self.assertEqual(updated, int(alone))


class Package(unittest.TestCase):
    def setUp(self):
        prefix()  # empties the folder that the projects below are in

    def project(self, name: str, text: str) -> Path:
        source = work() / name
        source.mkdir(exist_ok=True)
        (source / "CMakeLists.txt").write_text(text)
        return source

    def libtorch(self, name: str, minor: int | None = None) -> Path:
        """A folder that looks like the LibTorch in use, at another place and perhaps of another version."""
        folder = work() / name
        header = Path("include/torch/headeronly/version.h")
        (folder / header).parent.mkdir(parents=True, exist_ok=True)
        (folder / "include/torch/csrc/api/include").mkdir(parents=True, exist_ok=True)
        text = (Path(LIBTORCH) / header).read_text()
        if minor is not None:
            text = re.sub(r"(TORCH_VERSION_MINOR) \d+", rf"\1 {minor}", text)
        (folder / header).write_text(text)
        if not (folder / "lib").exists():
            (folder / "lib").symlink_to(Path(LIBTORCH) / "lib")
        return folder

    def test_another_version_is_refused(self):
        text = (EXAMPLE / "CMakeLists.txt").read_text()
        source = self.project("version", text.replace("find_package(dtk 0.1 ", "find_package(dtk 0.2 "))
        self.assertNotEqual((source / "CMakeLists.txt").read_text(), text)
        result = configure(source, source / "build", prefix())
        self.assertEqual(result.returncode, 1)
        self.assertIn('compatible with requested version "0.2"', one_line(result.stderr))
        self.assertRegex(one_line(result.stderr), r"dtkConfig\.cmake, version: 0\.1\.\d+")

    def test_another_libtorch_is_refused(self):
        folder = self.libtorch("libtorch-2.10", minor=10)
        result = configure(EXAMPLE, work() / "libtorch-2.10-build", f"{prefix()};{folder}")
        self.assertEqual(result.returncode, 1)
        self.assertRegex(
            one_line(result.stderr),
            r"dtk was built with LibTorch 2\.\d+, and \S*/libtorch-2\.10 holds 2\.10; build dtk with "
            r"that one, or point to a LibTorch 2\.\d+: -DTORCH_PREFIX=/path/to/libtorch",
        )

    def test_a_wrong_torch_prefix_is_not_passed_over(self):
        result = configure(EXAMPLE, work() / "none-build", f"{prefix()};{LIBTORCH}", "-DTORCH_PREFIX=/none")
        self.assertEqual(result.returncode, 1)
        self.assertRegex(
            one_line(result.stderr),
            r"LibTorch 2\.\d+ was not found; point to it: -DTORCH_PREFIX=/path/to/libtorch",
        )

    def test_a_later_torch_prefix_replaces_the_first_one(self):
        """In a build folder that exists: as for a new one, the last TORCH_PREFIX is taken or refused."""
        source = self.project("again", "cmake_minimum_required(VERSION 3.25)\nproject(again LANGUAGES CXX)\n" + ASK)
        build = source / "build"
        first, second = self.libtorch("first-libtorch"), self.libtorch("second-libtorch")
        for folder in (first, second, first):
            result = configure(source, build, prefix(), f"-DTORCH_PREFIX={folder}")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn(f"dtk found LibTorch in {folder};", result.stdout)
        refused = configure(source, build, prefix(), "-DTORCH_PREFIX=/none")
        self.assertEqual(refused.returncode, 1)
        self.assertRegex(one_line(refused.stderr), r"LibTorch 2\.\d+ was not found; point to it: -DTORCH_PREFIX=")
        default = configure(source, build, prefix(), "-DTORCH_PREFIX=")
        self.assertIn(f"dtk found LibTorch in {LIBTORCH};", default.stdout, default.stderr)

    def test_the_libtorch_that_the_stranger_found_first_is_used(self):
        folder = self.libtorch("stock-libtorch")
        source = self.project("stock", STOCK.format(libtorch=folder, example=EXAMPLE))
        result = configure(source, source / "build", f"{prefix()};{LIBTORCH}")
        self.assertEqual(result.returncode, 0, result.stderr)
        rules = (source / "build/build.ninja").read_text()
        self.assertIn(f"{folder}/lib/libtorch_cpu.so", rules)
        self.assertNotIn(f"{LIBTORCH}/lib/libtorch_cpu.so", rules)
        self.assertNotIn("libmore_behind", rules)


if __name__ == "__main__":
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    BUILD, COMPILER, LAUNCHER, LIBTORCH = sys.argv[1:5]
    unittest.main(argv=[sys.argv[0], *sys.argv[5:]])
