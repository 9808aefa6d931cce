"""dit-train: which folders it takes, alone, and from which checkpoint it goes on in them."""

import json
import shutil

import programs
from programs import LAST, STEPS, ProgramTest, execute

CONFIGURATION, FAILURE = 2, 1


class RunFolder(ProgramTest):
    def test_a_new_run_does_not_mix_with_an_old_one(self):
        self.copy_finished_run()
        before = (self.folder / "run" / "log.jsonl").read_bytes()
        self.assert_fails(
            self.train(),
            CONFIGURATION,
            "run already holds a run; continue it with --resume run, or name another folder: "
            "--set train.out=run-2",
        )
        self.assertEqual((self.folder / "run" / "log.jsonl").read_bytes(), before)
        shutil.rmtree(self.folder / LAST)
        self.assert_fails(
            self.train(),
            CONFIGURATION,
            "run already holds a run that has no checkpoint; begin again in its place with --resume auto, or name "
            "another folder: --set train.out=run-2",
        )

    def test_a_folder_of_other_things(self):
        (self.folder / "run").mkdir()
        (self.folder / "run" / "notes.txt").write_text("mine")
        result = self.train()
        self.assert_fails(
            result,
            CONFIGURATION,
            'train.out = "run" is a folder that holds other things than a run: notes.txt; allowed: a new or an '
            "empty folder; name another folder: --set train.out=run-2",
        )
        self.assertEqual(result.stdout, "")  # the configuration would hide the reason
        (self.folder / "run" / "notes.txt").unlink()
        self.assert_done(self.train())
        self.assert_fails(
            self.train(train__out="images"),
            CONFIGURATION,
            'train.out = "images": cannot list images: Not a directory; name another folder: '
            "--set train.out=images-2",
        )
        self.assert_fails(
            self.train(train__out="images/mine"),
            CONFIGURATION,
            'train.out = "images/mine": cannot list images/mine: Not a directory; allowed: a new or an empty folder',
        )

    def test_two_processes_do_not_train_into_one_folder(self):
        message = (
            "run: another process is training into this folder; wait until it has ended, or name another "
            "folder: --set train.out=run-2"
        )
        first = self.start("--set", "train.steps=100000000", "--set", "schedule.kind=constant")
        try:
            self.wait_for_step(first)
            self.assert_fails(self.train(), CONFIGURATION, message)
        finally:
            first.kill()
            first.communicate(timeout=30)
        self.copy_finished_run()  # the lock of the killed process is gone
        self.assert_done(self.train("--resume", "latest", train__steps=STEPS + 1))

    def test_a_lock_that_was_removed_by_hand_locks_all_the_same(self):
        process = self.start("--set", "train.steps=100000", "--set", "train.checkpoint_every=2")
        self.wait_for(process, "run/log.jsonl", '"event":"checkpoint"')
        (self.folder / "run/lock").unlink()
        self.assert_fails(
            self.train("--resume", "latest", train__steps=100_000, train__checkpoint_every=2),
            2,
            "run: another process is training into this folder; wait until it has ended, or name another "
            "folder: --set train.out=run-2",
        )
        process.kill()
        process.communicate()

    def test_a_start_that_was_killed_is_taken_over(self):
        self.copy_finished_run()
        for path in (LAST, "run/samples"):
            shutil.rmtree(self.folder / path)
        for name in ("memory.json", "report.html"):
            (self.folder / "run" / name).unlink()
        start, *_ = (self.folder / "run/log.jsonl").read_text().splitlines(keepends=True)
        (self.folder / "run/log.jsonl").write_text(start)
        result = self.train()
        self.assert_done(result)
        self.assertIn(
            "\nrun holds an earlier start that came to no step; this run takes its place\n", result.stdout
        )
        self.assertEqual([line["event"] for line in self.log()].count("start"), 1)

    def test_a_checkpoint_of_another_run_is_not_mixed_in(self):
        self.copy_finished_run()
        self.assert_done(self.train(train__out="older", train__steps=STEPS // 2))
        self.assert_fails(
            self.train("--resume", LAST, train__out="older", train__steps=STEPS + 1),
            CONFIGURATION,
            "older already holds a run; continue it with --resume older, or name another folder: "
            "--set train.out=older-2",
        )
        self.assertEqual(self.checkpoints("older"), [f"step-{STEPS // 2:08}"])

    def test_resume_without_a_checkpoint(self):
        for what, folder in (("latest", "run"), ("gone", "gone")):
            self.assert_fails(
                self.train("--resume", what),
                CONFIGURATION,
                f"--resume {what}: no complete checkpoint in {folder}/checkpoints; name a run folder "
                "or a checkpoint "
                "folder, or start anew without --resume",
            )
        self.assertFalse((self.folder / "run").exists())

    def test_resume_with_another_configuration(self):
        self.copy_finished_run()
        self.assert_fails(
            self.train("--resume", "latest", optimizer__lr=0.1, train__seed=4, sample__steps=9),
            CONFIGURATION,
            f"checkpoint {LAST} cannot go on so:\n"
            "  train.seed: 0 in the checkpoint, 4 now; the order of the data and what is held out follow from it\n"
            f"use its own values ({LAST}/config.toml), or start a new run in another train.out, which may begin "
            f"with these weights: --set train.init_from={LAST}",
        )
        # What that says is accepted.
        self.assert_done(
            self.train("--set", f"train.init_from={LAST}", train__seed=4, train__out="new", train__steps=2)
        )

    def test_a_run_goes_on_by_its_folder_alone(self):
        self.copy_finished_run()
        more = ("--device", "cpu", "--set", f"train.steps={STEPS + 3}", "--set", "schedule.kind=constant")
        alone = execute(programs.TRAIN, self.folder, "--resume", "run", "--out", "b", *more)
        self.assert_done(alone)
        self.assertIn(f"\nresumed from {LAST} at step {STEPS}\n", alone.stdout)
        self.assert_done(self.train("--resume", "latest", train__steps=STEPS + 3, schedule__kind="constant"))
        self.assertEqual(self.checkpoints("b"), [f"step-{STEPS + 3:08}"])
        last = f"checkpoints/step-{STEPS + 3:08}"
        self.assert_same_state(f"run/{last}", f"b/{last}")
        moved = self.folder / "elsewhere"
        (self.folder / "b").rename(moved)
        more = ("--device", "cpu", "--set", f"train.steps={STEPS + 5}")
        self.assert_done(execute(programs.TRAIN, self.folder, "--resume", "latest", "--out", "elsewhere", *more))
        self.assertEqual(self.checkpoints("elsewhere")[-1], f"step-{STEPS + 5:08}")
        self.assertFalse((self.folder / "b").exists())

    def test_a_resume_with_another_batch_and_rate(self):
        self.copy_finished_run()
        result = self.train(
            "--resume", "latest", train__steps=STEPS + 5, data__batch=12, train__accumulate=3, optimizer__lr=0.01
        )
        self.assert_done(result)
        for change in ("data.batch = 12 (was 8)", "train.accumulate = 3 (was 1)", "optimizer.lr = 0.01 (was 0.001)"):
            self.assertIn(f"\nfrom here on: {change}\n", result.stdout)
        state = json.loads((self.folder / f"run/checkpoints/step-{STEPS + 5:08}/state.json").read_text())
        self.assertEqual(state["samples"], 8 * STEPS + 12 * 5)
        history = json.loads((self.folder / f"run/checkpoints/step-{STEPS + 5:08}/history.json").read_text())
        self.assertEqual([change["step"] for change in history], [STEPS] * 4)

    def test_resume_from_a_damaged_checkpoint(self):
        self.assert_done(self.train(train__checkpoint_every=10))
        older = "run/checkpoints/step-00000010"
        changed = "model.safetensors has changed since it was saved (its SHA-256 differs)"
        weights = self.folder / LAST / "model.safetensors"
        content = bytearray(weights.read_bytes())
        content[-1] ^= 1
        weights.write_bytes(content)
        self.assert_fails(
            self.train("--resume", "latest", train__steps=STEPS + 1),
            FAILURE,
            f"{LAST} is a damaged checkpoint:\n  {changed}\nName the older {older} instead, which is whole",
        )
        result = self.train("--resume", older)
        self.assert_done(result)
        self.assertIn(
            f"\npassed over {LAST}, which is damaged: {changed}. It is now called {LAST}.damaged; remove it "
            f"once it is of no use\nresumed from {older} at step 10\n",
            result.stdout,
        )
        self.assertEqual(self.checkpoints(), [older[-13:], LAST[-13:], f"{LAST[-13:]}.damaged"])
        self.assertIn("\nnothing left to train at step 20;", self.train("--resume", "latest").stdout)

    def test_resume_from_an_older_checkpoint(self):
        self.assert_done(self.train(train__checkpoint_every=10))
        older = "run/checkpoints/step-00000010"
        self.assert_fails(
            self.train("--resume", older),
            CONFIGURATION,
            f"--resume {older}: run holds the newer {LAST}; continue that with --resume run, or "
            "start a branch in another folder: --set train.out=run-2",
        )
        self.assert_done(self.train("--resume", older, train__out="run-2"))
