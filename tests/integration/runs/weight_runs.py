"""Weights between programs: dit-train begins with given ones, dit-export writes those of a run."""

import programs
from programs import LAST, STEPS, WHAT_TO_DO, ProgramTest, execute, read_safetensors

CONFIGURATION, DATA = 2, 4



ALLOWED = "allowed: a safetensors file, a file of torch.save, a list of such (*.index.json), or the folder of a checkpoint, a run or adapters"
AGAIN = "; get the file again, or write it again"
NO_WEIGHTS = {  # content by name, and what is said of it
    "bad": (b"no weights", f"no file of weights; {ALLOWED}; name one of these"),
    "bad.pt": (
        b"no weights",
        f"it does not begin as a file of torch.save does, so it is damaged; {ALLOWED}; get the file again, or name "
        "another",
    ),
    "bad.safetensors": (
        b"no weights",
        f"it does not begin as a safetensors file does, so it is damaged; {ALLOWED}; get the file again, or name "
        "another",
    ),
    "cut.pt": (
        b"PK\x03\x04",
        "cut.pt: no zip directory at the end of the file, so it is cut off, or not a file of torch.save"
        f"{AGAIN} with torch.save",
    ),
    "cut.safetensors": (
        b"d\0\0\0\0\0\0\0{",
        "cut.safetensors: the header length is 100 bytes, but only 1 follow: the file is truncated or damaged" + AGAIN,
    ),
}


class WeightTest(ProgramTest):
    def setUp(self):
        super().setUp()
        self.copy_finished_run()

    def export(self, *arguments: str, out: str = "out.safetensors"):
        return execute(programs.EXPORT, self.folder, "--out", out, *arguments)

    def tensors(self, path: str) -> dict:
        return read_safetensors(self.folder / path)


class Export(WeightTest):
    def test_writes_the_averages_or_the_raw_weights_of_a_run(self):
        averages, raw = self.tensors(f"{LAST}/ema.safetensors"), self.tensors(f"{LAST}/model.safetensors")
        self.assertNotEqual(averages["blocks.0.attn.qkv.weight"], raw["blocks.0.attn.qkv.weight"])
        for source in ("run", LAST):
            result = self.export("--checkpoint", source)
            self.assert_done(result)
            self.assertEqual(result.stdout, f"22 tensors of the EMA weights of {LAST}: out.safetensors\n")
            table = {"pos_embed": raw["pos_embed"]}
            self.assertEqual(self.tensors("out.safetensors"), {**averages, **table})
            again = self.export("--checkpoint", source, "--raw")
            message = "--out out.safetensors: there is such a file; name another one, or replace it with --overwrite"
            self.assert_fails(again, 2, message)
            self.assertEqual(self.tensors("out.safetensors"), {**averages, **table})
            result = self.export("--checkpoint", source, "--raw", "--overwrite")
            self.assert_done(result)
            self.assertEqual(result.stdout, f"22 tensors of the raw weights of {LAST}: out.safetensors\n")
            self.assertEqual(self.tensors("out.safetensors"), raw)
            (self.folder / "out.safetensors").unlink()

    def test_what_it_writes_can_be_written_again(self):
        self.assert_done(self.export("--checkpoint", "run", out="a.pt"))
        for source, out in (("a.pt", "b.safetensors"), ("b.safetensors", "c.pt"), ("c.pt", "d.safetensors")):
            self.assert_done(self.export("--checkpoint", source, "--config", "tiny.toml", out=out))
        self.assertEqual((self.folder / "a.pt").read_bytes(), (self.folder / "c.pt").read_bytes())
        self.assertEqual(
            (self.folder / "b.safetensors").read_bytes(), (self.folder / "d.safetensors").read_bytes()
        )

    def test_refusals(self):
        (self.folder / "alone.pt").write_bytes(b"")
        for code, message, *arguments in (
            (
                CONFIGURATION,
                "--checkpoint is missing: write for example dit-export --checkpoint runs/mine --out mine.pt",
            ),
            (
                CONFIGURATION,
                f"--checkpoint gone: no such file or folder; {ALLOWED}",
                *("--checkpoint", "gone"),
            ),
            (
                DATA,
                f"--checkpoint alone.pt: it does not begin as a file of torch.save does, so it is damaged; {ALLOWED}; "
                "get the file again, or name another",
                *("--checkpoint", "alone.pt"),
            ),
            (
                CONFIGURATION,
                f"--key best: no weights in {LAST} have this key; allowed: \"ema\" and \"model\", its raw weights",
                *("--checkpoint", "run", "--key", "best"),
            ),
        ):
            self.assert_fails(self.export(*arguments), code, message)
            self.assertFalse((self.folder / "out.safetensors").exists())
        self.assert_fails(
            self.export("--checkpoint", "run", out="gone/out.pt"),
            CONFIGURATION,
            "--out gone/out.pt: the folder gone does not exist; create it",
        )


class InitFrom(WeightTest):
    def test_a_run_begins_with_the_weights_of_another_and_says_so(self):
        self.assert_done(self.export("--checkpoint", "run", out="a.pt"))
        averages = self.tensors(f"{LAST}/ema.safetensors")
        for source, name in (
            ("run", f"the EMA weights of {LAST}"),
            ("a.pt", "the weights of a.pt"),
            (f"{LAST}/ema.safetensors", f"the weights of {LAST}/ema.safetensors"),
        ):
            out = f"from-{source.split('/')[0]}-{len(source)}"
            result = self.train(train__out=out, train__init_from=source, optimizer__lr=1e-60, train__steps=2)
            self.assert_done(result)
            self.assertIn(f"\nbegins with {name}\n", result.stdout)
            seen = self.tensors(f"{out}/checkpoints/step-00000002/model.safetensors")
            seen.pop("pos_embed")
            self.assertEqual(seen, averages)
            self.assertEqual(self.tensors(f"{out}/checkpoints/step-00000002/ema.safetensors"), averages)

    def test_what_it_learnt_is_not_lost(self):
        longer = {"train__steps": 400, "optimizer__lr": 3e-3, "train__log_every": 20}
        self.assert_done(self.train(train__out="first", **longer))
        self.assert_done(self.train(train__out="second", train__init_from="first", train__steps=20))
        first, second = (  # means of several steps
            [line["loss"] for line in self.log(run) if line["event"] == "step" and line["step"] >= since]
            for run, since in (("first", 20), ("second", 5))
        )
        self.assertLess(max(second), min(first[:2]))

    def test_refusals_name_the_place(self):
        self.assert_fails(
            self.train(train__out="new", train__init_from="gone.pt"),
            CONFIGURATION,
            '--set train.init_from=gone.pt: train.init_from = "gone.pt": no such file or folder; allowed: a '
            "safetensors file, a file of torch.save, a list of such (*.index.json), or the folder of a checkpoint, a run or adapters",
        )
        self.assert_fails(
            self.train(train__out="new", train__init_from="run", model__classes=5),
            CONFIGURATION,
            f'--set train.init_from=run: train.init_from = "run": the EMA weights of {LAST} are not those of this model\n'
            "  of another shape (1): y_embedder.embedding_table.weight is [5, 16], not [6, 16]\n"
            f"{WHAT_TO_DO}"
            "  The weights' label table has 5 rows: set model.classes = 4, or 5 with model.class_dropout = 0 if none "
            "of them is for the null label",
        )
        self.assertFalse((self.folder / "new").exists())

    def test_a_bad_file_is_named_with_its_key_or_option(self):
        for name, (content, message) in NO_WEIGHTS.items():
            with self.subTest(name):
                (self.folder / name).write_bytes(content)
                self.assert_fails(
                    self.train(train__out="new", train__init_from=name),
                    DATA,
                    f'--set train.init_from={name}: train.init_from = "{name}": {message}',
                )
                self.assertFalse((self.folder / "new").exists())
                drawn = self.sample("--weights", name, "--config", "tiny.toml", "--classes", "0", "--out", "o.png")
                self.assert_fails(drawn, DATA, f"--weights {name}: {message}")
                self.assertFalse((self.folder / "o.png").exists())

    def test_a_resumed_run_has_no_use_for_the_file(self):
        self.assert_done(self.export("--checkpoint", "run", out="a.pt"))
        self.assert_done(self.train(train__out="new", train__init_from="a.pt"))
        (self.folder / "a.pt").unlink()
        values = {"train__out": "new", "train__steps": STEPS + 2}
        result = self.train("--resume", "latest", train__init_from="a.pt", **values)
        self.assert_done(result)
        self.assertIn(
            "\ntrain.init_from is where this run once began; it goes on from its checkpoint\n", result.stdout
        )
        result = self.train("--resume", "latest", **values)
        self.assertEqual(result.returncode, CONFIGURATION)
        self.assertIn('  train.init_from: "a.pt" in the checkpoint, "" now; a run begins with weights once\n', result.stderr)
