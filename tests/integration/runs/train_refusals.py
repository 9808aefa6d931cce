"""dit-train: what it refuses and how it fails, each with its exit code and its whole message."""

import gzip
import json
import resource
import signal

import programs
from programs import CONFIG, IMAGES, LAST, STEPS, ProgramTest, execute, idx_labels

CONFIGURATION, DATA, FAILURE = 2, 4, 1


def place(text: str, needle: str) -> str:
    """ "line:column" of `needle`, which must occur once."""
    assert text.count(needle) == 1, needle
    before = text[: text.index(needle)]
    return f"{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"


class Usage(ProgramTest):
    def test_help_fits_one_screen(self):
        for program in (programs.TRAIN, programs.SAMPLE, programs.EXPORT):
            for option in ("--help", "-h"):
                result = execute(program, self.folder, option)
                self.assert_done(result)
                lines = result.stdout.split("\n")
                self.assertTrue(lines[0].startswith(f"{program.name}: "))
                self.assertLessEqual(len(lines) - 1, 24)
                self.assertLessEqual(max(map(len, lines)), 80)
                self.assertRegex(
                    result.stdout,
                    r"\nExit codes: 0 done, 1 failure, 2 (configuration or )?usage, 3 memory, 4 data,\s"
                    r"5 stopped by a signal(, 6 another rank does not answer)?\.\n",
                )
                self.assertTrue(lines[-2].startswith(f"Example: {program.name} "), lines[-2])

    def test_version(self):
        for program in (programs.TRAIN, programs.SAMPLE, programs.EXPORT):
            result = execute(program, self.folder, "--version")
            self.assert_done(result)
            self.assertRegex(result.stdout, rf"^{program.name} \d+\.\d+\.\d+ \(LibTorch \d+\.\d+\.\d+\)\n$")

    def test_wrong_arguments(self):
        for arguments, message in (
            ([], "--config FILE is missing: write for example dit-train --config base"),
            (["--frobnicate"], "--frobnicate: unknown option; see dit-train --help"),
            (["--confg", "tiny.toml"], "--confg: unknown option; did you mean --config?"),
            (["tiny.toml"], "tiny.toml: an argument that belongs to no option; see dit-train --help"),
            (["--config"], "--config: needs a value"),
            (
                ["--config", "gone.toml"],
                "gone.toml: this file does not exist; give an existing file with --config",
            ),
        ):
            if arguments[:1] == ["tiny.toml"]:
                arguments = ["--config", "tiny.toml", *arguments]
            result = execute(programs.TRAIN, self.folder, *arguments)
            self.assert_fails(result, CONFIGURATION, message)
            self.assertEqual(result.stdout, "")

    def test_devices(self):
        # A CUDA driver that cannot be loaded hides the machine's own, if it has one.
        (self.folder / "libcuda.so.1").write_bytes(b"")
        without_driver = {"env": {"LD_LIBRARY_PATH": str(self.folder), "OMP_NUM_THREADS": "1"}}
        no_driver = (
            "no CUDA driver is installed (libcuda.so.1 was not found); use --device cpu or --device auto"
        )
        no_device = "no such device; allowed: auto, cpu, cuda, or cuda:INDEX such as cuda:0"
        for device, message in (
            ("cuda", no_driver),
            ("cuda:1", no_driver),
            ("cuda:x", no_device),
            ("cuda:", no_device),
            ("gpu", no_device),
        ):
            arguments = ["--config", "tiny.toml", "--device", device]
            result = execute(programs.TRAIN, self.folder, *arguments, **without_driver)
            self.assert_fails(result, CONFIGURATION, f"--device {device}: {message}")
            self.assertEqual(result.stdout, "")
            self.assertFalse((self.folder / "run").exists())
        automatic = execute(programs.TRAIN, self.folder, "--config", "tiny.toml", **without_driver)
        self.assert_done(automatic)
        self.assertIn(" on cpu with 1 thread into run\n", automatic.stdout)


class Configuration(ProgramTest):
    def assert_refused(self, old: str, new: str, at: str, message: str) -> None:
        """tiny.toml with `old` replaced by `new` is refused with the place of `at`."""
        text = CONFIG.replace(old, new)
        self.assertNotEqual(text, CONFIG)
        (self.folder / "tiny.toml").write_text(text)
        result = self.train()
        self.assert_fails(result, CONFIGURATION, f"tiny.toml:{place(text, at)}: {message}")
        self.assertEqual(result.stdout, "")
        self.assertFalse((self.folder / "run").exists())

    def test_in_the_file(self):
        for case in (
            ("hidden =", "hiden =", "hiden", "unknown key model.hiden; did you mean model.hidden?"),
            (
                "[optimizer]",
                "[optimiser]",
                "optimiser",
                "unknown table [optimiser]; did you mean [optimizer]?",
            ),
            (
                "batch = 8",
                'batch = "8"',
                '"8"',
                'data.batch = "8" is a string; wanted: an integer in [1, inf)',
            ),
            (
                "batch = 8",
                "batch = 0.5",
                "0.5",
                "data.batch = 0.5 is a float; wanted: an integer in [1, inf)",
            ),
            ("batch = 8", "batch = 0", "0\n\n[model]", "data.batch = 0 is out of range; allowed: [1, inf)"),
            ("lr = 1e-3", "lr = -1", "-1", "optimizer.lr = -1 is out of range; allowed: (0, inf)"),
        ):
            with self.subTest(case[1]):
                self.assert_refused(*case)

    def test_on_the_command_line(self):
        for override, message in (
            ("data.batsh=3", "unknown key data.batsh; did you mean data.batch?"),
            ("data.batch=many", "many is not a TOML value; wanted: an integer in [1, inf)"),
            ("data.batch=0", "data.batch = 0 is out of range; allowed: [1, inf)"),
            ("data.batch", "not of the form key=value; write for example --set data.batch=16"),
        ):
            result = self.train("--set", override)
            self.assert_fails(result, CONFIGURATION, f"--set {override}: {message}")
            self.assertFalse((self.folder / "run").exists())


class Policies(ProgramTest):
    """What a policy refuses has the place of the key that asks for it."""

    EMA = (
        "policies.ema: asked for in host memory, but the training device is the CPU, so there is nothing to "
        'move; remove policies.ema.enabled or set policies.ema.device = "same"'
    )
    PINNED = (
        "policies.ema.pinned = false has no use on the CPU, where no average is copied; allowed: true, the default; "
        "remove policies.ema.pinned"
    )
    TARGETS = 'policies.checkpoint.targets: "block.*" matches no module of this model; near: blocks.0'
    # Only a step tells: the plan's, before anything is read or written.
    KEEP = (
        'policies.checkpoint.keep: "fc3_out" is no name of a result in the segments\' forward passes; near: '
        "fc1_out, fc2_out, qkv_out"
    )
    SEGMENT = "policies.checkpoint.segment = 2 is out of range for 1 matching modules; allowed: [1, 1]"

    def test_in_the_file(self):
        for table, line, value, message in (
            ("ema", "enabled = true", "true", self.EMA),
            ("ema", "pinned = false", "false", self.PINNED),
            ("checkpoint", 'targets = ["block.*"]', '["block', self.TARGETS),
            ("checkpoint", "segment = 2", "2", self.SEGMENT),
            ("checkpoint", 'keep = ["fc3_out"]', '["fc3_out"]', self.KEEP),
        ):
            with self.subTest(line):
                text = f"{CONFIG}\n[policies.{table}]\n{line}\n"
                (self.folder / "tiny.toml").write_text(text)
                result = self.train()
                number, column = text.count("\n"), line.index(value) + 1
                self.assert_refusal(result, f"tiny.toml:{number}:{column}: {message}")

    def test_on_the_command_line(self):
        for override, message in (
            ("policies.ema.enabled=true", self.EMA),
            ("policies.ema.pinned=false", self.PINNED),
            ('policies.checkpoint.targets=["block.*"]', self.TARGETS),
            ("policies.checkpoint.segment=2", self.SEGMENT),
            ('policies.checkpoint.keep=["fc3_out"]', self.KEEP),
        ):
            with self.subTest(override):
                self.assert_refusal(self.train("--set", override), f"--set {override}: {message}")

    def test_a_run_that_no_machine_holds(self):
        result = self.train(model__hidden=65_536, model__heads=4)
        self.assertEqual(result.returncode, 3, result.stderr)
        self.assertRegex(
            result.stderr,
            r"^dit-train: the run needs at least \d{12,} bytes \(.*\) of tensors on cpu in phase \w+, and what is "
            r"available is \d+ .*; dit-plan --explain says what each policy would change; set "
            r'memory\.on_over_budget = "warn" to start the run all the same\n$',
        )
        self.assertEqual(result.stdout, "")
        self.assertFalse((self.folder / "run").exists())

    def test_what_can_act_is_accepted(self):
        result = self.train("--set", "policies.attention.enabled=true")
        self.assert_done(result)
        line = "policy attention: on, fused kernels; calls that have none are listed once they ran"
        self.assertIn(f"\n{line}\n", result.stdout)

    def assert_refusal(self, result, message: str) -> None:
        if "near: " in message:  # then come all the other modules
            self.assertEqual(result.returncode, CONFIGURATION)
            self.assertTrue(result.stderr.startswith(f"dit-train: {message}"), result.stderr)
        else:
            self.assert_fails(result, CONFIGURATION, message)
        self.assertEqual(result.stdout, "")
        self.assertFalse((self.folder / "run").exists())


class Data(ProgramTest):
    def assert_refused(self, message: str, **values) -> None:
        result = self.train(**values)
        self.assert_fails(result, DATA, message)
        self.assertEqual(result.stdout, "")
        self.assertFalse((self.folder / "run").exists())

    def test_missing_file(self):
        self.assert_refused(
            "--set data.images=gone: gone: no such file; check the path", data__images="gone"
        )
        (self.folder / "labels").unlink()
        at = place(CONFIG, '"labels"')
        self.assert_refused(f"tiny.toml:{at}: labels: no such file; check the path")

    def test_fewer_samples_than_a_batch(self):
        self.assert_refused(
            f"data: {IMAGES} images 1x8x8, 4 classes (IDX, images) are fewer than one micro-batch "
            f"of 512; set data.batch = {IMAGES} or less",
            data__batch=512,
        )
        self.assert_done(self.train())  # what was refused is not in the way

    def test_truncated_gzip(self):
        whole = gzip.compress((self.folder / "images").read_bytes())
        (self.folder / "whole.gz").write_bytes(whole)
        (self.folder / "cut.gz").write_bytes(whole[: len(whole) // 2])
        self.assert_refused(
            f"--set data.images=cut.gz: cut.gz: the gzip data ends too early ({len(whole) // 2} bytes in the file); it is truncated, "
            "get the file again",
            data__images="cut.gz",
        )
        self.assert_done(self.train(data__images="whole.gz"))

    def test_other_number_of_labels(self):
        (self.folder / "few").write_bytes(idx_labels(9))
        self.assert_refused(
            f"--set data.labels=few: few: holds 9 labels, but images holds {IMAGES} images; give two files of one set",
            data__labels="few",
        )

    def test_other_kind_of_file(self):
        self.assert_refused(
            "--set data.labels=images: images: not an IDX file of labels: it starts with 0x00000803, allowed is 0x00000801; "
            "name a file of labels",
            data__labels="images",
        )


class Failures(ProgramTest):
    def test_loss_that_is_not_finite(self):
        values = {
            "optimizer__lr": "1e30",
            "optimizer__clip": 0,
            "train__log_every": 3,
            "train__checkpoint_every": 1,
        }
        advice = (
            "Start another run with a lower optimizer.lr, a longer schedule.warmup or a smaller optimizer.clip: a "
            "checkpoint continues with its own only"
        )
        good = "run/checkpoints/step-00000001"
        message = (
            "the loss or a gradient became infinite or NaN in {}; with optimizer.clip = 0 it is looked for where a line "
            "is logged or a checkpoint made, and nothing of it was saved. "
        )
        self.assert_fails(
            self.train(**values),
            FAILURE,
            message.format("step 2") + f"Last good checkpoint: {good}. {advice}",
        )
        self.assertEqual(self.checkpoints(), ["step-00000001"])
        said = message.format("step 2") + f"Last good checkpoint: {good}. {advice}"
        self.assertEqual([line["event"] for line in self.log()[-2:]], ["checkpoint", "failed"])
        self.assertEqual({"step": 2, "reason": said}, {key: self.log()[-1][key] for key in ("step", "reason")})
        memory = json.loads((self.folder / "run/memory.json").read_text())
        self.assertIn("backward", [phase["name"] for phase in memory["phases"]])
        self.assertIn("failed after step 2: the loss or a gradient", (self.folder / "run/report.html").read_text())
        again = self.train("--resume", good, **values)
        self.assertIn(f"\nresumed from {good} at step 1\n", again.stdout)
        self.assert_fails(
            again, FAILURE, message.format("step 2") + f"Last good checkpoint: {good}. {advice}"
        )
        # At this rate the weights of two updates multiply; steps 3 and 4 are not read.
        later = {"train__out": "other", "train__checkpoint_every": 0, "train__log_every": 10}
        self.assert_fails(
            self.train(**{**values, **later, "optimizer__lr": "1e6"}),
            FAILURE,
            message.format("one of the steps 3 to 5") + f"Last good checkpoint: none. {advice}",
        )

        # Nothing is drawn with weights that are not finite.
        drawn = self.train(**{**values, **later, "train__out": "drawn", "train__sample_every": 4, "optimizer__lr": "1e30"})
        self.assertEqual(drawn.returncode, FAILURE)
        self.assertIn("the loss or a gradient became infinite or NaN", drawn.stderr)
        self.assertFalse((self.folder / "drawn/samples").exists())
        # With clipping every step is looked at.
        clipped = self.train(**{**values, **later, "train__out": "clipped", "optimizer__lr": "1e30", "optimizer__clip": 1e30})
        self.assertEqual(clipped.returncode, FAILURE)
        self.assertIn("; the weights were not changed by it. Last good checkpoint: none. ", clipped.stderr)

    def test_a_checkpoint_that_cannot_be_written(self):
        self.copy_finished_run()
        smallest = min(
            (self.folder / LAST / name).stat().st_size for name in ("model.safetensors", "ema.safetensors")
        )

        def limit() -> None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (smallest // 2, smallest // 2))

        more = {"train__steps": STEPS + 5, "schedule__kind": "cosine"}
        self.assert_fails(
            self.train("--resume", "latest", options={"preexec_fn": limit}, **more),
            FAILURE,
            f"cannot write run/checkpoints/step-{STEPS + 5:08}.partial/ema.safetensors: File too large",
        )
        self.assertEqual(self.checkpoints(), [f"step-{STEPS:08}"])
        result = self.train("--resume", "latest", **more)
        self.assert_done(result)
        self.assertIn(f"\nresumed from {LAST} at step {STEPS}\n", result.stdout)
