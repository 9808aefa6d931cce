"""dit-sample: what it draws from which weights, and what it refuses."""

import os
import pty
import resource
import shutil
import signal
import struct
import subprocess

import programs
from png import read_png
from programs import CLASSES, CONFIG, LAST, SIDE, STEPS, WHAT_TO_DO, ProgramTest, read_safetensors, skip_if_sanitized

CONFIGURATION, MEMORY, FAILURE = 2, 3, 1


class SampleTest(ProgramTest):
    def setUp(self):
        super().setUp()
        self.copy_finished_run()

    def drawn(self, *arguments: str, out: str = "out.safetensors", classes: str = "0,1") -> bytes:
        """What dit-sample wrote."""
        result = self.sample("--classes", classes, "--out", out, *arguments)
        self.assert_done(result)
        self.message = result.stdout
        return (self.folder / out).read_bytes()

    def assert_refused(self, code: int, message: str, *arguments: str, out: str = "out.png") -> None:
        if "--classes" not in arguments:
            arguments = (*arguments, "--classes", "0")
        self.assert_fails(self.sample(*arguments, "--out", out), code, message)
        self.assertFalse((self.folder / out).exists())


class Drawing(SampleTest):
    def test_a_grid_has_a_row_a_class(self):
        self.drawn("--checkpoint", "run", "--per-class", "3", out="grid.png", classes="0,1,2,3")
        self.assertEqual(self.message, f"12 samples with the EMA weights of {LAST}: grid.png\n")
        width, height, pixels = read_png(self.folder / "grid.png")
        self.assertEqual((width, height), (3 * (2 * SIDE + 2) + 2, CLASSES * (2 * SIDE + 2) + 2))
        self.assertGreater(len(set(pixels)), 10)

    def test_safetensors_hold_samples_and_labels(self):
        self.drawn("--checkpoint", "run", "--per-class", "2", classes="3,0")
        tensors = read_safetensors(self.folder / "out.safetensors")
        self.assertEqual(set(tensors), {"samples", "labels"})
        self.assertEqual(tensors["samples"][0], [4, 1, SIDE, SIDE])
        self.assertEqual(tensors["labels"], ([4], struct.pack("<4q", 3, 3, 0, 0)))
        values = struct.unpack(f"<{4 * SIDE * SIDE}f", tensors["samples"][1])
        self.assertTrue(all(-100 < value < 100 for value in values))

    def test_the_seed_decides(self):
        first = self.drawn("--checkpoint", "run")
        self.assertEqual(self.drawn("--checkpoint", "run", out="again.safetensors"), first)
        self.assertEqual(self.drawn("--checkpoint", "run", "--seed", "0"), first)
        self.assertNotEqual(self.drawn("--checkpoint", "run", "--seed", "1"), first)

    def test_without_other_options_it_draws_the_grid_of_the_run(self):
        every_class = ",".join(str(label) for label in range(CLASSES))
        odd = {"sample__seed": 7, "train__accumulate": 2, "data__batch": 6, "train__threads": 2}
        bf16 = {"policies__precision__cpu": "bf16", "sample__per_class": 3}
        for name, values in (("run", {}), ("odd", odd), ("bf16", bf16)):
            with self.subTest(name):
                if name != "run":
                    self.assert_done(self.train(train__out=name, **values))
                per_class = str(values.get("sample__per_class", 2))
                arguments = ("--checkpoint", name, "--per-class", per_class)
                grid = self.drawn(*arguments, out="grid.png", classes=every_class)
                own = (self.folder / name / f"samples/step-{STEPS:08}.png").read_bytes()
                self.assertEqual(grid, own)
                other = self.drawn(*arguments, "--seed", "1", out="grid.png", classes=every_class)
                self.assertNotEqual(other, own)

    def test_options_default_to_those_of_the_run(self):
        first = self.drawn("--checkpoint", "run")
        self.assertEqual(self.drawn("--checkpoint", "run", "--guidance", "2", "--steps", "4"), first)
        for other in (("--guidance", "1"), ("--steps", "5")):
            self.assertNotEqual(self.drawn("--checkpoint", "run", *other), first)

    def test_weights_from_a_run_a_checkpoint_or_a_file(self):
        averages = self.drawn("--checkpoint", "run")
        self.assertEqual(self.drawn("--checkpoint", LAST), averages)
        self.assertEqual(self.drawn("--weights", f"{LAST}/ema.safetensors"), averages)
        raw = self.drawn("--checkpoint", LAST, "--raw")
        self.assertEqual(self.message, f"2 samples with the raw weights of {LAST}: out.safetensors\n")
        self.assertNotEqual(raw, averages)
        self.assertEqual(self.drawn("--weights", f"{LAST}/model.safetensors"), raw)
        self.assertEqual(
            self.message, f"2 samples with the weights of {LAST}/model.safetensors: out.safetensors\n"
        )
        shutil.copy(self.folder / LAST / "model.safetensors", self.folder / "alone.safetensors")
        self.assertEqual(self.drawn("--weights", "alone.safetensors", "--config", "tiny.toml"), raw)


class Stopping(SampleTest):
    def test_a_file_that_cannot_be_written_is_what_it_was(self):
        def limit() -> None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))

        for out in ("out.safetensors", "out.png"):
            (self.folder / out).write_text("old")
            arguments = ("--checkpoint", "run", "--classes", "0", "--out", out)
            message = f"cannot write {out}.tmp: File too large"
            self.assert_fails(self.sample(*arguments, preexec_fn=limit), FAILURE, message)
            self.assertEqual((self.folder / out).read_text(), "old")

    def test_a_signal_ends_it_between_two_steps_with_nothing_written(self):
        arguments = "--checkpoint run --classes 0,1,2,3 --per-class 64 --steps 10000 --out out.safetensors"
        main, terminal = pty.openpty()
        self.addCleanup(os.close, main)
        command = [str(programs.SAMPLE), "--device", "cpu", *arguments.split(" ")]
        process = subprocess.Popen(command, cwd=self.folder, stdout=terminal, stderr=subprocess.PIPE, text=True)
        os.close(terminal)
        output = b""
        while b"sampling <1 %" not in output:
            output += os.read(main, 65536)
        process.send_signal(signal.SIGINT)
        self.assertEqual((process.wait(timeout=30), process.stderr.read()), (5, ""))
        process.stderr.close()
        while not output.endswith(b"written\r\n"):
            output += os.read(main, 65536)
        self.assertTrue(output.endswith(b"\r\033[Kstopped by a signal; nothing was written\r\n"), output)
        self.assertEqual([path.name for path in self.folder.glob("out*")], [])


class Refusals(SampleTest):
    def test_usage(self):
        for arguments, message in (
            (["--classes", "0"], "give exactly one of --checkpoint DIR and --weights FILE; neither is given"),
            (
                ["--checkpoint", "run"],
                "give exactly one of --classes LIST, for images and latents, --frames LIST, for the driving model, "
                "--ask QUESTIONS, for LLaVA, and --images DIR, for VGGT; none is given",
            ),
            (
                ["--chekpoint", "run", "--classes", "0"],
                "--chekpoint: unknown option; did you mean --checkpoint?",
            ),
        ):
            arguments = [*arguments, "--out", "out.png"]
            if "--chekpoint" in arguments:
                arguments = ["--checkpoint", "run", *arguments]
            self.assert_fails(self.sample(*arguments), CONFIGURATION, message)
        self.assert_fails(
            self.sample("--checkpoint", "run", "--classes", "0"),
            CONFIGURATION,
            "--out FILE is missing: write for example --out grid.png",
        )

    def test_values(self):
        run = ("--checkpoint", "run")
        for message, *arguments in (
            (f"--classes: {CLASSES} is no class of this model; allowed: 0 to 3", *run, "--classes", "0,4"),
            ('--classes: no class is called "x"; no names of classes are known here; use their numbers', *run, "--classes", "0,x"),
            ('--steps 0: "0" is not allowed; wanted: an integer in [1, 10000]', *run, "--steps", "0"),
            (
                "--cfg-channels 3: the model has 1 channels; allowed: 0 (all) to 1",
                *run,
                "--cfg-channels",
                "3",
            ),
        ):
            self.assert_refused(CONFIGURATION, message, *arguments)

    def test_frames_of_a_model_of_images(self):
        message = "--frames list.json: the model of run is no driving model; draw samples of its classes with "
        message += "--classes LIST --out FILE"
        arguments = ("--checkpoint", "run", "--frames", "list.json", "--out", "drawn")
        self.assert_fails(self.sample(*arguments), CONFIGURATION, message)
        self.assertFalse((self.folder / "drawn").exists())

    def test_out(self):
        run = ("--checkpoint", "run")
        message = "unknown kind of file; allowed: a name that ends in .png, .safetensors or .npy"
        self.assert_refused(CONFIGURATION, f"--out out.jpg: {message}", *run, out="out.jpg")
        for out in ("gone/out.png", "gone/out.safetensors"):
            message = f"--out {out}: the folder gone does not exist; create it"
            self.assert_refused(CONFIGURATION, message, *run, out=out)

    def test_guidance_without_a_null_label(self):
        self.assert_done(self.train(train__out="plain", model__class_dropout=0, sample__guidance=1))
        self.assert_refused(
            CONFIGURATION,
            "--guidance: this model was trained with class_dropout = 0 and has no null label to guide with; "
            "use --guidance 1",
            *("--checkpoint", "plain", "--guidance", "2"),
        )
        self.drawn("--checkpoint", "plain")

    def test_a_policy_that_cannot_act(self):
        line = 'fp32 = ["last_layer"]'
        text = CONFIG + line + "\n"
        (self.folder / "other.toml").write_text(text)
        message = 'policies.precision.fp32: "last_layer" matches no module of this model; near: final_layer'
        result = self.sample("--checkpoint", "run", "--config", "other.toml", "--classes", "0", "--out", "o.png")
        self.assertEqual(result.returncode, CONFIGURATION)
        place = f"other.toml:{text.count(chr(10))}:8"
        self.assertTrue(result.stderr.startswith(f"dit-sample: {place}: {message}"), result.stderr)
        self.assertFalse((self.folder / "o.png").exists())

    def test_no_checkpoint(self):
        what_to_do = "name a checkpoint's folder, or a run folder to use its latest, or a file with --weights"
        other = f"no such checkpoint in run/checkpoints, which has step-{STEPS:08}"
        self.refuse_checkpoint("run/step-7", f"{other}; {what_to_do}")
        self.refuse_checkpoint("run/config.toml", f"a file, and a checkpoint is a folder; {what_to_do}")
        shutil.rmtree(self.folder / LAST)
        for folder in ("gone", "latest", "run"):
            self.refuse_checkpoint(folder, f"no complete checkpoint in {folder}/checkpoints; {what_to_do}")
        self.refuse_checkpoint(LAST, f"no such folder, and no checkpoint beside it; {what_to_do}")

    def refuse_checkpoint(self, given: str, message: str) -> None:
        self.assert_refused(CONFIGURATION, f"--checkpoint {given}: {message}", "--checkpoint", given)

    def test_a_checkpoint_by_its_step(self):
        whole = self.drawn("--checkpoint", LAST)
        self.assertEqual(self.drawn("--checkpoint", f"run/step-{STEPS}"), whole)

    def assert_damaged(self, damage: str, way_out: str) -> None:
        for folder in ("run", LAST, f"{LAST}/"):
            message = f"{LAST} is a damaged checkpoint:\n  {damage}\n{way_out}"
            self.assert_refused(FAILURE, message, "--checkpoint", folder)

    def test_damaged_checkpoint(self):
        weights = self.folder / LAST / "model.safetensors"
        content = bytearray(weights.read_bytes())
        content[-1] ^= 1
        weights.write_bytes(content)
        changed = "model.safetensors has changed since it was saved (its SHA-256 differs)"
        no_other = "No older checkpoint beside it is whole; bring this one back from a copy, or train anew"
        self.assert_damaged(changed, no_other)
        self.assert_done(self.train(train__out="short", train__steps=10))
        older = "run/checkpoints/step-00000010"
        shutil.copytree(self.folder / older.replace("run", "short"), self.folder / older)
        self.assert_damaged(changed, f"Name the older {older} instead, which is whole")
        (self.folder / LAST / "manifest.json").unlink()
        self.assert_damaged("manifest.json is missing", f"Name the older {older} instead, which is whole")
        self.drawn("--checkpoint", older)

    def test_a_run_without_grids_says_how_dit_sample_draws(self):
        keys = {"sample__guidance": 3.0, "sample__seed": 5}
        for out, per_class in (("none", 0), ("grids", 2)):
            self.assert_done(self.train(train__out=out, sample__per_class=per_class, **keys))
        self.assertFalse((self.folder / "none/samples").exists())
        labels = ",".join(map(str, range(CLASSES)))
        arguments = ("--checkpoint", "none", "--classes", labels, "--per-class", "2", "--out", "o.png")
        self.assert_done(self.sample(*arguments))
        grid = (self.folder / f"grids/samples/step-{STEPS:08}.png").read_bytes()
        self.assertEqual((self.folder / "o.png").read_bytes(), grid)
        self.assert_done(self.sample(*arguments, "--seed", "6"))
        self.assertNotEqual((self.folder / "o.png").read_bytes(), grid)

    def test_weights_without_a_model(self):
        shutil.copy(self.folder / LAST / "model.safetensors", self.folder / "alone.safetensors")
        for message, *arguments in (
            (
                "--weights gone.safetensors: no such file or folder; allowed: a safetensors file, a file of "
                "torch.save, a list of such (*.index.json), or the folder of a checkpoint, a run or adapters",
                *("--weights", "gone.safetensors"),
            ),
            (
                "--weights alone.safetensors: no config.toml beside it says which model this is; "
                "name one with "
                "--config FILE",
                *("--weights", "alone.safetensors"),
            ),
            (
                "gone.toml: this file does not exist; give an existing file with --config",
                *("--weights", "alone.safetensors", "--config", "gone.toml"),
            ),
        ):
            self.assert_refused(CONFIGURATION, message, *arguments)

    def test_weights_of_another_model(self):
        self.assert_done(self.train(train__out="deeper", model__depth=2, model__classes=5))
        deeper = LAST.replace("run", "deeper")
        in_model = "blocks.1.attn.qkv.weight [48, 16], blocks.1.attn.qkv.bias [48], "
        in_model += "blocks.1.attn.proj.weight [16, 16], blocks.1.attn.proj.bias [16] and 6 more\n"
        in_file = '"blocks.1.adaLN_modulation.1.bias" [96], "blocks.1.adaLN_modulation.1.weight" [96, 16], '
        in_file += '"blocks.1.attn.proj.bias" [16], "blocks.1.attn.proj.weight" [16, 16] and 6 more\n'
        shape = "  of another shape (1): y_embedder.embedding_table.weight is [{}, 16], not [{}, 16]\n"
        labels = "  The weights' label table has {0} rows: set model.classes = {1}, or {0} with model.class_dropout = 0 "
        labels += "if none of them is for the null label\n"
        blocks = "  The weights have {} blocks of 16 channels, this model {} of 16; set model.depth and model.hidden, "
        blocks += "or model.name"
        lists = {
            LAST: "missing (10): " + in_model + shape.format(5, 6) + WHAT_TO_DO + labels.format(5, 4),
            deeper: "unknown (10): " + in_file + shape.format(6, 5) + WHAT_TO_DO + labels.format(6, 5),
        }
        for weights, config, counts in ((LAST, deeper, (1, 2)), (deeper, LAST, (2, 1))):
            self.assert_refused(
                CONFIGURATION,
                f"--weights {weights}/model.safetensors: the weights of {weights}/model.safetensors are not those of this model\n  {lists[weights]}"
                + blocks.format(*counts),
                *("--weights", f"{weights}/model.safetensors", "--config", f"{config}/config.toml"),
            )

    def test_a_model_that_does_not_fit_into_memory(self):
        skip_if_sanitized(programs.SAMPLE)
        huge = CONFIG.replace("hidden = 16", "hidden = 65536").replace("depth = 1", "depth = 1024")
        (self.folder / "huge.toml").write_text(huge)
        result = self.sample(
            *(
                "--weights",
                f"{LAST}/model.safetensors",
                "--config",
                "huge.toml",
                "--classes",
                "0",
                "--out",
                "o.png",
            ),
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30)),
        )
        self.assertEqual(result.returncode, MEMORY)
        self.assertRegex(
            result.stderr, r"^dit-sample: out of CPU memory: .* \d{10,} bytes.*; draw fewer samples"
        )
