"""forum_cnn_test.py PROGRAM: the bytes of the forum's networks, from the rules by which operators save tensors."""

import functools
import json
import os
import resource
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import programs

VARIANTS = ("plain", "per_op", "conv_relu", "one_block", "all_conv")
OPTIMIZERS = ("adam-single", "adam-foreach", "fused")

# MB of a whole step, by variant: adam-single, adam-foreach and fused.
PEAKS = {
    "plain": (331.90, 295.93, 295.93),
    "per_op": (331.90, 301.78, 301.78),
    "conv_relu": (331.90, 295.93, 295.93),
    "one_block": (331.90, 291.75, 291.75),
    "all_conv": (331.90, 283.39, 283.39),
}
SAVED = {
    "plain": 20_162_400,
    "per_op": 26_014_400,
    "conv_relu": 20_162_400,
    "one_block": 15_982_400,
    "all_conv": 7_622_400,
}
MEGABYTE = 1e6


def saved_by_rule(variant: str, network: str, sizes: tuple[int, ...], channels: tuple[int, ...], outputs: int) -> int:
    """Numbers that autograd keeps, in bytes; a convolution or ReLU and the one after it share a tensor."""
    batch, first, height, width = sizes
    x, one, two, three = (4 * batch * height * width * count for count in (first, *channels))
    head = 4 * batch * outputs * (1 if network == "small" else 3)  # of the result, and of the target
    sigmoid = 0 if network == "small" else 4 * batch * outputs
    kept = {
        "plain": x + one + two + three + sigmoid,
        "per_op": x + one + two + two + three + three + sigmoid,  # each ReLU keeps its input
        "conv_relu": x + one + two + three,  # the head is a segment too
        "one_block": x + one + three + sigmoid,
        "all_conv": x + three + sigmoid,
    }
    return kept[variant] + 2 * head


def bytes_of(result: dict) -> list[dict]:
    """Peak and phases by category: which operator a temporary is of, an operator of another one may say otherwise."""
    return [{key: value for key, value in part.items() if key != "items"} for part in (result["peak"], *result["phases"])]


@functools.cache
def trained(variant: str, optimizer: str) -> dict:
    return programs.result_of(PROGRAM, "--variant", variant, "--optimizer", optimizer)


def options_of(network: str, sizes: tuple[int, ...], channels: tuple[int, ...], outputs: int) -> list[str]:
    def listed(values: tuple[int, ...]) -> str:
        return ",".join(str(value) for value in values)

    return ["--network", network, "--input", listed(sizes), "--channels", listed(channels), "--outputs", str(outputs)]


class ThreadsNetwork(unittest.TestCase):
    def test_saved_bytes_and_gradients(self):
        for variant in VARIANTS:
            result = trained(variant, "fused")
            self.assertEqual(result["saved_bytes"], SAVED[variant], variant)
            self.assertEqual(SAVED[variant], saved_by_rule(variant, "small", (100, 20, 19, 22), (50, 25, 10), 3258))
            self.assertEqual((result["gradients_received"], result["gradients_expected"]), (8, 8), variant)
            self.assertEqual(result["parameters"], 13_644_283)

    def test_peaks_by_optimizer(self):
        for variant in VARIANTS:
            for optimizer, expected in zip(OPTIMIZERS, PEAKS[variant]):
                result = trained(variant, optimizer)
                where = (variant, optimizer)
                self.assertEqual(round(result["peak"]["bytes"] / MEGABYTE, 2), expected, where)
                self.assertEqual(result["peak"]["phase"], "optimizer" if optimizer == "adam-single" else "backward")
                phases = {phase["name"]: phase for phase in result["phases"]}
                self.assertEqual(list(phases), ["build", "forward", "backward", "optimizer"], where)
                self.assertEqual(round(phases["backward"]["peak_bytes"] / MEGABYTE, 2), PEAKS[variant][1], where)
                step = {"adam-single": 331.90, "adam-foreach": 277.53, "fused": 222.96}[optimizer]
                self.assertEqual(round(phases["optimizer"]["peak_bytes"] / MEGABYTE, 2), step, where)
                for phase in (*phases.values(), result["peak"]):
                    self.assertNotIn("scratch", phase["categories"])
                    total = phase["peak_bytes"] if "name" in phase else phase["bytes"]
                    self.assertEqual(sum(phase["categories"].values()), total, where)

    def test_state_by_owner(self):
        categories = trained("plain", "fused")["peak"]["categories"]
        weights = 4 * 13_644_283
        self.assertEqual(categories["parameters"], weights)
        self.assertEqual(categories["gradients"], weights)
        self.assertEqual(categories["optimizer"], 2 * weights + 32)
        self.assertEqual(categories["data"], 3_344_000 + 1_303_200)
        self.assertNotIn("other", categories)

    def test_no_variant_changes_a_bit_of_the_training(self):
        for optimizer in OPTIMIZERS:
            losses = trained("plain", optimizer)["losses"]
            self.assertEqual(len(losses), 3)
            self.assertLess(losses[-1], losses[0])
            for variant in VARIANTS:
                self.assertEqual(trained(variant, optimizer)["losses"], losses, (variant, optimizer))
            for one, other in zip(losses, trained("plain", "fused")["losses"]):
                self.assertAlmostEqual(one, other, delta=1e-5)


class OtherSizes(unittest.TestCase):
    CASES = (
        ("small", (3, 4, 9, 7), (6, 5, 3), 11),
        ("small", (17, 2, 12, 12), (3, 8, 5), 64),
        ("full", (2, 3, 8, 6), (4, 7, 2), 9),
        ("full", (18, 3, 10, 10), (8, 4, 6), 50),
    )

    def test_saved_bytes_by_rule_and_the_plan_is_the_run(self):
        for case in self.CASES:
            for variant in VARIANTS:
                options = [*options_of(*case), "--variant", variant, "--optimizer", "adam-foreach"]
                run = programs.result_of(PROGRAM, *options, "--measure", "run")
                plan = programs.result_of(PROGRAM, *options, "--measure", "plan")
                where = (*case, variant)
                self.assertEqual(run["saved_bytes"], saved_by_rule(variant, *case), where)
                self.assertEqual(run["gradients_received"], run["gradients_expected"], where)
                self.assertEqual((plan["planned"], run["planned"]), (True, False))
                self.assertEqual((plan["losses"], len(run["losses"])), ([], 3))
                for key in ("saved_bytes", "gradients_received", "gradients_expected", "parameters"):
                    self.assertEqual(plan[key], run[key], (*where, key))
                self.assertEqual(bytes_of(plan), bytes_of(run), where)

    def test_every_optimizer_is_planned_to_the_byte(self):
        for optimizer in OPTIMIZERS:
            options = [*options_of(*self.CASES[1]), "--optimizer", optimizer]
            run = programs.result_of(PROGRAM, *options)
            plan = programs.result_of(PROGRAM, *options, "--measure", "plan")
            self.assertEqual(bytes_of(plan), bytes_of(run), optimizer)


class FullNetwork(unittest.TestCase):
    def test_it_is_planned_without_being_allocated(self):
        parameters = 22_585 + 3 * (19_350 * 29_913 + 29_913)
        for variant in ("plain", "all_conv"):
            with tempfile.TemporaryFile("w+") as output:
                command = [str(PROGRAM), "--network", "full", "--variant", variant, "--json"]
                process = subprocess.Popen(command, stdout=output)
                _, status, usage = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
                self.assertEqual(process.returncode, 0)
                output.seek(0)
                result = json.load(output)
            self.assertLess(usage.ru_maxrss, 1 << 20)  # KiB: less than one GiB in memory
            self.assertTrue(result["planned"])
            self.assertEqual(result["parameters"], parameters)
            self.assertEqual((result["gradients_received"], result["gradients_expected"]), (12, 12))
            rule = saved_by_rule(variant, "full", (100, 20, 45, 43), (50, 25, 10), 29_913)
            self.assertEqual(result["saved_bytes"], rule)
            state = 4 * 4 * parameters
            self.assertGreater(result["peak"]["bytes"], state)
            self.assertLess(rule, state / 100)
            self.assertEqual(result["peak"]["phase"], "optimizer")


class Larger(unittest.TestCase):
    def test_a_job_larger_than_any_machine_is_planned(self):
        # Images of 334 GB.
        options = options_of("small", (10_000, 200, 190, 220), (1, 1, 1), 1)
        result = programs.result_of(PROGRAM, *options, "--measure", "plan")
        self.assertGreater(result["peak"]["bytes"], 4 * 10_000 * 200 * 190 * 220)
        saved = saved_by_rule("plain", "small", (10_000, 200, 190, 220), (1, 1, 1), 1)
        self.assertEqual(result["saved_bytes"], saved)


INPUT_ONLY = "all that it saves is its input: nothing is let go"
NOTHING = "it saves nothing for backward: nothing can be let go"


def splits(reader: str, before: str) -> str:
    """A ReLU's result is there for its reader whatever is split; its input then is kept besides."""
    return (
        f"its result is {reader}'s input, which {reader} keeps all the same; its own input, the result of {before}, "
        "is saved by nobody: splitting here keeps one tensor more"
    )


# By variant: module, what it saves, its inputs, what it gains as the only segment, why nothing.
SEGMENTS = {
    "plain": [
        ("conv1", 3_344_000, 3_344_000, 0, INPUT_ONLY),
        ("relu1", 8_360_000, 8_360_000, -8_360_000, splits("conv2", "conv1")),
        ("conv2", 8_360_000, 8_360_000, 0, INPUT_ONLY),
        ("relu2", 4_180_000, 4_180_000, -4_180_000, splits("conv3", "conv2")),
        ("conv3", 4_180_000, 4_180_000, 0, INPUT_ONLY),
        ("relu3", 1_672_000, 1_672_000, -1_672_000, splits("fc", "conv3")),
        ("flatten", 0, 1_672_000, 0, NOTHING),
        ("fc", 1_672_000, 1_672_000, 0, INPUT_ONLY),
    ],
    "conv_relu": [
        (name, saves, inputs, 0, f"its input stays; its result is {next}'s input, which {next} keeps all the same: "
         "nothing is let go")
        for name, saves, inputs, next in (
            ("conv1..relu1", 11_704_000, 3_344_000, "conv2..relu2"),
            ("conv2..relu2", 12_540_000, 8_360_000, "conv3..relu3"),
            ("conv3..relu3", 5_852_000, 4_180_000, "head"),
        )
    ]
    + [("head", 1_672_000, 1_672_000, 0, INPUT_ONLY)],
    "one_block": [("conv2..relu3", 14_212_000, 8_360_000, 4_180_000, "")],
    "all_conv": [("conv1..relu3", 17_556_000, 3_344_000, 12_540_000, "")],
}
SEGMENTS["per_op"] = SEGMENTS["plain"][2:]
# What no choice of these segments saves more than: what is saved without them, less what stays.
MAX_GAIN = {
    "plain": 14_212_000,
    "per_op": 5_852_000,
    "conv_relu": 14_212_000,
    "one_block": 4_180_000,
    "all_conv": 12_540_000,
}


@functools.cache
def explained(variant: str, optimizer: str) -> dict:
    return programs.result_of(PROGRAM, "--explain", "--variant", variant, "--optimizer", optimizer)["why"]


class Explained(unittest.TestCase):
    def test_each_segment_and_the_reasons(self):
        for variant in VARIANTS:
            why = explained(variant, "adam-single")
            keys = ("path", "saves", "inputs", "gain", "reason")
            self.assertEqual([tuple(one[key] for key in keys) for one in why["segments"]], SEGMENTS[variant], variant)
            self.assertEqual(why["saved"], SAVED["plain"])
            self.assertEqual(why["most_gain"], MAX_GAIN[variant], variant)
            # Of `plain` each operator is a segment, the first convolution and its ReLU too.
            together = 34_374_400 if variant == "plain" else SAVED[variant]
            self.assertEqual(why["recomputed"]["saved"], together, variant)
            self.assertLessEqual(SAVED["plain"] - together, why["most_gain"])

    def test_state_and_the_largest_parameter(self):
        why = explained("plain", "adam-single")
        weights = 4 * 13_644_283
        self.assertEqual(
            why["state"], {"parameters": weights, "gradients": weights, "optimizer": 2 * weights + 32}
        )
        self.assertEqual((why["entering"], why["outside"]), (3_344_000, 2 * 1_303_200))
        self.assertEqual(
            why["largest_parameter"],
            {
                "name": "fc.weight",
                "bytes": 4 * 4180 * 3258,
                "temporaries": 2,
                "phase": "optimizer",
                "operators": ["aten::div", "aten::sqrt"],
            },
        )

    def test_where_the_peak_is(self):
        cases = [(variant, "adam-single") for variant in VARIANTS]
        cases += [("plain", "fused"), ("plain", "adam-foreach"), ("all_conv", "adam-foreach")]
        for variant, optimizer in cases:
            why = explained(variant, optimizer)
            peak = why["peak"] if variant == "plain" else why["recomputed"]["peak"]
            megabytes = dict(zip(OPTIMIZERS, PEAKS[variant]))[optimizer]
            self.assertEqual(round(peak["bytes"] / MEGABYTE, 2), megabytes, (variant, optimizer))
            if optimizer == "adam-single":
                self.assertEqual((peak["phase"], peak["operation"], peak["saved"]), ("optimizer", "aten::div", 0))
            else:
                self.assertEqual((peak["phase"], peak["path"], peak["in_backward"]), ("backward", "fc", True))

    def test_what_else_lowers_the_peak(self):
        why = explained("plain", "adam-single")
        planned = [(one["name"], round(one["peak_bytes"] / MEGABYTE, 2)) for one in why["alternatives"]]
        self.assertEqual(
            planned,
            [("adam-foreach", 295.93), ("fused", 295.93)]
            + [(name, 331.90) for name in ("all_conv", "conv_relu", "one_block", "per_op")],
        )
        bounds = [(one["category"], one["bytes"]) for one in why["bounds"]]
        self.assertEqual(bounds[0], ("optimizer", 2 * 4 * 13_644_283 + 32))
        self.assertNotIn("saved", dict(bounds))
        self.assertEqual([bytes for _, bytes in bounds], sorted((bytes for _, bytes in bounds), reverse=True))

    def test_text(self):
        done = programs.execute(PROGRAM, "--explain", "--variant", "per_op")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        text = " ".join(done.stdout.split())
        for part in (
            "saved 20,162,400 bytes for backward, 8 % of both together",
            "segments all of them: 26,014,400 bytes are saved instead of 20,162,400: 5,852,000 more",
            "peak 331,903,296 bytes in phase optimizer, outside of all modules, at aten::div, without segments",
            "with the segments 331,903,296 bytes in phase optimizer, outside of all modules, at aten::div: the same",
            "nothing that was saved for backward is alive there, so no segments lower it",
            "! relu2 4,180,000 4,180,000 -4,180,000 " + splits("conv3", "conv2"),
        ):
            self.assertIn(part, text)
        self.assertEqual([line for line in done.stdout.splitlines() if len(line) > 80], [])

    def test_the_full_network(self):
        why = programs.result_of(PROGRAM, "--network", "full", "--explain")["why"]
        self.assertEqual(why["recomputed"]["peak"]["phase"], "optimizer")
        self.assertEqual(why["peak"]["saved"], 0)
        self.assertLess(why["most_gain"], sum(why["state"].values()) / 100)
        concatenation = {one["path"]: one for one in why["segments"]}["cat"]
        self.assertEqual((concatenation["gain"], concatenation["reason"]), (0, NOTHING))

    def test_what_fills_a_peak_that_a_scalar_came_last_to(self):
        arguments = ("--network", "full", "--optimizer", "adam-foreach", "--explain")
        why = programs.result_of(PROGRAM, *arguments)["why"]
        roots = {"operation": "aten::sqrt", "category": "temporaries", "bytes": why["state"]["parameters"]}
        for peak in (why["peak"], why["recomputed"]["peak"]):
            self.assertEqual((peak["operation"], peak["largest"]), ("aten::_to_copy", roots))
        text = " ".join(programs.execute(PROGRAM, *arguments).stdout.split())
        self.assertIn(
            "peak 34,782,615,144 bytes in phase optimizer, outside of all modules, at aten::_to_copy; alive there, "
            "the most of one operator: aten::sqrt, 6,946,247,896 bytes (temporaries) with the segments ",
            text,
        )


class Errors(unittest.TestCase):
    def test_wrong_arguments(self):
        numbers = "allowed are whole numbers from 1 to 1073741824"
        for arguments, message in (
            (["--channels", "1000000000,1000000000,10", "--measure", "plan"],
             "--input, --channels and --outputs: a step of this network would take more than 1e18 bytes; give smaller sizes"),
            (["--input", "1,2,3"], f'--input: "1,2,3" is not B,C,H,W; {numbers}'),
            (["--input", "1,2,3,0"], f'--input: "1,2,3,0" is not B,C,H,W; {numbers}'),
            (["--channels", "1,2,3,"], f'--channels: "1,2,3," is not C1,C2,C3; {numbers}'),
            (["--channels", "1,x,3"], f'--channels: "1,x,3" is not C1,C2,C3; {numbers}'),
            (["--outputs", "-5"], f'--outputs: "-5" is not N; {numbers}'),
            (
                ["--variant", "blocks"],
                '--variant: "blocks" is unknown; allowed: all_conv, conv_relu, one_block, per_op, plain',
            ),
            (["--optimizer", "sgd"], '--optimizer: "sgd" is unknown; allowed: adam-foreach, adam-single, fused'),
            (["--network", "big"], '--network: "big" is unknown; allowed: full, small'),
            (["--measure", "guess"], '--measure: "guess" is unknown; allowed: plan, run'),
            (["more"], 'unexpected argument "more"; see --help'),
            (["--variant", "plain", "--variant", "per_op"], "--variant is given 2 times; give it once"),
            (["--json", "--json", "--json"], "--json is given 3 times; give it once"),
            (
                ["--explain", "--measure", "run"],
                "--measure run and --explain: what is explained is planned; give one of them",
            ),
        ):
            result = programs.execute(PROGRAM, *arguments)
            self.assertEqual((result.returncode, result.stderr), (2, f"forum_cnn: {message}\n"))
            self.assertEqual(result.stdout, "")

    def test_a_plan_without_addresses_says_what_to_raise(self):
        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_AS, (12_000_000_000, 12_000_000_000))

        command = [str(PROGRAM), "--network", "full"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, preexec_fn=limit)
        self.assertRegex(
            done.stderr,
            r"^forum_cnn: this machine cannot hold the plan itself: out of address space, which ulimit -v may limit: "
            r"\d+ bytes asked for by .* bytes alive.*; raise that limit, or give smaller sizes\n$",
        )
        self.assertEqual((done.returncode, done.stdout), (3, ""))

    def test_a_peak_below_a_megabyte_is_given_in_bytes(self):
        sizes = options_of("small", (1, 1, 8, 8), (1, 1, 1), 1)
        peak = programs.result_of(PROGRAM, *sizes)["peak"]["bytes"]
        self.assertLess(peak, MEGABYTE)
        output = programs.execute(PROGRAM, *sizes).stdout
        self.assertIn(f"\npeak        {peak} bytes in phase ", output)

    def test_text_says_what_json_says(self):
        output = programs.execute(PROGRAM, "--variant", "one_block").stdout
        self.assertIn("saved       15982400 bytes for backward\n", output)
        self.assertIn("peak        331.90 MB in phase optimizer, without the scratch of kernels\n", output)
        self.assertIn("of which 8 got a gradient\n", output)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    PROGRAM = Path(sys.argv[1]).resolve()
    unittest.main(argv=sys.argv[:1])
