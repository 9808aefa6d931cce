"""dit-train: a whole run, resuming, signals, the terminal."""

import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import termios
import time
import unittest.mock
from pathlib import Path

from programs import CLASSES, LAST, SAMPLE_STEPS, SIDE, STEPS, ProgramTest, execute, finished_run, settings
import programs
from png import read_png

PHASES = set("build first_step forward backward optimizer ema sample validate save last_batch".split())
CATEGORIES = set("parameters casts gradients optimizer ema saved data temporaries scratch other".split())
STATUS = (
    r"step {step}  loss \d+\.\d{{4}}  \d+ images/s  peak \d+\.\d [KMG]iB  \d+:\d\d elapsed, \d+:\d\d left"
)
LOGGED = [1, 2, 5, 10, 15, STEPS]  # with log_every = 5
ENDLESS = ("--set", "train.steps=100000000", "--set", "schedule.kind=constant")


def runs(process: str) -> bool:
    """Whether the process of this number does, and is not what nobody has asked after yet."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class DoneRun(ProgramTest):
    def setUp(self):
        super().setUp()
        self.copy_finished_run()
        self.output = finished_run()[1].stdout
        self.run_folder = self.folder / "run"

    def test_leaves_its_folder_complete(self):
        files = {
            str(path.relative_to(self.run_folder)) for path in self.run_folder.rglob("*") if path.is_file()
        }
        names = "config.toml data.json ema.safetensors manifest.json model.safetensors optimizer.safetensors".split()
        names += ["origins.json", "state.json"]
        expected = {"config.toml", "data.json", "lock", "log.jsonl", "memory.json", "report.html", f"samples/step-{STEPS:08}.png"}
        (events,) = {file for file in files if file.startswith("tensorboard/")}
        self.assertRegex(events, r"^tensorboard/events\.out\.tfevents\.\d{10}\.dit-train$")
        files.remove(events)
        self.assertEqual(files, expected | {f"checkpoints/step-{STEPS:08}/{name}" for name in names})

    def test_prints_the_configuration_that_it_saves(self):
        saved = (self.run_folder / "config.toml").read_text()
        self.assertIn('out = "run"  # tiny.toml:2\nseed = 0  # default\n', saved)
        begins = saved + "\ntraining DiT, 0.01 M parameters, on cpu with 1 thread into run\ndata: 200 images 1x8x8, 4 classes"
        self.assertTrue(self.output.startswith(begins), self.output)
        for policy in ("precision", "attention", "fusion", "ema", "checkpoint"):
            self.assertEqual(self.output.count(f"\n[policies.{policy}]\nenabled = \"default\"  # default\n"), 1)
        printed = self.train("--print-config")
        self.assert_done(printed)
        self.assertEqual(printed.stdout, saved)

    def test_says_little_unless_asked(self):
        short = execute(programs.TRAIN, self.folder, "--config", "tiny.toml", "--device", "cpu", "--out", "short")
        self.assert_done(short)
        begin, _, rest = short.stdout.partition("\nstep 1 ")
        first, last = begin.splitlines(), rest.partition("\nfinal loss ")[2].splitlines()
        self.assertLessEqual(len(first), 10, short.stdout)
        self.assertEqual(first[0], "training DiT, 0.01 M parameters, on cpu with 1 thread into short")
        self.assertTrue(first[1].startswith("data: 200 images 1x8x8, 4 classes"))
        self.assertTrue(first[2].startswith("planned peak "), first)
        for line in first[3:]:
            self.assertRegex(line, r"^policy \w+: on, ")
        self.assertLessEqual(len(last), 8, short.stdout)
        self.assertRegex(rest, r"\npeak memory   \S+ KiB in phase \w+, planned \S+ KiB\n")
        self.assertEqual(last[-1], "report        short/report.html")

    def test_ends_with_its_figures(self):
        last = self.log()[-4]
        self.assertRegex(
            self.output,
            rf"\nfinal loss    {last['loss']:.4f} after {STEPS} steps, \d+:\d\d of training\n"
            r"speed         \d+ images/s \(\d+\.\d\d % of the time waiting for data\)\n"
            r"peak memory   \d+\.\d KiB in phase (first_step|backward|sample)\n"
            r"process       \d+\.\d MiB of the machine's memory at most, tensors and all else\n"
            rf"checkpoint    {LAST}\n"
            rf"samples       run/samples/step-{STEPS:08}\.png\n"
            r"report        run/report\.html\n\nby how much each policy",
        )

    def test_ends_within_80_columns(self):
        summary = self.output[self.output.index("\npeak memory by phase, KiB of tensors on cpu\nphase ") :]
        for line in summary.splitlines():
            self.assertLess(len(line), 80)

    def test_says_the_mfu_where_the_peak_is_given(self):
        result = self.train(train__out="other", log__peak_tflops=0.01)
        self.assert_done(result)
        self.assertRegex(result.stdout, r"\nspeed +\d+ images/s \([^)]*\), MFU \d+(\.\d+)? %\n")

    def test_ends_with_what_each_policy_saved(self):
        self.assertRegex(
            self.output,
            r"\nby how much each policy lowers the peak of forward and backward\n"
            r"  precision   off           -   fp32: .*\n( {32}.*\n)*"
            r"  attention   on  +-?\d+(\.\d [KM]i| )B   (raises the peak here; )?fused kernels, .*\n( {32}.*\n)*"
            r"  fusion      on  +-?\d+(\.\d [KM]i| )B   (raises the peak here; )?fused operators: .*\n( {32}.*\n)*"
            r"  ema         on          0 B   training device is the CPU, nothing to move;\n( {32}.*\n)*"
            r"  checkpoint  on  +-?\d+(\.\d [KM]i| )B   recomputes 1 module in 1 segment, .*\n( {32}.*\n)*$",
        )

    def test_prints_plain_lines_without_a_terminal(self):
        self.assertNotIn("\r", self.output)
        self.assertNotIn("\033", self.output)
        for step in LOGGED:
            self.assertRegex(self.output, rf"(?m)^{STATUS.format(step=step)}$")

    def test_grid_has_a_row_a_class(self):
        width, height, pixels = read_png(self.run_folder / f"samples/step-{STEPS:08}.png")
        self.assertEqual((width, height), (2 * (2 * SIDE + 2) + 2, CLASSES * (2 * SIDE + 2) + 2))
        self.assertGreater(len(set(pixels)), 10)

    def test_memory_json_follows_its_schema(self):
        memory = json.loads((self.run_folder / "memory.json").read_text())
        self.assertEqual(set(memory), {"version", "device", "unit", "peak", "host", "phases", "policies"})
        self.assertEqual((memory["version"], memory["device"], memory["unit"]), (1, "cpu", "bytes"))
        self.assertEqual(memory["host"]["peak_bytes"], 0)
        names = [phase["name"] for phase in memory["phases"]]
        self.assertEqual(len(names), len(set(names)))
        self.assertLessEqual(set(names), PHASES)
        self.assertGreaterEqual(set(names), PHASES - {"validate", "last_batch"})
        for phase in memory["phases"]:
            self.assertLessEqual(set(phase["categories"]), CATEGORIES)
            self.assertEqual(sum(phase["categories"].values()), phase["peak_bytes"], phase["name"])
            if phase["name"] != "build":
                self.assertEqual(phase["categories"].get("other", 0), 0, phase["name"])
        peak = memory["peak"]
        highest = {phase["name"]: phase for phase in memory["phases"]}[peak["phase"]]
        self.assertEqual(peak["bytes"], max(phase["peak_bytes"] for phase in memory["phases"]))
        self.assertEqual((peak["bytes"], peak["categories"]), (highest["peak_bytes"], highest["categories"]))

    def test_memory_json_says_what_each_policy_saved(self):
        memory = json.loads((self.run_folder / "memory.json").read_text())
        policies = {policy["name"]: policy for policy in memory["policies"]}
        self.assertEqual(list(policies), ["precision", "attention", "fusion", "ema", "checkpoint"])
        self.assertTrue(policies["checkpoint"]["active"])
        self.assertGreater(policies["fusion"]["lowers_peak_by"], 0)
        # Of a model so small that its layers, which keep little, are no longer what peaks.
        self.assertEqual(policies["checkpoint"]["lowers_peak_by"], 0)
        self.assertEqual(policies["ema"]["lowers_peak_by"], 0)
        self.assertEqual(policies["ema"]["note"], "")

    def test_log_has_a_line_for_each_event(self):
        log = self.log()
        self.assertEqual(
            [(line["event"], line["step"]) for line in log],
            [
                ("start", 0),
                *(("step", step) for step in LOGGED),
                ("checkpoint", 20),
                ("sample", 20),
                ("end", 20),
            ],
        )
        self.assertEqual({key: log[0][key] for key in ("device", "threads", "ranks")},
                         {"device": "cpu", "threads": 1, "ranks": 1})
        self.assertEqual(
            set(log[0]),
            set(
                "event step device threads ranks parameters tokens_per_image flops_per_image time data samples held_out".split()
            ),
        )
        self.assertGreater(log[0]["parameters"], 0)
        self.assertAlmostEqual(log[0]["time"], time.time(), delta=3600)
        numbers = "step loss lr gradient_norm images_per_second peak_bytes seconds wait_seconds wait_per_step"
        numbers = [*numbers.split(), "process_bytes", "counted_bytes"]
        for line in log[1:7]:
            self.assertEqual(set(line), {"event", *numbers})
            for name in numbers:
                self.assertIsInstance(line[name], (int, float))
        self.assertEqual(log[7]["path"], LAST)
        self.assertEqual(log[8]["path"], f"run/samples/step-{STEPS:08}.png")
        self.assertGreater(log[9]["images_per_second"], 0)

    def test_the_saved_configuration_gives_the_same_run(self):
        arguments = ["--config", "run/config.toml", "--set", "train.out=again", "--device", "cpu"]
        self.assert_done(execute(programs.TRAIN, self.folder, *arguments))
        self.assert_same_state(LAST, LAST.replace("run", "again"))

    def test_another_seed_gives_another_run(self):
        self.assert_done(self.train(train__out="other", train__seed=1))
        model = Path("checkpoints") / f"step-{STEPS:08}" / "model.safetensors"
        self.assertNotEqual(
            (self.folder / "run" / model).read_bytes(), (self.folder / "other" / model).read_bytes()
        )


class Resume(ProgramTest):
    def test_ends_bit_equal_to_an_uninterrupted_run(self):
        self.copy_finished_run()
        self.assert_done(self.train(train__out="whole", train__checkpoint_every=10))
        self.assertEqual(self.checkpoints("whole"), ["step-00000010", f"step-{STEPS:08}"])
        shutil.copytree(self.folder / "whole", self.folder / "cut")
        shutil.rmtree(self.folder / "cut" / "checkpoints" / f"step-{STEPS:08}")
        for run, resume in (("cut", "latest"), ("branch", "whole/checkpoints/step-00000010")):
            result = self.train("--resume", resume, train__out=run, train__checkpoint_every=10)
            self.assert_done(result)
            origin = "cut" if resume == "latest" else "whole"
            self.assertIn(f"\nresumed from {origin}/checkpoints/step-00000010 at step 10\n", result.stdout)
            self.assert_same_state(LAST, LAST.replace("run", run))
            self.assertEqual(
                (self.folder / f"run/samples/step-{STEPS:08}.png").read_bytes(),
                (self.folder / run / f"samples/step-{STEPS:08}.png").read_bytes(),
            )
        self.assertEqual(self.log("branch")[0]["event"], "resume")

    def test_says_that_the_clock_is_an_input(self):
        self.copy_finished_run()
        result = self.train("--resume", "run", train__steps=STEPS + 1, train__seconds=1000)
        self.assert_done(result)
        self.assertIn(
            f"\nresumed from {LAST} at step {STEPS}; train.seconds is set, so the clock decides when "
            "the run ends "
            "and the result is not bit-equal to an uninterrupted run\n",
            result.stdout,
        )

    def test_that_ends_within_its_warm_up_says_so(self):
        said = "\nwarm-up       the run ended in it: no step had the whole learning rate, which comes after "
        short = self.train(train__steps="default", train__seconds=0.05, schedule__warmup=100_000)
        self.assert_done(short)
        self.assertIn(said + "100000 steps (schedule.warmup); train longer, or set fewer\n", short.stdout)
        self.assertNotIn(said, finished_run()[1].stdout)

    def test_another_thread_count_must_be_allowed(self):
        self.copy_finished_run()
        steps = STEPS + 1
        self.assert_fails(
            self.train("--resume", "latest", train__steps=steps, train__threads=2),
            2,
            f"{LAST} was written with train.threads = 1, this run has 2, and results depend on it; set "
            "train.threads = 1, or accept other rounding: set train.allow_thread_change = true",
        )
        allowed = {"train__threads": 2, "train__allow_thread_change": "true"}
        result = self.train("--resume", "latest", train__steps=steps, **allowed)
        self.assert_done(result)
        self.assertRegex(
            result.stdout,
            rf"\nfinal loss    \d\.\d{{4}} after {steps} steps, \d+:\d\d of training in the whole run\n"
            r"this process  1 of these steps, \d+:\d\d of training\nspeed         ",
        )
        self.assertEqual(self.log()[-1], {**self.log()[-1], "event": "end", "step": steps})
        no_use = (
            ": train.allow_thread_change = true has no use in a new run: it lets a resumed one go on with another "
            "number of threads; remove it"
        )
        self.assert_fails(
            self.train(train__out="new", **allowed),
            2,
            f"--set train.allow_thread_change=true{no_use}, or continue a run with --resume",
        )
        self.assertFalse((self.folder / "new").exists())
        # What was saved is resumed with it, as often as wanted.
        saved = ("--config", "run/config.toml", "--device", "cpu")
        again = execute(programs.TRAIN, self.folder, *saved, "--resume", "latest", *settings({"train__steps": steps + 1}))
        self.assert_done(again)

    def test_a_finished_run_has_nothing_left(self):
        self.copy_finished_run()
        result = self.train("--resume", "latest")
        self.assert_done(result)
        self.assertIn(
            f"\nnothing left to train at step {STEPS}; to go on, raise what ended it, train.steps, train.epochs or train.seconds\n",
            result.stdout,
        )
        self.assertNotIn("final loss", result.stdout)


class Signals(ProgramTest):
    def stop(self, number: int) -> str:
        """Stops an endless run; returns the path of its only checkpoint."""
        process = self.start(*ENDLESS)
        self.wait_for_step(process)
        process.send_signal(number)
        output, errors = process.communicate(timeout=30)
        self.assertEqual((process.returncode, errors), (5, ""))
        (name,) = self.checkpoints()
        path = f"run/checkpoints/{name}"
        self.assertIn(
            f"\ncheckpoint    {path}\nreport        run/report.html\nstopped by a signal; continue with dit-train --resume run\n",
            output,
        )
        self.assertEqual(self.log()[-1]["event"], "stopped")
        self.assertFalse((self.folder / "run" / "samples").exists())
        return path

    def test_sigint_leaves_a_checkpoint_that_continues_bit_equal(self):
        step = int(self.stop(signal.SIGINT)[-8:])
        values = {"train__steps": step + 3, "schedule__kind": "constant"}
        self.assert_done(self.train("--resume", "latest", **values))
        self.assert_done(self.train(train__out="whole", **values))
        end = f"checkpoints/step-{step + 3:08}"
        self.assert_same_state(f"run/{end}", f"whole/{end}")

    def test_sigterm_leaves_a_checkpoint(self):
        path = self.stop(signal.SIGTERM)
        result = self.train("--resume", path, train__steps=int(path[-8:]), schedule__kind="constant")
        self.assert_done(result)
        self.assertIn(f"\nresumed from {path} at step {int(path[-8:])}\n", result.stdout)

    def test_a_second_signal_ends_it_within_a_step(self):
        large = {"model__depth": 6, "model__hidden": 384, "model__heads": 6, "model__patch": 1}
        long_steps = settings({**large, "data__batch": 100, "policies__precision__enabled": "false"})
        for second in (signal.SIGINT, signal.SIGTERM):
            shutil.rmtree(self.folder / "run", ignore_errors=True)
            process = self.start(*ENDLESS, *long_steps)
            self.wait_for(process, "run/log.jsonl", '"event":"start"')
            time.sleep(1)  # then it is in its first step, which takes several
            process.send_signal(signal.SIGINT)
            time.sleep(0.1)  # two of the same kind at once are one
            process.send_signal(second)
            process.communicate(timeout=30)
            self.assertEqual(process.returncode, -second)
            self.assertEqual(self.checkpoints(), [])

    def test_a_signal_ends_a_start_plan_with_its_run(self):
        large = {"model__depth": 2, "model__hidden": 1536, "model__heads": 12, "model__patch": 1, "data__batch": 100}
        measured_long = settings({**large, "policies__precision__enabled": "false", "memory__budget": "1000GB"})
        for number, code in ((signal.SIGTERM, 5), (signal.SIGKILL, -signal.SIGKILL)):
            shutil.rmtree(self.folder / "run", ignore_errors=True)
            process = self.start(*ENDLESS, *measured_long)
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
            while not (planning := children.read_text().split()):
                self.assertIsNone(process.poll())
                time.sleep(0.01)
            time.sleep(1)
            self.assertEqual(children.read_text().split(), planning)  # or nothing is shown
            process.send_signal(number)
            end = time.monotonic() + 2  # the plan alone takes ten
            while runs(planning[0]) and time.monotonic() < end:
                time.sleep(0.01)
            self.assertFalse(runs(planning[0]))
            process.communicate(timeout=30)
            self.assertEqual(process.returncode, code)

    def test_a_signal_while_sampling_keeps_the_checkpoint(self):
        process = self.start("--set", "sample.steps=10000", "--set", "sample.per_class=64")
        self.wait_for(process, "run/samples")
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=30)
        self.assertEqual((process.returncode, errors), (5, ""))
        self.assertIn(
            "\nstopped by a signal; the training is complete, its samples were not made; make them with "
            f"dit-sample --checkpoint {LAST} --classes 0-3 --per-class 64 --out "
            f"run/samples/step-{STEPS:08}.png\n",
            output,
        )
        self.assertEqual(self.log()[-1]["event"], "end")
        command = output.rstrip("\n").split(" dit-sample ")[1].split(" ")
        self.assert_done(self.sample(*command, "--steps", "1"))
        self.assertEqual(os.listdir(self.folder / "run/samples"), [f"step-{STEPS:08}.png"])


class Trace(ProgramTest):
    def test_has_every_operator_of_three_steps_and_changes_no_bit(self):
        plain, traced = self.train("--out", "plain"), self.train("--out", "traced", "--trace", "t.json")
        self.assert_done(plain)
        self.assert_done(traced)
        self.assertIn("\ntrace of steps 3 to 5 of the process: t.json; open it in", traced.stdout)
        self.assertEqual(traced.stderr, "")
        events = json.loads((self.folder / "t.json").read_text())["traceEvents"]
        spans = {event["name"]: (event["ts"], event["ts"] + event["dur"]) for event in events
                 if event.get("cat") == "user_annotation"}
        self.assertEqual(sorted(spans), [f"step {step} of the process" for step in (3, 4, 5)])
        per_step = []
        for begin, end in spans.values():
            within = [event for event in events if event.get("cat") == "cpu_op" and begin <= event["ts"] < end]
            per_step.append(sorted(event["name"] for event in within if event["name"].startswith("aten::_fused_adamw")))
            for name in ("aten::addmm", "aten::mse_loss", "dtk::norm_modulate_backward"):
                self.assertIn(name, [event["name"] for event in within])
            self.assertTrue(all("Input Dims" in event["args"] for event in within if event["name"] == "aten::addmm"))
        self.assertEqual(per_step[0], per_step[1])
        self.assertEqual(per_step[1], per_step[2])
        weights = [self.folder / run / "checkpoints" / f"step-{STEPS:08}" / "model.safetensors" for run in ("plain", "traced")]
        self.assertEqual(weights[0].read_bytes(), weights[1].read_bytes())

    def test_of_fewer_steps_nothing_is_written_and_the_run_says_so(self):
        short = self.train("--out", "short", "--trace", "t.json", "--set", "train.steps=4")
        self.assert_done(short)
        self.assertIn("\n--trace t.json: not written, as this process made 4 steps; it is of steps 3 to 5\n", short.stdout)
        self.assertFalse((self.folder / "t.json").exists())

    def test_a_file_that_cannot_be_written_is_refused_before_the_first_step(self):
        result = self.train("--trace", "no/such/folder/t.json")
        self.assertEqual(result.returncode, 1, result)
        self.assertIn("--trace no/such/folder/t.json: cannot be written", result.stderr)


class ProcessSettings(ProgramTest):
    def environment_of_a_run(self, **given: str) -> dict[str, str]:
        before = {name: value for name, value in os.environ.items() if name != "GOMP_SPINCOUNT"}
        with unittest.mock.patch.dict(os.environ, before | given, clear=True):
            process = self.start(*ENDLESS)
        self.wait_for_step(process)
        pairs = Path(f"/proc/{process.pid}/environ").read_bytes().decode().split("\0")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
        shutil.rmtree(self.folder / "run")
        return dict(pair.split("=", 1) for pair in pairs if pair)

    def test_threads_that_wait_yield_unless_the_user_says_otherwise(self):
        self.assertEqual(self.environment_of_a_run()["GOMP_SPINCOUNT"], "2000")
        self.assertEqual(self.environment_of_a_run(GOMP_SPINCOUNT="7")["GOMP_SPINCOUNT"], "7")
        self.assertNotIn("GOMP_SPINCOUNT", self.environment_of_a_run(OMP_WAIT_POLICY="active"))

    def test_more_threads_than_cores_are_taken_and_said(self):
        cores = len(os.sched_getaffinity(0))
        result = self.train(train__threads=cores + 1, train__steps=1, schedule__warmup=0)
        self.assert_done(result)
        said = f"train.threads = {cores + 1} is more than the {cores} core{'s' * (cores > 1)} of this machine: they wait for one another"
        self.assertEqual(result.stdout.splitlines().count(said), 1, result.stdout)


class Precision(ProgramTest):
    FIGURES = r"measured: bf16 \d+\.\d ms, fp32 \d+\.\d ms a step(?: of one sample)? \(fastest of \d+; bf16 ahead in \d+\)"

    UNCLEAR = "(?:(?<=fp32), as bf16 has to be 15 % faster, and ahead in 4 of 5 pairs)?"

    def test_by_default_it_is_measured_once_and_saved(self):
        result = self.train(policies__precision__cpu="default")
        self.assert_done(result)
        line = re.search(rf"(?m)^precision on this CPU, ({self.FIGURES}); taken: (bf16|fp32){self.UNCLEAR}$", result.stdout)
        self.assertIsNotNone(line, result.stdout)
        saved = (self.folder / "run/config.toml").read_text()
        self.assertIn(f'\nenabled = "default"  # default\ncpu = "{line[2]}"  # {line[1]}\n', saved)
        self.assertTrue(result.stdout.startswith("trying some steps in fp32 and in bf16, to take the faster\n" + saved + "\ntraining DiT, "))
        arguments = ["--config", "run/config.toml", "--set", "train.out=again", "--device", "cpu"]
        again = execute(programs.TRAIN, self.folder, *arguments)
        self.assert_done(again)
        self.assertNotIn("precision on this CPU", again.stdout)
        self.assert_same_state(LAST, LAST.replace("run", "again"))


class Ledger(ProgramTest):
    def test_without_it_no_figure_of_memory_is_given(self):
        result = self.train(memory__ledger="false")
        self.assert_done(result)
        self.assertNotRegex(result.stdout, "(?<!planned )peak ")  # unlike log.peak_tflops
        self.assertRegex(result.stdout, r"(?m)^step 20  loss \d+\.\d{4}  \d+ images/s  \d+:\d\d elapsed, ")
        self.assertNotIn("peak_bytes", (self.folder / "run/log.jsonl").read_text())
        self.assertIn("\nmemory        bytes were not counted, no memory.json: memory.ledger = false\n", result.stdout)


class Terminal(ProgramTest):
    def run_on_terminal(self, columns: int) -> str:
        main, terminal = pty.openpty()
        self.addCleanup(os.close, main)
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        process = self.start("--set", f"train.out=columns-{columns}", stdout=terminal)
        os.close(terminal)
        output = b""
        while select.select([main], [], [], 60)[0]:
            try:
                output += os.read(main, 65536)
            except OSError:  # what Linux reports once the last writer is gone
                break
        _, errors = process.communicate(timeout=30)
        self.assertEqual((process.returncode, errors), (0, ""))
        return output.decode().replace("\r\n", "\n")

    def redraws(self, columns: int) -> list[str]:
        """The lines that replaced each other; none is as wide as the terminal."""
        first, *lines = self.run_on_terminal(columns).split("\r\033[K")
        self.assertIn("policy ema", first)
        logged = len(LOGGED)
        steps, sampling, sampled = lines[:logged], lines[logged], lines[logged + 1 :]
        self.assertEqual(sampling, f"sampling {2 * CLASSES} images in {SAMPLE_STEPS} steps\n")
        self.assertEqual(len(sampled), SAMPLE_STEPS)
        for number, line in enumerate(sampled, 1):
            self.assertRegex(line, rf"^\[#*\.*\] sampling {round(100 * (number - 1) / SAMPLE_STEPS)} %(\n|$)")
        for line in [*steps, *(line.split("\n")[0] for line in sampled)]:
            self.assertLess(len(line), columns)
        return steps

    def test_the_progress_bar_redraws_itself(self):
        for step, line in zip(LOGGED, self.redraws(120), strict=True):
            bar = re.escape("[" + "#" * step + "." * (STEPS - step) + "] ")  # as many columns as steps
            self.assertRegex(line, f"^{bar}{STATUS.format(step=step)}$")

    def test_narrow_terminals_get_less(self):
        self.assertRegex(self.redraws(80)[-1], f"^{STATUS.format(step=STEPS)}$")
        self.assertRegex(self.redraws(30)[-1], rf"^step {STEPS}  loss ")
