"""gpu_day_test.py BUILD: the runner of benchmarks/gpu_day with parts made for it and a made-up GPU, and that every command of
the real parts is there and knows the options that it is given. No GPU is needed."""

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks/gpu"))

import day  # noqa: E402
import parts  # noqa: E402

BUILD = Path()
SHELL = ("sh", "-c")


def part(name: str, *scripts: str, seconds: int = 60, **more) -> parts.Part:
    return parts.Part(name, f"part {name}", seconds, lambda build, out: [[*SHELL, script] for script in scripts], **more)


class Day(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        tools = self.folder / "tools"
        tools.mkdir()
        (tools / "nvidia-smi").write_text("#!/bin/sh\necho 'Made Up 1, 100 MiB, 1.0'\n")
        (tools / "nvidia-smi").chmod(0o755)
        self.enterContext(mock.patch.dict(os.environ, {"PATH": f"{tools}:{os.environ['PATH']}"}))
        self.out = self.folder / "out"

    def run_day(self, parts_of_it: tuple, *words: str, commit: str = "c0ffee") -> tuple[int, str]:
        arguments = ["day.py", "--build", str(self.folder), "--commit", commit, "--out", str(self.out), *words]
        said = io.StringIO()
        with mock.patch.object(day, "PARTS", parts_of_it), mock.patch.object(sys, "argv", arguments), \
                contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = day.main()
        return code, said.getvalue()

    def ends(self) -> dict[str, str]:
        return {name: result["end"] for name, result in json.loads((self.out / "state.json").read_text()).items()}

    def test_a_part_that_fails_stops_no_other_and_shows_in_the_exit_code(self):
        code, said = self.run_day((part("one", "echo first; exit 7"), part("two", "echo second")))
        self.assertEqual(code, 1)
        self.assertEqual(self.ends(), {"one": "failed: exit code 7", "two": "passed"})
        self.assertIn("not passed: one", said)
        page = (self.out / "results.md").read_text()
        for word in ("Made Up 1, 100 MiB, 1.0; commit c0ffee", "| one | failed: exit code 7 |", "first", "second"):
            self.assertIn(word, page)

    def test_what_takes_too_long_is_ended_with_all_that_it_began(self):
        mark = self.folder / "mark"
        slow = part("slow", f"echo began; (sleep 2; touch {mark}) & sleep 60", "echo never", seconds=1)
        code, _ = self.run_day((slow, part("two", "true")))
        self.assertEqual((code, self.ends()), (1, {"slow": "stopped", "two": "passed"}))
        page = (self.out / "results.md").read_text()
        self.assertIn("began", page)
        self.assertIn("not begun: the time was over", page)
        subprocess.run(["sleep", "2.5"], check=True)
        self.assertFalse(mark.exists())

    def test_a_tool_that_is_not_there_leaves_its_part_out_by_name(self):
        code, _ = self.run_day((part("one", "true", tools=("no-such-tool",)),))
        self.assertEqual((code, self.ends()), (0, {"one": "left out"}))
        self.assertIn("no-such-tool is not installed", (self.out / "results.md").read_text())

    def test_each_tool_looks_at_the_kernels_where_the_build_has_them(self):
        def program(path: str, *lines: str) -> None:
            file = self.folder / path
            file.parent.mkdir(exist_ok=True)
            file.write_text("\n".join(("#!/bin/sh", *lines)))
            file.chmod(0o755)

        program("tools/compute-sanitizer", 'echo "looks by $*"', '[ "$2" != racecheck ] || exit 1', "shift 4", 'exec "$@"')
        program("tests/cuda_ops_test", 'echo "on $DTK_TEST_DEVICE: $*"', '[ ! -e "$0.none" ] || echo "No tests ran"')
        program("benchmarks/operator-bandwidth", 'echo "| norm_modulate of $*"')
        names = (*parts.KERNEL_TOOLS, "bandwidth")
        of_kernels = tuple(one for one in parts.PARTS if one.name in names)
        self.assertEqual([one.name for one in of_kernels], list(names))

        self.assertEqual(self.run_day(of_kernels)[0], 0)
        self.assertEqual(self.ends(), dict.fromkeys(names, "left out"))
        self.assertIn("the build has no libdtk_cuda_kernels.so: run benchmarks/gpu_day --prepare with nvcc 12.8 or later",
                      (self.out / "results.md").read_text())

        (self.folder / "libdtk_cuda_kernels.so").touch()
        self.assertEqual(self.run_day(of_kernels)[0], 1)
        self.assertEqual(self.ends(), dict.fromkeys(names, "passed") | {"racecheck": "failed: exit code 1"})
        page = (self.out / "results.md").read_text()
        for tool in parts.KERNEL_TOOLS:
            self.assertIn(f"looks by --tool {tool} --error-exitcode 1 tests/cuda_ops_test [kernels]", page)
        self.assertEqual(page.count("on cuda: [kernels]"), 2)
        self.assertIn("| norm_modulate of --device cuda --kernels libdtk_cuda_kernels.so", page)

        (self.folder / "tests/cuda_ops_test.none").touch()
        self.run_day(of_kernels, "--again", "--part", "memcheck")
        self.assertEqual(self.ends()["memcheck"], "failed: No tests ran in its output")

    def test_a_part_that_skipped_what_it_is_for_has_failed(self):
        code, _ = self.run_day((part("one", "echo '1/1 gpu_test ***Skipped'", never="***Skipped"),))
        self.assertEqual((code, self.ends()), (1, {"one": "failed: ***Skipped in its output"}))

    def test_results_of_changed_files_are_not_kept(self):
        one = (part("one", f"echo ran >> {self.folder}/count"),)
        for _ in range(2):
            self.run_day(one, commit="c0ffee-dirty")
        self.assertEqual((self.folder / "count").read_text(), "ran\n" * 2)

    def test_a_torch_without_cuda_leaves_its_part_out(self):
        with mock.patch.object(day.sys, "executable", "/bin/false"):
            self.run_day((part("one", "true", torch=True),))
        self.assertEqual(self.ends(), {"one": "left out"})

    def test_it_goes_on_where_it_ended(self):
        count = self.folder / "count"
        one, two = part("one", f"echo ran >> {count}"), part("two", f"test -e {self.folder}/ready")
        self.run_day((one, two))
        (self.folder / "ready").touch()
        code, said = self.run_day((one, two))
        self.assertEqual((code, self.ends()), (0, {"one": "passed", "two": "passed"}))
        self.assertIn("one: has its result", said)
        self.assertEqual(count.read_text(), "ran\n")
        self.run_day((one, two), "--again")
        self.run_day((one, two), commit="another")
        self.assertEqual(count.read_text(), "ran\n" * 3)

    def test_parts_are_chosen_and_none_begins_after_the_end(self):
        both = (part("one", "true"), part("two", "true"))
        self.assertEqual(self.run_day(both, "--part", "two")[0], 0)
        self.assertEqual(self.ends(), {"two": "passed"})
        code, said = self.run_day(both, "--part", "one", "--minutes", "0.01")
        self.assertEqual(code, 1)
        self.assertIn("one: not begun, the time is over", said)

    def test_without_a_gpu_nothing_begins(self):
        (self.folder / "tools/nvidia-smi").write_text("#!/bin/sh\nexit 9\n")
        code, said = self.run_day((part("one", "true"),))
        self.assertEqual(code, 1)
        self.assertIn("names no GPU", said)
        self.assertFalse(self.out.exists())


class RealParts(unittest.TestCase):
    """A typo must not wait for the first GPU to be found."""

    def test_every_command_knows_its_options(self):
        for each in parts.PARTS:
            for command in each.commands(BUILD, Path("/nonexistent/out")):
                words = parts.without_wrappers(command)
                program = words[:3] if words[0] == sys.executable else words[:1]
                with self.subTest(part=each.name, program=program[-1]):
                    if program[-1] != "ctest":
                        self.assertTrue(Path(program[-1]).exists(), program)
                    shown = subprocess.run([*program, "--help"], capture_output=True, text=True)
                    known = shown.stdout + shown.stderr
                    for word in words[len(program):]:
                        if word.startswith("--"):
                            self.assertIn(word.partition("=")[0], known)
                        if word.startswith("["):
                            listed = subprocess.run([*program, "--list-tests", word], capture_output=True, text=True)
                            self.assertRegex(listed.stdout, r"(?m)^[1-9]\d* matching test cases?$")


if __name__ == "__main__":
    BUILD = Path(sys.argv.pop(1))
    unittest.main()
