"""dit-train and dit-sample with each objective: from a configuration to samples, and what is refused on the way."""

from programs import CLASSES, LAST, SIDE, STEPS, ProgramTest, execute, read_safetensors
import programs
from png import read_png

CONFIGURATION = 2
EVERY_CLASS = ",".join(str(label) for label in range(CLASSES))
GRID = f"samples/step-{STEPS:08}.png"
OBJECTIVES = {  # learn_sigma, default sampler, another one
    "rectified_flow": ("false", "euler", "heun"),
    "epsilon": ("true", "ddpm", "ddim"),
    "v": ("false", "ddim", "ddpm"),
    "x0": ("false", "ddim", "ddpm"),
}


class ObjectiveTest(ProgramTest):
    def train_with(self, objective: str, out: str = "run", **values) -> None:
        # The file writes learn_sigma = false, which is to be as the objective has it.
        values = {"diffusion__objective": objective, "model__learn_sigma": "default", "train__out": out, **values}
        self.assert_done(self.train(**values))

    def draw(self, *arguments: str, out: str = "grid.png") -> bytes:
        self.assert_done(
            self.sample("--checkpoint", "run", "--classes", EVERY_CLASS, "--per-class", "2", "--out", out, *arguments)
        )
        return (self.folder / out).read_bytes()

    def assert_refused(self, message: str, *arguments: str) -> None:
        given = ("--checkpoint", "run", "--classes", "0", "--out", "out.png", *arguments)
        self.assert_fails(self.sample(*given), CONFIGURATION, message)
        self.assertFalse((self.folder / "out.png").exists())


class WholeRuns(ObjectiveTest):
    def test_each_objective_trains_saves_and_samples(self):
        for objective, (learn_sigma, sampler, other) in OBJECTIVES.items():
            with self.subTest(objective):
                self.setUp()
                self.train_with(objective)
                losses = [line["loss"] for line in self.log() if line["event"] == "step"]
                self.assertEqual(len(losses), 2 + STEPS // 5)
                self.assertTrue(all(0 < loss < 20 for loss in losses), losses)
                saved = (self.folder / "run/config.toml").read_text()
                self.assertIn(f"\nlearn_sigma = {learn_sigma}  # ", saved)
                self.assertIn(f'\nsampler = "{sampler}"  # default: usual with objective {objective}\n', saved)
                width, height, pixels = read_png(self.folder / "run" / GRID)
                self.assertEqual((width, height), (2 * (2 * SIDE + 2) + 2, CLASSES * (2 * SIDE + 2) + 2))
                self.assertGreater(len(set(pixels)), 4)  # after so few steps most are black or white
                own = (self.folder / "run" / GRID).read_bytes()
                self.assertEqual(self.draw(), own)
                self.assertEqual(self.draw("--sampler", sampler), own)
                self.assertNotEqual(self.draw("--sampler", other), own)
                self.assertNotEqual(self.draw("--steps", "7"), own)

    def test_the_saved_configuration_gives_the_same_run(self):
        self.train_with("epsilon", sample__respacing="2,2", sample__sampler="ddim", sample__eta="0.5")
        arguments = ["--config", "run/config.toml", "--set", "train.out=again", "--device", "cpu"]
        self.assert_done(execute(programs.TRAIN, self.folder, *arguments))
        self.assert_same_state(LAST, LAST.replace("run", "again"))
        self.assertEqual(
            (self.folder / "run" / GRID).read_bytes(), (self.folder / "again" / GRID).read_bytes()
        )

    def test_a_resumed_run_is_bit_equal(self):
        values = {"diffusion__objective": "epsilon", "model__learn_sigma": "default", "train__checkpoint_every": 10}
        self.assert_done(self.train(**values))
        self.assert_done(
            self.train("--resume", "run/checkpoints/step-00000010", train__out="branch", **values)
        )
        self.assert_same_state(LAST, LAST.replace("run", "branch"))
        self.assertEqual(
            (self.folder / "run" / GRID).read_bytes(), (self.folder / "branch" / GRID).read_bytes()
        )

    def test_another_objective_cannot_go_on_from_a_checkpoint(self):
        self.train_with("v")
        result = self.train(
            "--resume", "latest", diffusion__objective="x0", model__learn_sigma="default", train__steps=STEPS + 1
        )
        self.assert_fails(
            result,
            CONFIGURATION,
            f"checkpoint {LAST} cannot go on so:\n"
            '  diffusion.objective: "v" in the checkpoint, "x0" now; the weights were trained with it\n'
            f"use its own values ({LAST}/config.toml), or start a new run in another train.out",
        )


class Samplers(ObjectiveTest):
    def test_options_of_the_diffusion(self):
        self.train_with("epsilon")
        own = self.draw()
        eight = self.draw("--steps", "8")
        self.assertEqual(self.draw("--respacing", "8"), eight)
        self.assertEqual(self.draw("--respacing", "8", "--steps", "8"), eight)
        self.assertNotEqual(eight, own)
        self.assertNotEqual(self.draw("--respacing", "5,3"), eight)
        self.assertNotEqual(self.draw("--clip-x0", "true"), own)
        self.assertEqual(self.draw("--clip-x0", "false"), own)
        ddim = self.draw("--sampler", "ddim")
        self.assertEqual(self.draw("--sampler", "ddim", "--eta", "0"), ddim)
        self.assertNotEqual(self.draw("--sampler", "ddim", "--eta", "0.5"), ddim)

    def test_what_the_run_says_of_another_sampler_is_left(self):
        self.train_with("v", sample__eta="0.5", sample__respacing="ddim4")
        ddpm = self.draw("--sampler", "ddpm")
        self.assertEqual(self.draw("--sampler", "ddpm", "--respacing", "ddim4"), ddpm)
        self.assertNotEqual(self.draw("--sampler", "ddpm", "--steps", "4"), ddpm)

    def test_samples_do_not_depend_on_the_micro_batch(self):
        self.train_with("epsilon")
        files = {}
        for batch in (8, 3):
            text = (self.folder / "run/config.toml").read_text()
            (self.folder / "other.toml").write_text(text.replace("batch = 8", f"batch = {batch}"))
            self.draw("--config", "other.toml", out=f"{batch}.safetensors")
            shape, content = read_safetensors(self.folder / f"{batch}.safetensors")["samples"]
            self.assertEqual(shape, [2 * CLASSES, 1, SIDE, SIDE])
            files[batch] = memoryview(content).cast("f")
        largest = max(map(abs, files[8]))
        worst = max(abs(a - b) for a, b in zip(files[8], files[3]))
        self.assertLess(worst, 1e-4 * largest)


class Refusals(ObjectiveTest):
    def test_of_dit_sample_for_rectified_flow(self):
        self.copy_finished_run()
        for message, *arguments in (
            (
                "--sampler ddim: this model was trained with objective rectified_flow; allowed: euler or heun",
                *("--sampler", "ddim"),
            ),
            ("--eta has no use with the sampler euler; remove it", "--eta", "0.5"),
            ("--clip-x0 has no use with the sampler euler; remove it", "--clip-x0", "false"),
            (
                "--respacing has no use with the sampler heun; remove it",
                *("--sampler", "heun", "--respacing", "ddim50"),
            ),
        ):
            self.assert_refused(message, *arguments)

    def test_of_dit_sample_for_a_diffusion(self):
        self.train_with("epsilon")
        for message, *arguments in (
            (
                "--sampler euler: this model was trained with objective epsilon; allowed: ddpm or ddim",
                *("--sampler", "euler"),
            ),
            ("--eta has no use with the sampler ddpm; remove it, or use --sampler ddim", "--eta", "0.5"),
            (
                "--steps 1001: ddpm goes through steps of the diffusion; allowed: 2 to 1000",
                *("--steps", "1001"),
            ),
            ("--steps 1: ddpm goes through steps of the diffusion; allowed: 2 to 1000", "--steps", "1"),
            (
                "--steps 40 does not agree with --respacing 10,15,20, which gives 45 steps; remove one of them",
                *("--steps", "40", "--respacing", "10,15,20"),
            ),
            (
                "--respacing ddim300: no whole stride through 1000 steps takes 300 of them; the nearest are ddim250 "
                "and ddim334",
                *("--respacing", "ddim300"),
            ),
        ):
            self.assert_refused(message, *arguments)

    def test_of_dit_train(self):
        result = self.train(diffusion__objective="epsilon", sample__sampler="euler")
        self.assert_fails(
            result,
            CONFIGURATION,
            '--set sample.sampler=euler: sample.sampler = "euler" does not draw from a model of diffusion.objective = '
            '"epsilon"; allowed: ddpm or ddim; remove it to have the first, or change diffusion.objective',
        )
        self.assertFalse((self.folder / "run").exists())
