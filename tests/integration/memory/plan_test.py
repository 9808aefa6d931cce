"""plan_test.py DIT_PLAN DIT_TRAIN SOURCE: dit-plan as a user meets it: exit codes, messages, the sums of its JSON, its
searches checked by planning again, the README's commands, and a short run beside its plan."""

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PLAN = TRAIN = SOURCE = Path()


def plan(*arguments: str, code: int = 0, **options) -> tuple[str, str]:
    result = subprocess.run(
        [str(PLAN), *arguments], cwd=SOURCE, capture_output=True, text=True, timeout=120, **options
    )
    if result.returncode != code:
        raise AssertionError(f"exit {result.returncode}, wanted {code}\n{result.stdout}\n{result.stderr}")
    return result.stdout, result.stderr


class MeasuredPlan:
    """A plan's report, the processors' time it took and the most memory that its process had."""

    def __init__(self, *arguments: str) -> None:
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen([str(PLAN), *arguments], cwd=SOURCE, stdout=output)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            self.seconds = usage.ru_utime + usage.ru_stime
            self.max_kib = usage.ru_maxrss
            if process.returncode != 0:
                raise AssertionError(f"exit {process.returncode}")
            output.seek(0)
            self.report = json.loads(output.read())


def settings(**values: object) -> list[str]:
    return [word for key, value in values.items() for word in ("--set", f"{key.replace('__', '.')}={value}")]


BASE = ["--config", "configs/base.toml"]
XL2 = ["--config", "configs/dit_xl2_latents.toml"]


class Plans(unittest.TestCase):
    maxDiff = None

    def peak(self, *arguments: str) -> int:
        return json.loads(plan(*arguments, "--json")[0])["peak"]["bytes"]

    def check_sums(self, report: dict, total: int) -> None:
        self.assertEqual(sum(report["categories"].values()), total)
        for category, items in report["items"].items():
            self.assertEqual(sum(items.values()), report["categories"][category])

    def test_every_shipped_configuration_is_planned_for_its_devices(self):
        paths = sorted((SOURCE / "configs").glob("*.toml"))
        self.assertGreaterEqual(len(paths), 5)
        for path in paths:
            # Nobody trains 7 and 13 billion parameters on a CPU, and their plans take as long as all others.
            devices = ("cuda",) if path.name.startswith(("llava_7b", "llava_13b")) else ("cuda", "cpu")
            for device in devices:
                with self.subTest(path.name, device=device):
                    # What nobody trains is planned to infer.
                    infers = [] if path.name != "vggt_1b.toml" else ["--infer", "--frames", "10"]
                    report = json.loads(plan("--config", str(path), "--device", device, "--json", *infers)[0])
                    self.assertEqual(report["device"], "cuda:0" if device == "cuda" else "cpu")
                    self.assertEqual(report["peak"]["bytes"], max(p["peak_bytes"] for p in report["phases"]))
                    self.check_sums(report["peak"], report["peak"]["bytes"])
                    self.check_sums(report["host"], report["host"]["peak_bytes"])
                    for phase in report["phases"]:
                        self.check_sums(phase, phase["peak_bytes"])
                    saved = report["peak"]["categories"].get("saved", 0)
                    self.assertEqual(sum(report["plan"]["saved_by_operator"].values()), saved)

    def test_the_plain_report(self):
        text, errors = plan(*XL2)
        self.assertEqual(errors, "")
        lines = text.splitlines()
        self.assertEqual(
            lines[0], "configs/dit_xl2_latents.toml on cuda:0, data.batch = 256 in 2 micro-batches of 128: planned, nothing was computed"
        )
        self.assertEqual(lines[1], "verdict    needs 16.91 GiB with what the device adds; fits a card of 24 GB;")
        self.assertEqual(lines[2], "           unknown, and not counted: convolution workspaces and kernel scratch")
        for line, start in zip(lines[3:6], ("peak", "runner-up", "host"), strict=True):
            self.assertRegex(line, rf"^{start} +\d+\.\d+ GiB \(\d+ bytes\) in phase [a-z_]+$")
        self.assertTrue(all(len(line) <= 80 for line in lines[1:]), text)
        self.assertIn("by operator: ", text)

    def test_the_table_is_sorted_and_complete(self):
        text = plan(*BASE, "--table")[0]
        rows = [line.split() for line in text.splitlines() if re.match(r"(on|off)  ", line)]
        self.assertEqual(len({tuple(row[:5]) for row in rows}), 32)
        table = json.loads(plan(*BASE, "--table", "--json")[0])
        self.assertEqual(len(table), 32)
        peaks = [row["peak"]["bytes"] for row in table]
        self.assertEqual(peaks, sorted(peaks))
        for row in table:
            self.check_sums(row["peak"], row["peak"]["bytes"])
        on = {tuple(policy["active"] for policy in row["policies"]): row["peak"]["bytes"] for row in table}
        # On CUDA fused operators run where they are asked for.
        self.assertEqual(on[(True, True, False, True, True)], self.peak(*BASE))
        self.assertEqual(on[(True,) * 5], self.peak(*BASE, *settings(policies__fusion__cuda="true")))
        off = settings(policies__precision__enabled="false", policies__attention__enabled="false",
                       policies__ema__device="same", policies__checkpoint__enabled="false")
        self.assertEqual(on[(False,) * 5], self.peak(*BASE, *off))

    def test_one_unit_throughout(self):
        for job in ((*BASE,), (*XL2,), (*XL2, "--table"), (*BASE, "--max-batch", "2GB"), (*BASE, "--device", "cpu")):
            text = plan(*job)[0]
            units = set(re.findall(r"\b(?:KiB|MiB|GiB)\b", text))
            self.assertEqual(len(units), 1, (job, units, text))
            self.assertNotRegex(text, r"\s-(\s|$)")  # what is off says so, and nothing is 0

    def test_other_choices_come_before_the_long_tables(self):
        text = plan(*BASE, "--explain")[0]
        places = [text.index(heading) for heading in ("\na step ", "\nother choices for policies.checkpoint", "\nat the peak, ",
                                                      "\npeak memory by phase", "\nwhat each policy changes")]
        self.assertEqual(places, sorted(places))

    def test_half_the_batch_lowers_the_peak_by_what_is_said_at_the_most(self):
        for job, half in ((XL2, 128), ((*BASE, "--device", "cpu"), 8)):
            said = re.search(r"([\d,]+)  half the batch", plan(*job, "--explain")[0])
            most = int(said[1].replace(",", ""))
            lowered = self.peak(*job) - self.peak(*job, *settings(data__batch=half))
            self.assertLessEqual(lowered, most)
            self.assertGreater(lowered, 0.8 * most)

    def test_says_what_a_step_computes(self):
        self.assertIn("\na step     60.73 TFLOP forward, 118.6 GMAC a sample; 121.5 TFLOP backward;", plan(*XL2)[0])

    def test_the_largest_batch_fits_and_the_next_does_not(self):
        report = json.loads(plan(*BASE, "--max-batch", "1GB", "--json")[0])["largest_batch"]
        self.assertEqual(report["next_batch"], report["batch"] + 1)
        peaks = [self.peak(*BASE, *settings(data__batch=report["batch"] + more)) for more in (0, 1)]
        self.assertEqual(peaks, [report["peak_bytes"], report["next_peak_bytes"]])
        # With what a device adds, the context too.
        self.assertLessEqual(report["device_bytes"], 1_000_000_000)
        self.assertGreater(report["next_device_bytes"], 1_000_000_000)
        self.assertGreater(report["device_bytes"], peaks[0])
        text = plan(*BASE, "--max-batch", "1e9")[0]
        self.assertTrue(text.startswith(f"verdict    data.batch = {report['batch']} fits 953.7 MiB (1000000000 bytes); unknown"), text)
        self.assertIn(f"\nlargest    data.batch = {report['batch']} takes ", text)
        # The patches' convolution and sums across blocks of threads: what they take only a GPU tells.
        self.assertEqual(report["not_counted"], ["convolution_workspaces", "kernel_scratch"])
        self.assertIn("; unknown, and not counted: convolution workspaces and kernel scratch", re.sub(r"\s+", " ", text))

    def test_what_does_not_fit_ends_with_3_after_the_report(self):
        text, errors = plan(*BASE, *settings(memory__budget="90MB"), code=3)
        self.assertTrue(text.startswith("configs/base.toml on cuda:0"), text)
        self.assertRegex(errors, r"^dit-plan: does not fit into memory\.budget: the peak of .* exceeds 85\.8 MiB "
                                 r"\(90000000 bytes\); --max-batch BYTES finds the largest batch that fits so many, --table says "
                                 r"what other policies take\n$")
        errors = plan(*BASE, *settings(memory__budget="20MB"), code=3)[1]
        self.assertRegex(errors, r"exceeds 19\.1 MiB \(20000000 bytes\); data\.batch = 1 does not fit either and takes [0-9.]+ MiB \(\d+ bytes\); "
                                 r"--table says what other policies take, else use a larger budget or a smaller "
                                 r"model\n$")
        errors = plan(*XL2, *settings(memory__budget="2GB"), code=3)[1]
        self.assertRegex(errors, r"^dit-plan: does not fit into memory\.budget: the parameters alone take 2\.5\d GiB ")
        text, errors = plan(*BASE, "--max-batch", "1MB", code=3)
        self.assertEqual(text, "")
        self.assertRegex(errors, r"^dit-plan: --max-batch 1MB: not even data\.batch = 1 fits: the parameters alone ")
        plan(*BASE, *settings(memory__budget="1GB"))

    def test_a_machine_too_small_for_the_plan_says_nothing_of_the_run(self):
        # The noise of the samples is drawn in host memory: here 10.7 GB of it.
        limit = 8 * 2**30
        large = settings(model__image_size=2048, model__patch=32, sample__per_class=64)
        errors = plan(
            *BASE, *large, code=1, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        )[1]
        self.assertRegex(errors, r"^dit-plan: this machine cannot hold the plan itself: .*10737418240 bytes.*\n$")

    def test_what_is_wrong_ends_with_2(self):
        self.assertEqual(
            plan(code=2)[1],
            "dit-plan: --config FILE is missing: write for example dit-plan --config base\n",
        )
        errors = plan(*BASE, *settings(data__batsh=2), code=2)[1]
        self.assertIn("did you mean data.batch?", errors)
        errors = plan(*BASE, "--no-fold", "--set", "policies.ema.every=1001", code=1)[1]
        self.assertEqual(
            errors,
            "dit-plan: the policies repeat their work after 1001 steps; a plan that leaves none out runs at most 1000 of "
            "them, twice; plan without --no-fold, or with --set policies.ema.every=1000 or less\n",
        )

    def test_a_part_of_the_device_needs_one(self):
        present = Path("/dev/nvidia0").exists()
        for arguments, place in (
            (["--max-batch", "80%"], "--max-batch 80%"),
            (settings(memory__budget="80%"), "--set memory.budget=80%"),
        ):
            if not present:
                self.assertEqual(
                    plan(*BASE, *arguments, code=2)[1],
                    f"dit-plan: {place}: a part of the device present, and this machine has no cuda:0; write a number "
                    'of bytes, such as "24GB", "24GiB" or "24e9"\n',
                )
        plan(*BASE, "--device", "cpu", *settings(memory__budget="80%"))  # the CPU is always there

    def test_a_plan_for_the_cpu_computes_nothing_however_large_the_batch(self):
        small = MeasuredPlan(*BASE, "--device", "cpu", "--json")
        large = MeasuredPlan(*BASE, "--device", "cpu", "--json", *settings(data__batch=60_000))
        self.assertGreater(large.report["peak"]["bytes"], 100 * small.report["peak"]["bytes"])
        self.assertLess(large.seconds, 5)
        self.assertLess(large.max_kib, small.max_kib + 64 * 1024)
        part = MeasuredPlan(*BASE, "--device", "cpu", "--max-batch", "80%", "--json")
        self.assertLess(part.max_kib, small.max_kib + 64 * 1024)
        self.assertGreater(part.report["largest_batch"]["batch"], 128)
        self.assertLessEqual(part.report["largest_batch"]["peak_bytes"], part.report["largest_batch"]["budget_bytes"])

    def test_work_that_repeats_after_some_steps_is_planned(self):
        each = self.peak(*BASE, *settings(policies__ema__device="same"))
        for steps in (10, 100_000):
            self.assertEqual(each, self.peak(*BASE, *settings(policies__ema__device="same", policies__ema__every=steps)))

    def test_readme_commands_run(self):
        readmes = [(SOURCE / name).read_text(encoding="utf-8") for name in ("README.md", "toolkit/plan/README.md")]
        commands = re.findall(r"^build/release/dit-plan (.*)$", "\n".join(readmes), re.MULTILINE)
        self.assertGreaterEqual(len(commands), 4)
        for command in commands:
            with self.subTest(command):
                plan(*command.split("#")[0].split())

    def test_scratch_is_measured_here_and_taken_by_later_plans(self):
        small = [*BASE, "--device", "cpu", *settings(policies__precision__cpu="bf16", train__threads=1)]
        with tempfile.TemporaryDirectory() as folder:
            file = f"{folder}/scratch.json"
            self.assertEqual(
                plan(*small, "--calibration", file, code=2)[1],
                f"dit-plan: --calibration {file}: no such file; dit-plan --calibrate {file} writes it\n",
            )
            text = plan(*small, "--calibrate", file)[0]
            self.assertRegex(text, rf"^{re.escape(file)}: scratch of \d+ calls, \d+ of which take any, at most ")
            rows = json.loads(Path(file).read_text())["calls"]
            without = json.loads(plan(*small, "--json")[0])["plan"]["scratch"]
            self.assertIn("aten::addmm", without["not_known"])
            self.assertEqual(without["source"], "")
            scratch = json.loads(plan(*small, "--calibration", file, "--json")[0])["plan"]["scratch"]
            self.assertEqual(scratch["not_known"], [])
            self.assertEqual(scratch["measured_calls"], len(rows))
            self.assertEqual(scratch["largest"], max(row["scratch_bytes"] for row in rows))
            self.assertRegex(plan(*small)[0], r"scratch    what \d+ operators take for themselves while they run is ")
            explained = re.sub(r"\s+", " ", plan(*small, "--explain")[0])
            self.assertIn("scratch of these operators is counted as 0: " + ", ".join(without["not_known"]), explained)
            text = plan(*small, "--calibration", file)[0]
            self.assertIn(f"scratch    {len(rows)} calls from calibration (", text)
            self.assertNotIn("counted as 0", text)
            self.assertRegex(plan(*small, "--table", "--calibration", file)[0], r"\nscratch    what \d+ operators? takes? ")
            # A word that is longer than its column stands alone.
            self.assertTrue(all(len(line) <= 80 or " " not in line.strip() for line in text.splitlines()[1:]), text)
            two = ["train.threads=2" if word == "train.threads=1" else word for word in small]
            other = plan(*two, "--calibration", file, code=2)[1]
            self.assertEqual(
                other,
                f"dit-plan: --calibration {file}: measured for train.threads = 1, and this plan is for train.threads = 2; measure "
                "again with dit-plan --calibrate\n",
            )
            Path(file).write_text('{"dit_plan_calibration": 1')
            self.assertEqual(
                plan(*small, "--calibration", file, code=1)[1],
                f"dit-plan: --calibration {file} is not JSON (at byte 27); measure again with dit-plan --calibrate\n",
            )
            self.assertEqual(
                plan(*small, "--calibration", folder, code=2)[1],
                f"dit-plan: --calibration {folder}: a folder; give a file that dit-plan --calibrate wrote\n",
            )
        self.assertEqual(
            plan(*small, "--calibration", "README.md", code=2)[1],
            'dit-plan: --calibration README.md: no calibration ("dit_plan_calibration" is missing); dit-plan --calibrate '
            "FILE writes one\n",
        )

    def test_what_is_to_be_measured_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "never.json")
            self.assertEqual(
                plan("--calibrate", str(file), "--device", "cpu", code=2)[1],
                "dit-plan: --calibrate with --device cpu: --config FILE is missing: measured are the kernels that a job "
                f"calls; write for example dit-plan --config base --device cpu --calibrate {file}\n",
            )
            missing = Path(folder, "missing.toml")
            self.assertEqual(
                plan("--config", str(missing), "--device", "cpu", "--calibrate", str(file), code=2)[1],
                f"dit-plan: {missing}: this file does not exist; give an existing file with --config\n",
            )
            self.assertEqual(
                plan("--config", str(missing), "--calibrate", str(file), code=2)[1],
                "dit-plan: --calibrate and --config: what a GPU adds does not depend on a job; leave --config out, or "
                "measure the kernels of the job with --device cpu\n",
            )
            self.assertFalse(file.exists())

    def test_a_device_that_is_not_there_is_not_measured(self):
        if not Path("/dev/nvidia0").exists():
            self.assertEqual(
                plan("--calibrate", "never.json", code=2)[1],
                "dit-plan: --calibrate: this machine has no cuda:0 to measure; with --device cpu the scratch of the "
                "CPU's kernels is measured\n",
            )
            self.assertFalse((SOURCE / "never.json").exists())

    def test_each_term_that_a_device_adds_is_explained_and_can_be_left_out(self):
        text = plan(*XL2, "--explain")[0]
        terms = json.loads(plan(*XL2, "--json")[0])["plan"]["device_terms"]
        names = [term["name"] for term in terms]
        self.assertEqual(names, ["rounding", "attention_scratch", "reduction_scratch", "workspaces", "convolution_workspaces", "kernel_scratch", "context",
                                 "pinned"])
        for name in names:
            self.assertRegex(text, rf"(?m)^  {name}: .*\n    formula  (.*\n)+?    source   (.*\n)+?    off      --no-term {name}\n")
            left = json.loads(plan(*XL2, "--json", "--no-term", name)[0])["plan"]["device_terms"]
            self.assertEqual([term["name"] for term in left], [other for other in names if other != name])
        self.assertTrue(all(len(line) <= 80 for line in text.splitlines()[1:]), text)

    def test_what_the_allocator_would_hold_stands_beside_the_peak(self):
        report = json.loads(plan(*XL2, "--json")[0])
        reserved = report["plan"]["reserved"]
        beside = {term["name"]: term["bytes"] for term in report["plan"]["device_terms"]}
        lowest = report["peak"]["bytes"] + beside["workspaces"]
        self.assertTrue(lowest < reserved["bytes"] < 1.2 * lowest, (lowest, reserved))
        self.assertEqual(reserved["bytes"] % (2 << 20), 0)
        self.assertTrue(0 < reserved["small_bytes"] < reserved["bytes"], reserved)
        self.assertIn(f"\nreserved   {reserved['bytes'] / 2**30:.2f} GiB in segments", plan(*XL2)[0])
        on_cpu = plan(*BASE, "--device", "cpu", "--json")[0]
        self.assertNotIn("reserved", json.loads(on_cpu)["plan"])

    def test_a_kernel_of_attention_stays_where_the_table_switches_attention_off(self):
        cudnn = ("--set", "policies.attention.kernel=cudnn")
        rows = json.loads(plan(*XL2, *cudnn, "--table", "--json")[0])
        self.assertEqual(len(rows), 32)
        unknown = json.loads(plan(*XL2, *cudnn, "--json")[0])["plan"]["device_terms"]
        formula = next(term["formula"] for term in unknown if term["name"] == "kernel_scratch")
        self.assertNotIn("attention", formula)

    def test_why_names_the_largest_parameter_and_what_else_checkpointing_could_be(self):
        report = json.loads(plan(*XL2, "--explain", "--json")[0])
        largest = report["why"]["largest_parameter"]
        self.assertEqual((largest["name"], largest["bytes"]), ("blocks.0.adaLN_modulation.1.weight", 31_850_496))
        self.assertNotEqual(largest["phase"], "build")
        choices = report["checkpoint_choices"]["choices"]
        peaks = [one["peak_bytes"] for one in choices]
        self.assertEqual(peaks, sorted(peaks))
        names = [one["set"].removeprefix("policies.checkpoint.") for one in choices]
        for name in ('keep="all"', 'keep="offload"', 'keep=["attn_out"]', 'keep=["fc2_out"]'):
            self.assertIn(name, names)
        self.assertFalse({'keep="block"', "segment=1"} & set(names))
        for one in choices:
            other = json.loads(plan(*XL2, "--set", one["set"], "--json")[0])
            figures = [other["peak"]["bytes"], other["host"]["peak_bytes"], other["plan"]["step_flops"]["recomputed"]]
            self.assertEqual([one["peak_bytes"], one["host_bytes"], one["recomputed_flops"]], figures)

    def test_a_measurement_on_a_device_takes_the_estimates_place(self):
        measured = {"dit_plan_calibration": 1, "device": "cuda", "machine": "Some GPU", "libtorch": "",
                    "date": "2026-11-22",
                    "terms": [{"name": "context", "what": "all of it", "bytes": 960000000, "by_formula": 880000000}]}
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "gpu.json")
            file.write_text(json.dumps(measured))
            errors = plan(*BASE, "--calibration", str(file), code=2)[1]
            version = re.search(r"this plan is with LibTorch (\S+);", errors)[1]
            file.write_text(json.dumps({**measured, "libtorch": version}))
            terms = json.loads(plan(*BASE, "--calibration", str(file), "--json")[0])["plan"]["device_terms"]
            context = next(term for term in terms if term["name"] == "context")
            self.assertEqual(context["bytes"], 960000000)
            self.assertEqual(
                context["measured"],
                "Some GPU, 2026-11-22; all of it: 960000000 bytes, by the formula 880000000",
            )
            self.assertEqual(
                plan(*BASE, "--device", "cpu", "--calibration", str(file), code=2)[1],
                f"dit-plan: --calibration {file}: measured for --device cuda, and this plan is for --device cpu; measure again with "
                "dit-plan --calibrate\n",
            )

    def test_a_run_measures_what_was_planned(self):
        for job in ({"data__samples": 64, "train__steps": 3},
                    # Epochs of a few batches, the last one shorter: what the loader has ready differs by step.
                    {"data__samples": 21, "train__steps": 2, "data__prefetch": 4, "data__drop_last": "false"},
                    {"data__samples": 27, "train__steps": 5, "data__drop_last": "false"},
                    {"data__samples": 101, "train__steps": 20, "data__prefetch": 3, "data__drop_last": "false"}):
            # After 20 steps the shorter batch of an epoch may be among those that are ready; a plan has fewer steps,
            # and its last has whole ones ready, which a later checkpoint of the job would have too.
            exact = ("optimizer", "save") if job["train__steps"] < 20 else ("optimizer",)
            with self.subTest(job):
                self.check_run(settings(**job), exact)

    def test_a_budget_of_the_exact_plan_holds_a_run_with_the_scratch_of_its_kernels(self):
        small = settings(data__kind="synthetic", data__images="default", data__labels="default", data__samples=64,
                         train__seconds="default", train__steps=2, schedule__warmup=1, sample__steps=3, sample__per_class=1,
                         policies__fusion__enabled="false")  # fused, the peak lies between the products
        # Whose kernels take any while most is alive differs by processor: products in bf16 or convolutions in fp32.
        jobs = [[*BASE, "--device", "cpu", *small, *settings(policies__precision__cpu="bf16")],
                [*BASE, "--device", "cpu", *small, *settings(policies__precision__cpu="fp32", data__batch=2, model__depth=1,
                                                             model__hidden=128, model__heads=2)]]

        def peaks(job: list[str]) -> tuple[int, int]:
            return self.peak(*job), self.peak(*job, "--calibration", "here")

        def scratch_at_peak(job: list[str]) -> int:
            without, with_scratch = peaks(job + settings(train__threads=1))
            return with_scratch - without

        job = max(jobs, key=scratch_at_peak)
        for threads in (1, 2):
            with self.subTest(threads=threads), tempfile.TemporaryDirectory() as folder:
                cpu = job + settings(train__threads=threads)
                without, budget = peaks(cpu)
                self.assertLess(without, budget)
                run = [str(TRAIN), *cpu, "--set", f"train.out={folder}/run", "--set"]
                less = subprocess.run([*run, f"memory.budget={budget - 1}"], cwd=SOURCE, capture_output=True, text=True)
                self.assertEqual(less.returncode, 3, less.stderr)
                self.assertIn(f"the run needs {budget} bytes", less.stderr)
                self.assertIn(f"set memory.budget = {budget} or more", less.stderr)
                self.assertFalse(Path(folder, "run").exists())
                subprocess.run([*run, f"memory.budget={budget}"], cwd=SOURCE, check=True, capture_output=True, timeout=120)
                measured = json.loads(Path(folder, "run/memory.json").read_text())["peak"]["bytes"]
                self.assertLess(without, measured)
                self.assertEqual(measured, budget) if threads == 1 else self.assertLessEqual(measured, budget)

    def test_a_job_that_the_machine_cannot_hold_is_not_measured(self):
        huge = settings(model__hidden=16384, model__depth=64, model__heads=64)
        self.assertEqual(
            plan(*BASE, "--device", "cpu", *huge, "--calibration", "here", code=2)[1],
            "dit-plan: --calibration here: the job is larger than the memory that is free on this machine, so its kernels "
            "cannot be run here; leave it out, or measure a smaller data.batch\n",
        )

    def test_the_largest_batch_with_scratch_is_measured_batch_by_batch(self):
        cpu = [*BASE, "--device", "cpu", *settings(policies__precision__cpu="bf16", train__threads=1)]
        here = ["--calibration", "here"]
        report = json.loads(plan(*cpu, *here, "--max-batch", "40MB", "--json")[0])
        self.assertEqual(report["plan"]["scratch"]["not_known"], [])
        batch = report["largest_batch"]["batch"]
        self.assertLessEqual(self.peak(*cpu, *here, *settings(data__batch=batch)), 40_000_000)
        self.assertGreater(self.peak(*cpu, *here, *settings(data__batch=batch + 1)), 40_000_000)

    def check_run(self, job: list[str], exact: tuple[str, ...]) -> None:
        small = job + settings(data__kind="synthetic", data__images="default", data__labels="default",
                               train__seconds="default", train__threads=1, train__log_every=1, schedule__warmup=1,
                               sample__steps=3, sample__per_class=1, policies__precision__cpu="fp32")
        with tempfile.TemporaryDirectory() as folder:
            planned = json.loads(plan(*BASE, "--device", "cpu", "--json", *small)[0])
            command = [str(TRAIN), *BASE, "--device", "cpu", *small, "--set", f"train.out={folder}/run"]
            subprocess.run(command, cwd=SOURCE, check=True, capture_output=True, timeout=120)
            measured = json.loads(Path(folder, "run/memory.json").read_text())
        for seen in (planned, measured):  # what the plan does not know of kernels' scratch counts as 0
            for phase in seen["phases"]:
                phase["kept"] = phase["peak_bytes"] - phase["categories"].get("scratch", 0)
        found = {phase["name"]: phase for phase in measured["phases"]}
        self.assertEqual(list(found), [phase["name"] for phase in planned["phases"]])
        for phase in planned["phases"]:
            with self.subTest(phase["name"]):
                kept, batches = found[phase["name"]]["kept"], phase["categories"]["data"]
                if found[phase["name"]]["categories"].get("data", 0) == batches or phase["name"] in exact:
                    self.assertEqual(phase["kept"], kept)
                else:  # on a busy machine the loader may bring a batch later than the plan has it
                    self.assertLess(kept, phase["kept"])
                    self.assertGreaterEqual(kept, phase["kept"] - batches)

    def test_keep_auto_trains_by_the_choice_that_was_planned(self):
        job = settings(data__kind="synthetic", data__images="default", data__labels="default", data__samples=64,
                       train__seconds="default", train__threads=1, train__log_every=1,
                       schedule__warmup=1, sample__steps=3, sample__per_class=1, policies__precision__cpu="fp32")
        short = [*job, *settings(train__steps=3)]
        lowest, highest = (self.peak(*BASE, "--device", "cpu", *short, *settings(policies__checkpoint__keep=keep))
                       for keep in ("block", "all"))
        auto = settings(policies__checkpoint__keep="auto", memory__budget=(lowest + highest) // 2)
        chosen = json.loads(plan(*BASE, "--device", "cpu", "--json", *short, *auto)[0])["placement"]
        self.assertTrue(lowest <= chosen["planned_bytes"] <= (lowest + highest) // 2, chosen)
        self.assertTrue(0 < len(chosen["recomputed"]) <= chosen["targets"], chosen)
        self.assertLess(chosen["flops"], chosen["most_flops"], chosen)
        self.assertTrue(chosen["keeps"], chosen)
        with tempfile.TemporaryDirectory() as folder:
            command = [str(TRAIN), *BASE, "--device", "cpu", *job, *auto, "--set", f"train.out={folder}/run"]
            begun = subprocess.run([*command, "--set", "train.steps=3"], cwd=SOURCE, check=True, capture_output=True, text=True, timeout=120)
            self.assertIn('keep = "auto": ', begun.stdout)
            config = Path(folder, "run/config.toml").read_text()
            targets = json.dumps(chosen["recomputed"])
            origin = f"  # chosen by keep = auto under memory.budget = {(lowest + highest) // 2}\n"
            self.assertIn(f"\ntargets = {targets}{origin}", config)
            keep = re.search(rf"^keep = (\[.*\]){re.escape(origin.rstrip())}$", config, re.M)
            self.assertIsNotNone(keep, config)
            for path, names in chosen["keeps"].items():
                for name in names:
                    self.assertTrue(name in json.loads(keep[1]) or f"{path}: {name}" in json.loads(keep[1]), config)
            measured = json.loads(Path(folder, "run/memory.json").read_text())["phases"]
            highest = max(measured, key=lambda phase: phase["peak_bytes"] - phase["categories"].get("scratch", 0))
            kept = highest["peak_bytes"] - highest["categories"].get("scratch", 0)
            self.assertLessEqual(kept, chosen["planned_bytes"])
            # On a busy machine the loader may bring batches later than the plan has them.
            self.assertGreaterEqual(kept + 3 * 16 * 28 * 28 * 5, chosen["planned_bytes"])
            # The file still says auto; the checkpoint says what that became.
            on = subprocess.run([*command, "--verbose", "--set", "train.steps=4", "--resume", "latest"], cwd=SOURCE, check=True,
                                capture_output=True, text=True, timeout=120)
            self.assertNotIn('keep = "auto"', on.stdout)
            self.assertIn(f"\ntargets = {targets}  # the checkpoint's\n", on.stdout)
            none = [*BASE, "--device", "cpu", *short, *settings(policies__checkpoint__keep="auto", memory__budget=lowest - 100_000)]
            self.assertIn("dit-plan: does not fit into memory.budget: ", plan(*none, code=3)[1])
            refused = subprocess.run([str(TRAIN), *none, "--set", f"train.out={folder}/none"], cwd=SOURCE,
                                     capture_output=True, text=True, timeout=120)
            self.assertEqual(refused.returncode, 3, refused.stderr)
            self.assertFalse(Path(folder, "none").exists())

    def test_a_plan_and_a_run_that_are_refused_tell_one_need(self):
        job = [*BASE, "--device", "cpu", *settings(memory__budget="20MB", policies__precision__cpu="probe")]
        planned = re.search(r"the peak of .* \((\d+) bytes\), in phase (\w+), exceeds .* (\(planned with .*?\));",
                            plan(*job, "--calibration", "here", code=3)[1])
        with tempfile.TemporaryDirectory() as folder:
            run = subprocess.run([str(TRAIN), *job, "--set", f"train.out={folder}/none"], cwd=SOURCE,
                                 capture_output=True, text=True, timeout=120)
        self.assertEqual(run.returncode, 3, run.stderr)
        needed = re.search(r"the run needs (\d+) bytes .* in phase (\w+), and memory.* (\(planned with .*?\));", run.stderr)
        self.assertIsNotNone(planned)
        self.assertIsNotNone(needed, run.stderr)
        self.assertEqual(needed.groups(), planned.groups())
        self.assertRegex(needed[3], r'^\(planned with policies\.precision\.cpu = "(bf16|fp32)"\)$')

    def test_a_batch_that_fits_the_device_is_held_against_the_budget_too(self):
        text, errors = plan(*BASE, "--max-batch", "1.5GB", "--set", "memory.budget=40MB", code=3)
        self.assertTrue(text.startswith("verdict "), text)
        self.assertIn("dit-plan: does not fit into memory.budget: ", errors)
        errors = plan(*BASE, "--set", "memory.budget=1MB", code=3)[1]
        self.assertIn("the parameters alone take ", errors)
        self.assertNotIn("--max-batch", errors)
        # What the message says of other batches is so.
        errors = plan(*BASE, "--set", "memory.budget=70MB", code=3)[1]
        self.assertNotIn("--max-batch", errors)
        plan(*BASE, "--set", "memory.budget=70MB", "--set", "data.batch=1", code=3)
        budget = ("--set", "memory.budget=200MB")
        errors = plan(*BASE, *budget, "--set", "data.batch=4096", code=3)[1]
        self.assertIn("; --max-batch BYTES finds the largest batch that fits so many, ", errors)
        plan(*BASE, *budget, "--set", "data.batch=1", code=0)

    def test_a_budget_that_one_precision_fits_is_no_refusal_as_training_takes_that_one(self):
        job = [*BASE, "--device", "cpu", *settings(
            data__kind="synthetic", data__images="default", data__labels="default", data__samples=64, train__seconds="default",
            train__steps=1, schedule__warmup=0, sample__steps=2, sample__per_class=1)]
        both = {one["cpu"]: one["peak_bytes"] for one in json.loads(plan(*job, "--json")[0])["plan"]["precisions"]}
        smaller = min(both, key=both.get)
        self.assertGreater(max(both.values()) - both[smaller], 2_000_000)
        within = [*job, *settings(memory__budget=sum(both.values()) // 2)]
        self.assertIn(f"; training takes {smaller}, as only that fits memory.budget", " ".join(plan(*within)[0].split()))
        plan(*job, *settings(memory__budget=both[smaller] - 1), code=3)
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([str(TRAIN), *within, "--set", f"train.out={folder}/run"], cwd=SOURCE, check=True,
                           capture_output=True, timeout=120)
            self.assertIn(f'\ncpu = "{smaller}"  # planned: ', Path(folder, "run/config.toml").read_text())

    def test_a_report_that_cannot_be_written_is_an_error(self):
        with open("/dev/full", "w") as full:
            result = subprocess.run([str(PLAN), *BASE], cwd=SOURCE, stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stderr, "dit-plan: standard output takes no more; what was printed is not complete\n")

    def test_data_that_cannot_be_trained_on_is_refused_as_in_a_run(self):
        few = settings(data__samples=10)
        self.assertIn("are fewer than one micro-batch of ", plan(*BASE, *few, code=4)[1])
        self.assertIn("leaves nothing to train on", plan(*BASE, *settings(data__samples=10, data__validation=10), code=2)[1])

    def test_a_job_of_one_step_is_planned_as_that(self):
        one = settings(data__kind="synthetic", data__samples=64, data__images="default", data__labels="default",
                       train__steps=1, train__seconds="default", schedule__warmup=1)
        report = json.loads(plan(*BASE, "--json", *one)[0])
        names = [phase["name"] for phase in report["phases"]]
        self.assertIn("first_step", names)
        self.assertNotIn("backward", names)  # that of later steps


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    PLAN, TRAIN, SOURCE = (Path(argument).resolve() for argument in sys.argv[1:])
    unittest.main(argv=sys.argv[:1])
