"""Plans of several ranks, and their runs, to the byte."""

import json
import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import programs  # noqa: E402
from programs import settings  # noqa: E402
from ranks import RanksTest  # noqa: E402

PLAN = Path("dit-plan")


class Plans(RanksTest):
    def planned(self, ranks: int, **values) -> dict:
        result = subprocess.run(
            [str(PLAN), "--config", "tiny.toml", "--device", "cpu", "--world", str(ranks), "--json", *settings(values)],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=100,
        )
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    def test_a_sample_costs_the_same_on_any_number_of_ranks(self):
        job = settings({"data__batch": 24, "train__accumulate": 12})

        def said(ranks: int) -> str:
            command = [str(PLAN), "--config", "tiny.toml", "--device", "cpu", "--world", str(ranks), *job]
            text = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=100, check=True).stdout
            return re.search(r"a step +(.* forward), (.*) a sample", text).groups()

        (whole, alone), (part, of_two) = said(1), said(2)
        self.assertEqual(alone, of_two)
        self.assertNotEqual(whole, part)

    def run_as_planned(self, ranks: int, planned: dict, **job) -> dict:
        """memory.json of a run with the plan's peaks. Where the loader was not ahead at one of them, on a machine that is
        busy, it was below the plan, and the run is repeated."""
        for _ in range(5):
            shutil.rmtree(self.folder / "run", ignore_errors=True)
            self.run_ranks(ranks, **job)
            measured = json.loads((self.folder / "run/memory.json").read_text())
            phases, of_plan = ({one["name"]: one for one in of["phases"]} for of in (measured, planned))
            late = {name for name, one in phases.items() if one["categories"].get("data") != of_plan[name]["categories"].get("data")}
            for name, phase in phases.items():
                compare = self.assertLess if name in late else self.assertEqual
                compare(phase["peak_bytes"], of_plan[name]["peak_bytes"], name)
            if not late:
                return measured
        self.fail("the loader was late in five runs")

    def test_equal_the_leaders_run_to_the_byte(self):
        job = {"data__batch": 24, "train__accumulate": 12, "train__steps": 4, "train__threads": 1}
        peaks, states = {}, {}
        for ranks, reduce, shard in ((2, "ordered", True), (3, "ordered", True), (2, "native", True), (2, "ordered", False)):
            job["distributed__reduce"] = f'"{reduce}"'
            job["policies__shard__enabled"] = str(shard).lower()
            planned = self.planned(ranks, **job)
            measured = self.run_as_planned(ranks, planned, **job)
            key = (ranks, reduce, shard)
            peaks[key] = {one["name"]: one["peak_bytes"] for one in planned["phases"]}
            states[key] = [planned["peak"]["categories"][one] for one in ("optimizer", "ema")]
            sent = measured["ranks"]["sent_in_step"]
            self.assertEqual(planned["plan"]["sent_in_step"], sent)
            self.assertEqual(set(sent), {"allreduce", "alltoall", "broadcast"})
            said = measured["ranks"]["peak_bytes"]
            self.assertEqual(said["most"], measured["peak"]["bytes"])  # the leader's, which has the largest part
            self.assertEqual(said["rank"], 0)
            self.assertEqual(measured["ranks"]["count"], ranks)
        alone = self.planned(1, **(job | {"policies__shard__enabled": '"default"'}))
        peaks[1] = {one["name"]: one["peak_bytes"] for one in alone["phases"]}
        # Else this shows nothing.
        self.assertEqual(len({one["backward"] for one in peaks.values()}), 5)
        # 10,400 parameters: with whole cells of 64 elements, 5,248 of them are the first of two ranks', 3,600 the first of
        # three's; beside the moments four scalars, and a loss of each rank.
        self.assertEqual([alone["peak"]["categories"][one] for one in ("optimizer", "ema")], [8 * 10400 + 16, 4 * 10400])
        self.assertEqual(states[2, "ordered", False], [8 * 10400 + 24, 4 * 10400])
        self.assertEqual(states[2, "ordered", True], [8 * 5248 + 24, 4 * 5248])
        self.assertEqual(states[3, "ordered", True], [8 * 3600 + 28, 4 * 3600])

    def test_equal_a_run_of_divided_weights_to_the_byte(self):
        job = {"data__batch": 24, "train__accumulate": 4, "train__steps": 3, "train__threads": 1, "model__hidden": 128,
               "model__depth": 8, "data__validation": 8, "train__validate_every": 2}
        weights, peaks = {}, {}
        for level in ("optimizer", "parameters"):
            job["policies__shard__level"] = f'"{level}"'
            planned = self.planned(2, **job)
            measured = self.run_as_planned(2, planned, **job)
            self.assertEqual(planned["plan"]["sent_in_step"], measured["ranks"]["sent_in_step"])
            phases = {one["name"]: one for one in planned["phases"]}
            weights[level] = phases["optimizer"]["categories"]["parameters"]
            peaks[level] = planned["peak"]["bytes"]
        # Half of them, in whole cells, and nothing is gathered while they are updated.
        self.assertLess(weights["parameters"], 0.51 * weights["optimizer"])
        self.assertLess(peaks["parameters"], peaks["optimizer"])
        # While a model is made, all that a rank of eight has, and what comes and goes meanwhile, is less than the weights.
        job |= {"train__accumulate": 8, "train__validate_every": 0, "data__validation": 0}
        for level, is_less in (("optimizer", False), ("parameters", True)):
            job["policies__shard__level"] = f'"{level}"'
            planned = self.planned(8, **job)
            (build,) = [one["peak_bytes"] for one in planned["phases"] if one["name"] == "build"]
            self.assertEqual(build < weights["optimizer"], is_less)

    def test_equal_a_run_whose_blocks_are_sent_as_bf16_to_the_byte(self):
        job = {"data__batch": 24, "train__accumulate": 4, "train__steps": 3, "train__threads": 1, "model__hidden": 128,
               "model__depth": 4, "policies__shard__level": "parameters", "policies__shard__targets": '["blocks.*"]',
               "policies__shard__min_unit": 1, "policies__precision__enabled": "true", "policies__precision__cpu": "default"}  # fmt: skip
        sent, peaks = {}, {}
        for gather in ("fp32", "bf16"):
            job["policies__shard__gather"] = gather
            planned = self.planned(2, **job)
            measured = self.run_as_planned(2, planned, **job)
            self.assertEqual(planned["plan"]["sent_in_step"], measured["ranks"]["sent_in_step"])
            sent[gather] = planned["plan"]["sent_in_step"]["broadcast"]
            peaks[gather] = planned["peak"]["bytes"]
        self.assertLess(peaks["bf16"], peaks["fp32"])
        self.assertEqual(sent["bf16"]["messages"], sent["fp32"]["messages"])
        # Of each parameter, a unit here, the leader sends half, in cells of 64 elements; for two micro-batches, and for
        # blocks again before backward, which finds the last one's there.
        bytes_sent = {"fp32": 0, "bf16": 0}
        weights = programs.read_safetensors(self.folder / "run/checkpoints/step-00000003/model.safetensors")
        for name, (shape, values) in weights.items():
            if name == "pos_embed":  # which is not trained
                continue
            cells = -(-len(values) // 4 // 64)
            times = 2 * (2 if name.startswith("blocks.") and not name.startswith("blocks.3.") else 1)
            bytes_sent["fp32"] += times * -(-cells // 2) * 256
            halved = name.startswith("blocks.") and len(shape) > 1
            bytes_sent["bf16"] += times * -(-cells // 2) * (128 if halved else 256)
        self.assertEqual({gather: one["bytes"] for gather, one in sent.items()}, bytes_sent)

    def test_choose_the_first_level_that_fits_the_budget(self):
        job = {"data__batch": 24, "train__accumulate": 4, "train__steps": 3, "train__threads": 1, "model__hidden": 128,
               "model__depth": 8}  # fmt: skip
        needed = {
            level: self.planned(2, **job, policies__shard__level=f'"{level}"')["peak"]["bytes"]
            for level in ("optimizer", "parameters")
        }
        # Who does not leave it open is told of the other.
        for code, _, errors in self.finish(self.start_ranks(2, **job, memory__budget=needed["optimizer"] - 1)):
            self.assertEqual(code, 3)
            self.assertTrue(errors == "" or ', divide the weights too, which by its plan fits: set policies.shard.level = "parameters", set memory.budget = ' in errors, errors)
        job["policies__shard__level"] = '"auto"'
        for level, budget in (("parameters", needed["optimizer"] - 1), ("optimizer", needed["optimizer"])):
            planned = self.planned(2, **job, memory__budget=budget)
            self.assertEqual(planned["plan"]["divided"], level)
            self.assertEqual(planned["peak"]["bytes"], needed[level])
            run = f"run_{level}"
            said = self.run_ranks(2, **job, memory__budget=budget, train__out=run)
            how = "more than" if level == "parameters" else "within"
            reason = f'as "optimizer" takes {needed["optimizer"]} bytes by its plan, {how} memory.budget = {budget}'
            reason += f', and "parameters" {needed["parameters"]}' if level == "parameters" else ""
            self.assertIn(f'level = "auto": "{level}", {reason}\n', said)
            self.assertIn(f'\nlevel = "{level}"  # ', (self.folder / run / "config.toml").read_text())
            measured = json.loads((self.folder / run / "memory.json").read_text())
            self.assertLessEqual(measured["peak"]["bytes"], needed[level])
        self.assertEqual(self.hashes("run_parameters", "checkpoints/step-00000003"), self.hashes("run_optimizer", "checkpoints/step-00000003"))

    def test_choose_no_level_without_a_budget(self):
        result = programs.execute(PLAN, self.folder, "--config", "tiny.toml", "--world", "2", *settings({"policies__shard__level": "auto"}))
        self.assert_fails(
            result,
            2,
            '--set policies.shard.level=auto: policies.shard.level = "auto" is the first that fits memory.budget, which is not set; '
            'set it, or set policies.shard.level = "optimizer"',
        )

    def test_are_of_the_rank_that_holds_most(self):
        job = {"data__batch": 4, "train__accumulate": 2, "train__steps": 2, "train__threads": 1, "model__hidden": 264}
        planned = self.planned(2, **job)
        self.assertEqual(planned["plan"]["rank"], 1)  # the leader has more cells that are not full
        timed = {"train__steps": "default", "train__seconds": 60, "schedule__warmup": 9}
        self.assertEqual(self.planned(2, **(job | timed))["plan"]["rank"], 1)
        self.run_ranks(2, **job)
        said = json.loads((self.folder / "run/memory.json").read_text())["ranks"]["peak_bytes"]
        self.assertEqual((said["rank"], said["most"]), (1, planned["peak"]["bytes"]))
        self.assertLess(said["least"], said["most"])

    def test_know_the_policy_where_there_are_several_ranks(self):
        for ranks, rows in ((1, 32), (2, 64)):
            result = subprocess.run(
                [str(PLAN), "--config", "tiny.toml", "--device", "cpu", "--world", str(ranks), "--table", "--json"],
                cwd=self.folder,
                capture_output=True,
                text=True,
                timeout=100,
            )
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            table = json.loads(result.stdout)
            self.assertEqual(len(table), rows)
            names = {policy["name"] for row in table for policy in row["policies"]}
            self.assertEqual("shard" in names, ranks > 1)

    def test_of_several_worlds_keep_the_micro_batch(self):
        result = subprocess.run(
            [str(PLAN), "--config", "tiny.toml", "--device", "cpu", "--worlds", "1,3,8", "--json"]
            + settings({"data__batch": 8, "train__accumulate": 4, "train__threads": 1}),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=100,
        )
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        plans = [one["plan"] for one in json.loads(result.stdout)]
        self.assertEqual(
            [(one["ranks"], one["divided"], one["batch"]) for one in plans],
            [(1, "nothing", 8)]
            + [(ranks, level, batch) for ranks, batch in ((3, 12), (8, 16)) for level in ("optimizer", "parameters")],
        )
        self.assertEqual(plans[0]["sent_in_step"], {})
        for number, ranks, rounds in ((1, 3, 2), (3, 8, 1)):  # micro-batches of a rank; the tiny model is one unit
            for level in range(2):
                sent = plans[number + level]["sent_in_step"]
                self.assertEqual(sent["alltoall"]["messages"], rounds * (ranks - 1))
                # Weights behind the step, or before each forward pass, which leaves them to backward.
                self.assertEqual(sent["broadcast"]["messages"], (1, rounds)[level] * (ranks - 1))

    def test_refuse_what_is_no_number_of_ranks(self):
        for arguments, message in (
            (("--world", "0"), '--world 0: "0" is no number of ranks; allowed: [1, 1000000]'),
            (("--worlds", "8,abc"), '--worlds 8,abc: "abc" is no number of ranks; allowed: [1, 1000000]'),
            (("--world", "2", "--worlds", "2"), "--world and --worlds: each says how many ranks; give one of them"),
        ):
            result = programs.execute(PLAN, self.folder, "--config", "tiny.toml", *arguments)
            self.assert_fails(result, 2, message)


if __name__ == "__main__":
    programs.TRAIN, PLAN = (Path(path).absolute() for path in sys.argv[1:3])
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
