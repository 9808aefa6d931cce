"""The quickstarts and tests/run, with stub programs; nothing is installed, built or trained."""

import os
import subprocess
import unittest

from stub_tree import ROOT, StubTreeTest


class Quickstart(StubTreeTest):
    def quickstart(self, *arguments: str, **options):
        return self.run_command(str(self.tree / "examples/quickstart"), *arguments, **options)

    def arguments(self) -> str:
        return (self.top / "arguments").read_text().replace(str(self.tree), "TREE")

    def test_unknown_arguments(self):
        for arguments, message in (
            (["--fast"], "unknown argument: --fast"),
            (["runs"], "unknown argument: runs"),
            (["--seconds"], "--seconds needs a value"),
            (["--out"], "--out needs a value"),
            (["--seconds", "0"], "--seconds 0: give seconds above 0 in digits, such as 300"),
            (["--seconds", "-1"], "--seconds -1: give seconds above 0 in digits, such as 300"),
            (["--seconds", "1m"], "--seconds 1m: give seconds above 0 in digits, such as 300"),
            (["--seed", "07"], "--seed 07: give a whole number of up to nine digits"),
        ):
            result = self.quickstart(*arguments)
            self.assertEqual(result.returncode, 2)
            self.assertTrue(
                result.stderr.startswith(f"examples/quickstart: {message}\n\nUsage: "), result.stderr
            )
            self.assertEqual(self.calls.read_text(), "")

    def test_a_folder_that_holds_a_run_is_refused_before_anything_is_done(self):
        (self.top / "done/checkpoints/step-00000009").mkdir(parents=True)
        (self.top / "file").touch()
        (self.top / "other").mkdir()
        (self.top / "other/thesis.txt").touch()
        for out, message in (
            ("done", "--out done: holds a run already; name a new folder"),
            ("file", "--out file: not a folder; name a new one"),
            ("other", "--out other: holds other things than a run; name a new or an empty folder"),
        ):
            result = self.quickstart("--out", out, cwd=self.top)
            self.assertEqual(result.returncode, 2)
            self.assertTrue(result.stderr.startswith(f"examples/quickstart: {message}\n\nUsage: "), result.stderr)
            self.assertEqual(self.calls.read_text(), "")
        # One that came to no checkpoint is dit-train's to take over or refuse.
        (self.top / "begun/checkpoints").mkdir(parents=True)
        self.assertEqual(self.quickstart("--out", "begun", cwd=self.top).returncode, 0)

    def test_trains_into_the_first_free_folder_from_any_working_directory(self):
        for number in (1, 2):
            result = self.quickstart(cwd=self.top)
            self.assertEqual(result.returncode, 0, result.stderr)
            out = f"TREE/runs/quickstart-{number}"
            self.assertEqual(
                self.arguments(),
                "[--verbose][--config][TREE/configs/base.toml][--set][train.seconds=300]"
                f"[--set][train.seed=0][--set][train.out={out}]",
            )
            self.assertEqual(
                result.stdout.replace(str(self.tree), "TREE").split("\n")[-3:-1],
                [f"Run folder:  {out}", f"Sample grid: {out}/samples/grid-0002.png"],
            )
            self.assertNotIn("SYNTHETIC", result.stdout)
        self.assertTrue(self.called("ninja")[0].endswith(" dit-train dit-sample dit-export"))
        self.assertEqual(self.called("cmake"), [], "the second time nothing is configured")

    def test_seconds_seed_and_out(self):
        given = ["--seconds", "2.5", "--seed", "7", "--out", "a b"]
        self.assertEqual(self.quickstart(*given, cwd=self.top).returncode, 0)
        self.assertIn(f"[train.seconds=2.5][--set][train.seed=7][--set][train.out={self.top}/a b]", self.arguments())

    def test_without_fashion_mnist_everything_says_synthetic(self):
        (self.data / "train-labels-idx1-ubyte.gz").unlink()
        for number in (1, 2):
            result = self.quickstart()
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn(
                f"[train.out=TREE/runs/quickstart-SYNTHETIC-{number}]",
                self.arguments(),
            )
            self.assertIn("SYNTHETIC: the images of this run were drawn", result.stdout)

    def test_the_exit_code_is_dit_trains(self):
        self.assertEqual(self.quickstart(TRAIN_EXIT="5").returncode, 5)

    def test_another_libtorch_configures_again(self):
        self.quickstart()
        (self.top / "mine/lib").mkdir(parents=True)
        (self.top / "mine/lib/libtorch_cpu.so").touch()
        self.quickstart(TORCH_PREFIX=str(self.top / "mine"))
        self.assertEqual(
            self.called("cmake"),
            [
                f"cmake --preset release -B {self.tree}/build/release -DTORCH_PREFIX={self.top}/mine "
                f"-DDTK_TORCH_CPU={self.top}/mine/lib/libtorch_cpu.so"
            ],
        )

    def test_a_moved_checkout_configures_afresh(self):
        self.quickstart()
        self.tree = self.tree.rename(self.top / "moved")
        self.quickstart()
        self.assertIn(f"--preset release -B {self.tree}/build/release --fresh", self.called("cmake")[0])


    def test_help_installs_and_builds_nothing(self):
        for option in ("--help", "-h"):
            result = self.quickstart(option)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertTrue(result.stdout.startswith("Usage: examples/quickstart "), result.stdout)
            self.assertEqual(self.calls.read_text(), "")


class PlannerQuickstart(StubTreeTest):
    def quickstart(self, *arguments: str, **options):
        return self.run_command(str(self.tree / "examples/diffusion_planner/quickstart"), *arguments, **options)

    def test_arguments_are_refused_as_the_other_quickstart_does(self):
        (self.top / "file").touch()
        for arguments, message in (
            (["--fast"], "unknown argument: --fast"),
            (["--seconds", "0"], "--seconds 0: give seconds above 0 in digits, such as 300"),
            (["--out", "file"], "--out file: not a folder; name a new one"),
        ):
            result = self.quickstart(*arguments, cwd=self.top)
            self.assertEqual(result.returncode, 2)
            said = f"examples/diffusion_planner/quickstart: {message}\n\nUsage: examples/diffusion_planner/quickstart "
            self.assertTrue(result.stderr.startswith(said), result.stderr)
            self.assertEqual(self.calls.read_text(), "")
        self.assertTrue(self.quickstart("--help").stdout.startswith("Usage: examples/diffusion_planner/quickstart "))

    def test_draws_worlds_once_trains_samples_and_shows(self):
        for number in (1, 2):
            result = self.quickstart("--seconds", "9", cwd=self.top)
            self.assertEqual(result.returncode, 0, result.stderr)
            out, scenes = f"TREE/runs/SYNTHETIC-diffusion_planner-{number}", "TREE/runs/SYNTHETIC-scenes"
            drawn = [f"draw-scenes --out {scenes} --frames 2000"] if number == 1 else []
            calls = [
                line.replace(str(self.tree), "TREE")
                for program in ("draw-scenes", "dit-sample", "show-trajectories")
                for line in self.called(program)
            ]
            self.assertEqual(
                calls,
                [
                    *drawn,
                    f"dit-sample --checkpoint {out} --frames {scenes}/held_out.json --out {out}/trajectories",
                    f"show-trajectories --frames {scenes}/held_out.json "
                    f"--trajectories {out}/trajectories/trajectories.safetensors --out {out}/pictures",
                ],
            )
            self.assertEqual(
                (self.top / "arguments").read_text().replace(str(self.tree), "TREE"),
                "[--verbose][--config][TREE/configs/diffusion_planner_quickstart.toml][--set][train.seconds=9]"
                f"[--set][train.seed=0][--set][train.out={out}][--set][data.frames={scenes}/train.json]"
                f"[--set][data.held_out={scenes}/held_out.json]",
            )
            self.assertEqual(
                result.stdout.replace(str(self.tree), "TREE").split("\n")[-3:-1],
                [f"Run folder: {out}", f"Pictures:   {out}/pictures"],
            )
        self.assertTrue(
            self.called("ninja")[0].endswith(" dit-train dit-sample draw-scenes show-trajectories")
        )

    def test_nothing_is_sampled_of_a_run_that_failed(self):
        self.assertEqual(self.quickstart("--out", "mine", cwd=self.top, TRAIN_EXIT="5").returncode, 5)
        self.assertEqual(self.called("dit-sample"), [])


class TestsRun(StubTreeTest):
    def command(self, *arguments: str, **environment: str):
        return self.run_command(str(self.tree / "tests/run"), *arguments, cwd=self.top, **environment)

    def test_passes_and_hands_its_arguments_on(self):
        result = self.command("-R", "loader test")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(
            result.stdout, r"tests/run: \d+ s \(set-up \d+ s, build \d+ s, tests \d+ s\): passed\n$"
        )
        self.assertTrue(self.called("ctest")[0].endswith(" -R loader test"))
        torch, packages = self.installs()
        self.assertEqual(torch, "--no-cache-dir torch==2.15.0")
        self.assertTrue(packages.startswith("--no-cache-dir --no-deps safetensors==0.8.0 "), packages)

    def test_help_installs_and_builds_nothing(self):
        for option in ("--help", "-h"):
            result = self.command(option)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertTrue(result.stdout.startswith("Usage: tests/run "), result.stdout)
            self.assertEqual(self.calls.read_text(), "")

    def test_long_tests_are_left_out_and_counted_unless_tests_are_chosen(self):
        result = self.command(LONG_TESTS="2")
        self.assertTrue(self.called("ctest")[0].endswith(" -LE ^long$"), self.called("ctest"))
        self.assertIn("\ntests/run: 2 long tests were left out: tests/run -L long\n", "\n" + result.stdout)
        for arguments in (["-L", "long"], ["-R", "name"]):
            self.calls.write_text("")
            result = self.command(*arguments, LONG_TESTS="2")
            self.assertTrue(self.called("ctest")[0].endswith(" ".join(arguments)))
            self.assertNotIn("-LE", self.called("ctest")[0])
            self.assertNotIn("left out", result.stdout)
        result = self.command("-LE", "gpu", LONG_TESTS="2")
        self.assertTrue(self.called("ctest")[0].endswith(" -LE gpu|^long$"), self.called("ctest"))
        self.assertIn("2 long tests were left out", result.stdout)

    def test_another_torch_has_an_environment_and_a_build_of_its_own(self):
        result = self.command("--torch", "2.11.0", LONG_TESTS="2")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(self.called("python3 -m venv"), [f"python3 -m venv {self.tree}/.deps/venv-2.11.0"])
        self.assertEqual(self.installs()[0], "--no-cache-dir torch==2.11.0")
        self.assertIn(f" -B {self.tree}/build/torch-2.11.0 ", self.called("cmake")[0])
        self.assertIn(f"ninja -C {self.tree}/build/torch-2.11.0 ", self.called("ninja")[0])
        self.assertIn("left out: tests/run --torch 2.11.0 -L long\n", result.stdout)
        self.assertFalse((self.tree / "build/release/build.ninja").exists())
        result = self.command("--torch", "2.9.0")
        self.assertEqual(result.returncode, 1)
        self.assertIn("2.9.0 is none of the versions that are known to work: 2.15.0 2.14.1 ", result.stderr)

    def test_unknown_arguments_are_refused_before_anything_is_done(self):
        for arguments, message in (
            (["--halp"], "unknown argument: --halp"),
            (["loader"], "unknown argument: loader"),
            (["-R", "loader", "-X"], "unknown argument: -X"),
            (["-L"], "-L needs a value"),
            (["--torch"], "--torch needs a value"),
        ):
            result = self.command(*arguments)
            self.assertEqual(result.returncode, 2)
            self.assertTrue(result.stderr.startswith(f"tests/run: {message}\n\nUsage: "), result.stderr)
            self.assertEqual(self.calls.read_text(), "")
        for arguments in (["-j4", "-E", "gpu"], ["--output-on-failure", "--repeat", "until-pass:2"]):
            self.assertEqual(self.command(*arguments).returncode, 0)
            self.assertTrue(self.called("ctest")[0].endswith(" " + " ".join(arguments)))

    def test_fails_when_a_test_fails(self):
        result = self.command(CTEST_EXIT="8")
        self.assertEqual(result.returncode, 8)
        self.assertIn("FAILED\n", result.stdout)

    def test_fails_when_a_test_is_skipped_or_none_ran(self):
        skipped = '<testcase name="{}" status="notrun"><system-out>SKIPPED: no data\n</system-out></testcase>'
        ran = '<testcase name="b" status="run"/>'
        for cases, message in (
            (ran + skipped.format("a"), "a: skipped, and only tests labelled"),
            ("", "no test ran"),
        ):
            result = self.command(JUNIT=f"<testsuite>{cases}</testsuite>")
            self.assertEqual(result.returncode, 1)
            self.assertIn("tests/run: error: " + message, result.stdout)


class Scripts(unittest.TestCase):
    def test_bash_reads_them(self):
        examples = ("examples/support/quickstart.sh", "examples/quickstart", "examples/diffusion_planner/quickstart",
                    "examples/llava/quickstart")  # fmt: skip
        for path in ("cmake/setup.sh", "cmake/build.sh", *examples, "tests/run", "tests/versions", "tests/judge",
                     "tests/judging/train", ".ci/run"):  # fmt: skip
            subprocess.run(["bash", "-n", str(ROOT / path)], check=True, env=os.environ)


if __name__ == "__main__":
    unittest.main()
