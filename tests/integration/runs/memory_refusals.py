"""dit-train: runs that do not fit into memory, or into a budget; exit code 3, the advice, and what is left."""

import json
import re
import resource
from pathlib import Path

import programs
from programs import LAST, STEPS, ProgramTest, skip_if_sanitized

CONFIGURATION, MEMORY = 2, 3


class Memory(ProgramTest):
    HUGE = {"model__hidden": 65536, "model__depth": 1024, "model__heads": 64}
    GENERAL = (
        "lower data.batch, raise train.accumulate, switch on policies that are off, raise memory.budget where it is "
        "set, or use a smaller model"
    )
    STATE = (
        r"the state alone takes [\d.]+ \w+ \(parameters [\d.]+ \w+, gradients [\d.]+ \w+, both Adam moments [\d.]+ "
        r"\w+, EMA [\d.]+ \w+\), whatever the batch: "
    )
    SMALLER = r"use a smaller model \(model\.name, or model\.depth and model\.hidden\)"

    def setUp(self):
        super().setUp()
        skip_if_sanitized(programs.TRAIN)

    @staticmethod
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))

    def test_a_model_whose_plan_does_not_fit_is_refused(self):
        result = self.train(options={"preexec_fn": self.limit}, **self.HUGE)
        self.assertEqual(result.returncode, MEMORY)
        self.assertRegex(
            result.stderr,
            r"^dit-train: dit-plan: this machine cannot hold the plan itself: out of address space, which ulimit -v may "
            r"limit: \d{10,} bytes asked for by aten::empty with \d+ bytes alive \(temporaries \d+\), "
            r"so it cannot hold the run; use a "
            r'smaller model or data\.batch, or set memory\.on_over_budget = "warn" to start it all the same\n$',
        )
        self.assertFalse((self.folder / "run").exists())

    def test_a_model_that_does_not_fit(self):
        for precision in ("fp32", "default"):  # with the second, the measurement is the first to build it
            values = {**self.HUGE, "policies__precision__cpu": precision, "memory__on_over_budget": "warn"}
            result = self.train(options={"preexec_fn": self.limit}, **values)
            self.assertEqual(result.returncode, MEMORY)
            self.assertRegex(
                result.stderr,
                r"^dit-train: out of CPU memory: \d{10,} bytes asked for by model in phase build with \d+ bytes alive "
                r"\(parameters \d+\); " + self.STATE + self.SMALLER + "\n$",
            )
            memory = json.loads((self.folder / "run/memory.json").read_text())
            self.assertEqual(memory["refused"]["phase"], "build")
            self.assertGreater(memory["refused"]["bytes"], 10**9)

    def test_a_model_that_does_not_fit_without_the_ledger(self):
        values = {**self.HUGE, "memory__ledger": "false", "memory__on_over_budget": "warn"}
        result = self.train(options={"preexec_fn": self.limit}, **values)
        self.assertEqual(result.returncode, MEMORY)
        self.assertRegex(
            result.stderr,
            r"^dit-train: out of CPU memory: an allocation of \d{10,} bytes was refused; " + self.STATE + self.SMALLER + "\n$",
        )


class Budget(ProgramTest):
    MESSAGE = r"^dit-train: memory budget of {} bytes exceeded: \d+ bytes asked for by {} with \d+ bytes alive \({}\); {}"
    UNPLANNED = r"raise memory\.budget \(dit-plan says what the whole run takes\)"
    UNITS = r'; a number alone is bytes: larger sizes have a unit, such as "2GB" or "1\.5 GiB"'

    # By its plan each of these would be refused at the start.
    def train_all_the_same(self, **values):
        return self.train(memory__on_over_budget="warn", **values)

    def assert_exceeded(self, budget: str, size: int, asked_by: str, alive: str, advice: str) -> None:
        result = self.train_all_the_same(memory__budget=budget)
        self.assertEqual(result.returncode, MEMORY, result.stderr)
        self.assertRegex(result.stderr, self.MESSAGE.format(size, asked_by, alive, advice) + "\n$")
        self.assertEqual([line["event"] for line in self.log()], ["start", "out_of_memory"])
        self.assertEqual(self.checkpoints(), [])
        memory = json.loads((self.folder / "run/memory.json").read_text())
        self.assertLessEqual(memory["refused"]["alive_bytes"], size)
        self.assertGreater(memory["refused"]["alive_bytes"] + memory["refused"]["bytes"], size)
        self.assertIn("It did not fit: ", (self.folder / "run/report.html").read_text())

    def test_a_model_above_it(self):
        advice = Memory.STATE + self.UNPLANNED + " or " + Memory.SMALLER
        advice += self.UNITS
        self.assert_exceeded("10kB", 10000, "model in phase build", r"parameters \d+", advice)
        self.assert_done(self.train(memory__budget="1 MB"))

    def test_a_step_above_it(self):
        owners = r"parameters \d+, (?:gradients \d+, )?optimizer \d+, ema \d+, saved \d+, data \d+, temporaries \d+"
        self.assert_exceeded("220 kB", 220000, r"(?:aten|dtk)::\w+ in phase first_step at [\w.]+", owners, self.STEP.format(self.LOWER, self.UNPLANNED))
        result = self.train(memory__budget="400 kB")
        self.assert_done(result)
        self.assertIn(
            "\nrun holds an earlier start that came to no step; this run takes its place\n", result.stdout
        )
        self.assertIn("\nbudget = 400000  # --set\n", (self.folder / "run/config.toml").read_text())
        memory = json.loads((self.folder / "run/memory.json").read_text())
        self.assertNotIn("refused", memory)
        self.assertGreater(memory["peak"]["bytes"], 220000)
        self.assertLessEqual(memory["peak"]["bytes"], 400000)

    def test_a_step_above_it_goes_on_with_what_by_its_plan_fits(self):
        values = {
            "model__depth": 4,
            "model__patch": 2,
            "data__batch": 32,
            "sample__per_class": 0,
            "policies__checkpoint__enabled": "false",
        }
        self.assert_done(self.train(**values))
        peak = json.loads((self.folder / "run/memory.json").read_text())["peak"]["bytes"]
        values |= {"memory__budget": peak * 3 // 4, "memory__on_out_of_memory": "escalate", "train__out": "less"}
        result = self.train_all_the_same(**values)
        self.assert_done(result)
        self.assertRegex(
            result.stdout,
            r"\nstep 1 was refused memory and is taken back, nothing of it remains: memory budget of \d+ bytes exceeded: "
            r"[^;]+; the run goes on from less/checkpoints/step-00000000 with policies\.checkpoint\.enabled = \"default\" "
            r"\(planned peak \d+ bytes in phase \w+, of \d+ that there are\)\n",
        )
        memory = json.loads((self.folder / "less/memory.json").read_text())
        self.assertEqual(memory["peak"]["bytes"], memory["escalations"][0]["planned_bytes"])
        self.assertEqual(memory["escalations"][0]["room_bytes"], peak * 3 // 4)

    NOT_KNOWN = r"; not known, and counted as 0: scratch of \d+ operators \(dit-plan --device cpu says more\)"
    PLANNED = (
        r"the run needs (\d+) bytes \([\d.]+ KiB\) of tensors on cpu in phase (\w+), and memory\.budget is {} \({}\); "
    )
    RAISE = r"set memory\.budget = (\d+) or more"
    LOWER = r"lower data\.batch or raise train\.accumulate"
    FITS = r"set data\.batch = [1-7], which by its plan fits"
    STEP = (
        r"the state takes [\d.]+ KiB, the rest is a step's: {} \(a pass takes 8 samples at a time\), {} or use a smaller "
        r"model"
    )
    ALL_THE_SAME = (
        "; dit-plan --explain says what each policy would change; set memory.on_over_budget = \"warn\" to start the "
        "run all the same\n"
    )

    def test_a_state_that_cannot_fit_by_its_plan_is_told_from_a_step(self):
        result = self.train(memory__budget="2")
        self.assertEqual(result.returncode, MEMORY, result.stderr)
        advice = Memory.STATE + self.RAISE + " or " + Memory.SMALLER + self.UNITS
        self.assertRegex(
            result.stderr,
            "^dit-train: " + self.PLANNED.format(2, "2 B") + advice + re.escape(self.ALL_THE_SAME) + "$",
        )

    def test_what_cannot_fit_by_its_plan_is_refused_before_data_are_read(self):
        values = {"memory__budget": "220 kB", "data__images": "no-such-file"}
        result = self.train(**values)
        self.assertEqual(result.returncode, MEMORY, result.stderr)
        refused = re.fullmatch(
            "dit-train: "
            + self.PLANNED.format(220000, "214\\.8 KiB")
            + self.STEP.format(self.FITS, self.RAISE)
            + re.escape(self.ALL_THE_SAME),
            result.stderr,
        )
        self.assertIsNotNone(refused, result.stderr)
        self.assertFalse((self.folder / "run").exists())
        # The figure is the one that a run then has, and within the advised budget it fits.
        self.assertEqual(refused[3], refused[1])
        result = self.train(memory__budget=refused[3])
        self.assert_done(result)
        peak = json.loads((self.folder / "run/memory.json").read_text())["peak"]
        self.assertEqual((int(refused[1]), refused[2]), (peak["bytes"], peak["phase"]))

    def test_where_no_batch_fits_with_so_many_passes_fewer_passes_are_advised(self):
        values = {"data__batch": 64, "train__accumulate": 2, "policies__checkpoint__enabled": "false", "memory__budget": 222_000}
        result = self.train(**values)
        self.assertEqual(result.returncode, MEMORY, result.stderr)
        advice = "set data.batch = 1 with train.accumulate = 1, which by its plan fits (a pass takes 32 samples at a time)"
        self.assertIn(f"the rest is a step's: {advice}, ", result.stderr)
        self.assert_done(self.train(**values | {"data__batch": 1, "train__accumulate": 1}))

    def test_a_precision_that_alone_fits_by_its_plan_is_taken_without_a_trial_step(self):
        values = {"policies__precision__cpu": "probe"}
        refused = self.train(memory__budget="220 kB", **values)
        self.assertEqual(refused.returncode, MEMORY, refused.stderr)
        smaller = re.search(self.RAISE, refused.stderr)[1]
        result = self.train(memory__budget=smaller, **values)  # with the scratch of its kernels
        chosen = re.search(
            r"^precision on this CPU, (planned: (\w+) needs (\d+) of (\d+) bytes); taken: (\w+)$", result.stdout, re.M
        )
        self.assertIsNotNone(chosen, result.stdout)
        self.assertEqual({chosen[2], chosen[5]}, {"fp32", "bf16"})
        self.assertGreater(int(chosen[3]), int(chosen[4]))
        self.assertEqual(chosen[4], smaller)
        has_bf16 = re.search(r"\b(?:avx512_bf16|amx_bf16)\b", Path("/proc/cpuinfo").read_text())
        slow = "\nbf16 is taken as only that fits; this CPU has no instructions for it, so a step takes several times as long"
        self.assertEqual(slow in result.stdout, chosen[5] == "bf16" and not has_bf16)
        saved = (self.folder / "run/config.toml").read_text()
        self.assertIn(f'\ncpu = "{chosen[5]}"  # {chosen[1]}\n', saved)
        result = self.train(memory__budget=chosen[3], train__out="both", **values)  # has room for both
        self.assertIn("\nprecision on this CPU, measured: ", result.stdout)

    def test_a_larger_budget_is_no_advice_where_the_machine_has_not_as_much(self):
        # Too large for its kernels to be measured.
        large = {"model__hidden": 16384, "model__depth": 64, "model__heads": 64}  # 3 TB with gradients and moments
        available = r"what is available is \d+ \([\d.]+ \w+\)"
        for budget, limits in (("900TB", available), ("1GB", r"memory\.budget is 1000000000 \([\d.]+ \w+\) and " + available)):
            result = self.train(memory__budget=budget, **large)
            self.assertEqual(result.returncode, MEMORY, result.stderr)
            self.assertRegex(
                result.stderr,
                r"^dit-train: the run needs at least \d{13,} bytes \([\d.]+ \w+\) of tensors on cpu in phase \w+, and "
                + limits + self.NOT_KNOWN + "; " + Memory.STATE + Memory.SMALLER + re.escape(self.ALL_THE_SAME) + "$",
            )
            self.assertFalse((self.folder / "run").exists())

    def test_a_warning_comes_before_the_first_step(self):
        result = self.train_all_the_same(memory__budget="220 kB")
        self.assertEqual(result.returncode, MEMORY, result.stderr)
        line = r"\nplanned peak [\d.]+ KiB in first_step on cpu; [\d.]+ \w+ available\n"
        self.assertRegex(result.stdout, line)
        self.assertRegex(result.stdout, "\nwarning: " + self.PLANNED.format(220000, "214\\.8 KiB") + self.STEP.format(self.LOWER, self.RAISE) + "; the run begins, and ends where a tensor would exceed it\n")

    def test_a_budget_that_the_run_fits_into_is_enough_to_resume_it(self):
        model = {"model__hidden": 64, "model__depth": 2, "sample__per_class": 0}
        self.assert_done(self.train(**model))
        peak = json.loads((self.folder / "run/memory.json").read_text())["peak"]["bytes"]
        more = {**model, "train__steps": 2 * STEPS, "memory__budget": peak}
        self.assert_done(self.train("--resume", "latest", **more))
        resumed = json.loads((self.folder / "run/memory.json").read_text())["peak"]
        self.assertEqual(resumed["bytes"], peak)
        self.assertNotEqual(resumed["phase"], "build")

    def test_samples_that_do_not_fit_take_nothing_of_the_report_away(self):
        result = self.train_all_the_same(memory__budget="300 kB", sample__per_class=64)
        self.assertEqual(result.returncode, MEMORY, result.stderr)
        self.assertRegex(
            result.stderr,
            r"^dit-train: memory budget of 300000 bytes exceeded: .*; the training is complete and saved, its samples "
            r"were not made; lower sample\.per_class, raise memory\.budget if it is set, or make fewer at a time with "
            r"dit-sample --checkpoint run/checkpoints/step-\d+ --classes .* --out run/samples/step-\d+\.png\n$",
        )
        self.assertIn("\nfinal loss ", result.stdout)
        self.assertEqual(self.log()[-1]["event"], "end")
        self.assertTrue((self.folder / "run/memory.json").exists())

    def test_it_is_no_part_of_the_result_and_may_change_on_resume(self):
        self.copy_finished_run()
        self.assert_done(self.train(memory__budget="1 MB", train__out="within"))
        self.assert_same_state(LAST, LAST.replace("run", "within"))
        self.assert_done(self.train("--resume", "latest", memory__budget="1 MB", train__steps=STEPS + 1))

    def test_without_the_ledger_it_is_refused(self):
        self.assert_fails(
            self.train(memory__budget="1 MB", memory__ledger="false"),
            CONFIGURATION,
            "--set memory.budget=1 MB: memory.budget needs the ledger, and memory.ledger = false; remove one of "
            "them",
        )
        self.assertFalse((self.folder / "run").exists())
