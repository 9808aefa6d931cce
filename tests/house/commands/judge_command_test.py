"""tests/judge with stub programs; nothing is installed, built, trained or judged."""

import os
import shutil
import unittest

from stub_tree import LOG, ROOT, StubTreeTest

# ninja "builds" programs that log how they are called; the judge's training leaves its weights.
NINJA = LOG + r"""
mkdir -p "$2/tests"
[[ ! -e $2/tests/judge-samples ]] || exit 0
cat >"$2/tests/judge-samples" <<'END'
#!/usr/bin/env bash
printf "%s %s\n" "${0##*/}" "$*" >>"$CALLS"
[[ $* != *--train* ]] || { touch "$2"; exit "${TRAIN_EXIT:-0}"; }
[[ -e $4 ]] || exit 9
exit "${JUDGE_EXIT:-0}"
END
cat >"$2/dit-sample" <<'END'
#!/usr/bin/env bash
printf "%s %s\n" "${0##*/}" "$*" >>"$CALLS"
touch "${!#}"
END
chmod +x "$2/tests/judge-samples" "$2/dit-sample"
touch -d "1 minute ago" "$2/tests/judge-samples"
"""


class Judge(StubTreeTest):
    def setUp(self):
        super().setUp()
        for path in ("tests/judge", "tests/judging/train"):
            (self.tree / path).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / path, self.tree / path)
        (self.bin / "mktemp").symlink_to(shutil.which("mktemp"))
        self.stub("ninja", NINJA)
        self.build = self.tree / "build/release"
        self.run_folder = self.top / "a run"
        (self.run_folder / "checkpoints").mkdir(parents=True)

    def judge(self, *arguments: str, **options):
        return self.run_command(str(self.tree / "tests/judge"), *arguments, **options)

    def test_wrong_arguments(self):
        run = str(self.run_folder)
        for arguments, message in (
            ([], "RUN is missing"),
            (["--fast", run], "unknown option: --fast"),
            ([run, "b"], f"one RUN at a time; seen: {run} and b"),
            ([run, "--samples"], "--samples needs a value"),
            ([run, "--samples", "55"], "--samples 55: give a multiple of 10, as many of each class"),
            ([run, "--samples", "0"], "--samples 0: give a multiple of 10, as many of each class"),
            ([run, "--min-accuracy", "85%"], "--min-accuracy 85%: give a number from 0 up"),
            ([str(self.top)], f"{self.top}: not a run folder, it holds no checkpoints/"),
        ):
            result = self.judge(*arguments)
            self.assertEqual(result.returncode, 2)
            self.assertTrue(result.stderr.startswith(f"tests/judge: {message}\n\nUsage: "), result.stderr)
            self.assertEqual(self.calls.read_text(), "")

    def test_trains_the_judge_once_and_leaves_no_samples(self):
        for trained in (1, 0):
            result = self.judge(str(self.run_folder), "--samples", "100", "--max-fd", "40")
            self.assertEqual(result.returncode, 0, result.stderr)
            trainings = [call for call in self.called("judge-samples") if "--train" in call]
            self.assertEqual(len(trainings), trained)
        self.assertTrue(self.called("ninja")[0].endswith(" dit-sample judge-samples"))
        sampled = self.called("dit-sample")[0]
        self.assertIn(f"--checkpoint {self.run_folder} --classes 0,1,2,3,4,5,6,7,8,9 --per-class 10 ", sampled)
        judged = self.called("judge-samples")[-1]
        self.assertTrue(judged.endswith("/samples.safetensors --max-fd 40"), judged)
        self.assertEqual(sorted(os.listdir(self.build / "tests")), ["judge-samples"])
        self.assertEqual([name for name in os.listdir(self.build) if name.startswith("judge.")],
                         ["judge.safetensors"])

    def test_a_new_program_trains_anew(self):
        self.judge(str(self.run_folder))
        os.utime(self.build / "tests/judge-samples", (4e9, 4e9))
        self.judge(str(self.run_folder))
        self.assertEqual(len([call for call in self.called("judge-samples") if "--train" in call]), 1)

    def test_exit_codes_of_the_judge_pass_through(self):
        self.assertEqual(self.judge(str(self.run_folder), JUDGE_EXIT="1").returncode, 1)
        (self.build / "judge.safetensors").unlink()
        self.assertEqual(self.judge(str(self.run_folder), TRAIN_EXIT="77").returncode, 77)


if __name__ == "__main__":
    unittest.main()
