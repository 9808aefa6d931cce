"""Several ranks that train together: bits, keys, what they must have alike."""

import hashlib
import json
import os
import shutil
import struct
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import llava_job  # noqa: E402
import programs  # noqa: E402
from png import write_png  # noqa: E402
from programs import settings  # noqa: E402
from ranks import JOB, LAST, RanksTest, free_port  # noqa: E402

SENT_AS_BF16 = {
    "policies__shard__level": "parameters",
    "policies__shard__gather": "bf16",
    "policies__shard__targets": '["blocks.*"]',
    "policies__precision__enabled": "true",
    "policies__precision__cpu": "default",
}


class Bits(RanksTest):
    """At some numbers of ranks; rank_matrix_test.py has all."""

    def test_are_those_of_one_rank_at_any_number(self):
        self.assert_same_at_any_number([2, 6])

    def test_are_those_of_one_rank_without_recomputing_and_clipping(self):
        self.assert_same_at_any_number([3], policies__checkpoint__enabled="false", optimizer__clip=0)

    def test_are_those_of_one_rank_in_bf16(self):
        self.assert_same_at_any_number([2], policies__precision__cpu='"bf16"')

    def test_are_those_of_one_rank_that_begins_with_weights_of_a_file(self):
        large = {"model__hidden": 128, "model__depth": 3}
        self.assert_done(self.train(train__out="before", **(JOB | large | {"train__steps": 7})))
        weights = '"before/checkpoints/step-00000007"'
        self.assert_same_at_any_number([2], **large, train__init_from=weights, policies__shard__level='"parameters"')

    def test_are_those_of_one_rank_where_steps_may_be_skipped(self):
        self.assert_same_at_any_number([2], train__on_not_finite='"skip"')

    def test_are_those_of_one_rank_with_validation_samples_flips_and_v_prediction(self):
        self.assert_same_at_any_number(
            [3],
            data__validation=8,
            data__flip="true",
            train__validate_every=5,
            train__sample_every=5,
            diffusion__objective='"v"',
            policies__ema__every=3,
        )

    def test_are_those_of_one_rank_with_many_units(self):
        self.assert_same_at_any_number([2, 3], model__hidden=128, model__depth=2)

    def test_are_those_of_one_rank_where_groups_have_rates_and_vectors_do_not_decay(self):
        self.assert_same_at_any_number(
            [3],
            optimizer__rates='["blocks.*: 3e-3"]',
            optimizer__decays='"matrices"',
            optimizer__weight_decay=0.1,
            memory__ledger="false",
        )

    def test_are_those_of_one_rank_where_each_updates_all(self):
        self.assert_same_at_any_number([2, 3], policies__shard__enabled="false")

    def test_divided_and_whole_states_go_on_from_each_others_checkpoints(self):
        job = JOB | {"schedule__kind": '"constant"', "train__out": "run", "train__steps": 7}
        self.assert_done(self.train(**(job | {"train__out": "alone", "train__steps": 20})))
        self.run_ranks(2, **job)
        self.run_ranks(3, "--resume", "run", **(job | {"train__steps": 14, "policies__shard__enabled": "false"}))
        self.run_ranks(4, "--resume", "run", **(job | {"train__steps": 20}))
        self.assertEqual(self.hashes("run"), self.hashes("alone"))

    def test_are_those_of_one_rank_where_each_has_a_part_of_the_weights(self):
        divided = {"policies__shard__level": '"parameters"', "model__hidden": 128, "model__depth": 2}
        self.assert_same_at_any_number([3, 4], **divided)

    def test_are_those_of_one_rank_where_weights_are_divided_and_nothing_is_recomputed(self):
        self.assert_same_at_any_number(
            [3],
            policies__shard__level='"parameters"',
            policies__checkpoint__enabled="false",
            policies__precision__cpu='"bf16"',
            model__hidden=128,
            model__depth=2,
            data__validation=8,
            train__validate_every=5,
            train__sample_every=5,
            policies__ema__every=3,
        )

    def test_are_those_of_one_rank_where_segments_of_two_blocks_gather_their_weights(self):
        self.assert_same_at_any_number(
            [2],
            policies__shard__level='"parameters"',
            policies__checkpoint__segment=2,
            policies__checkpoint__keep='["aten::addmm"]',
            model__hidden=128,
            model__depth=4,
            train__on_not_finite='"skip"',
            sample__ema="false",
            train__sample_every=5,
        )

    def test_are_those_of_one_rank_where_weights_of_blocks_are_sent_as_bf16(self):
        self.assert_same_at_any_number(
            [2, 3],
            **SENT_AS_BF16,
            model__hidden=128,
            model__depth=2,
            data__validation=8,
            train__validate_every=5,
            train__sample_every=10,
        )

    def test_weights_that_autocast_does_not_round_are_not_sent_as_bf16(self):
        job = JOB | SENT_AS_BF16 | {"policies__shard__targets": "default"}
        for code, _, errors in self.finish(self.start_ranks(2, **job)):
            self.assertEqual(code, 2)
            self.assertTrue(errors == "" or 'gather = "bf16" would round the weights of final_layer, which policies.precision.fp32 keeps; name other modules in policies.shard.targets' in errors, errors)

    def test_of_a_precision_that_a_start_decides_may_have_divided_weights(self):
        job = JOB | {"policies__shard__level": '"parameters"', "policies__precision__cpu": '"probe"', "train__steps": 2}
        self.run_ranks(2, **job)

    def test_levels_go_on_from_each_others_checkpoints(self):
        job = JOB | {"schedule__kind": '"constant"', "model__hidden": 128, "model__depth": 2}
        self.assert_done(self.train(train__out="alone", **job))
        job |= {"train__out": "run"}
        parameters = {"policies__shard__level": '"parameters"'}
        self.run_ranks(4, **(job | parameters | {"train__steps": 7}))
        optimizer = {"policies__shard__level": '"optimizer"'}
        self.run_ranks(2, "--resume", "run", **(job | optimizer | {"train__steps": 10}))
        self.run_ranks(3, "--resume", "run", **(job | parameters | {"train__steps": 14}))
        self.assert_done(self.train("--resume", "run", **(job | parameters)))
        self.assertEqual(self.hashes("run"), self.hashes("alone"))

    def test_go_on_with_another_number_of_ranks(self):
        constant = JOB | {"schedule__kind": '"constant"'}
        self.assert_done(self.train(train__out="alone", **constant))
        job = constant | {"train__out": "run", "train__steps": 7}
        self.run_ranks(4, **job)
        for steps, ranks in ((10, 2), (14, 3)):
            self.run_ranks(ranks, "--resume", "run", **(job | {"train__steps": steps}))
        last = self.train("--resume", "run", **(job | {"train__steps": 20}))
        self.assert_done(last)
        self.assertEqual(self.hashes("run"), self.hashes("alone"))

    def test_of_what_else_a_checkpoint_holds_do_not_tell_the_number(self):
        job = JOB | {"train__steps": 3, "train__out": "run"}
        states = []
        for ranks in (1, 2, 3):
            if ranks == 1:
                self.train(**job)
            else:
                self.run_ranks(ranks, **job)
            folder = self.folder / "run/checkpoints/step-00000003"
            files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
            for name in ("manifest.json", "state.json"):  # which hold times
                del files[name]
            state = json.loads((folder / "state.json").read_text())
            self.assertGreater(state.pop("seconds"), 0)
            states.append((files, state))
            shutil.rmtree(self.folder / "run")
        self.assertEqual(states[1], states[0])
        self.assertEqual(states[2], states[0])


LLAVA = llava_job.configuration("steps = 6\naccumulate = 6\nlog_every = 1\n", batch=12)


class Dialogues(RanksTest):
    """Micro-batches weigh as many labels as they have, and some have no picture."""

    def test_bits_are_those_of_one_rank(self):
        shutil.copy(Path(__file__).parents[2] / "fixtures/tokenizer.model", self.folder)
        write_png(self.folder / "0.png", 16, 16, bytes(range(256)))
        dialogues = []
        for number in range(40):
            answer = " ".join(["a bag", "two shoes", "no", "it is a dress of wool"][number * 7 % 4 :])
            picture = {"image": "0.png"} if number % 3 else {}
            question = "<image>\nwhat is it?" if picture else "is it there?"
            turns = [{"from": "human", "value": question}, {"from": "gpt", "value": answer}]
            dialogues.append({"id": str(number), "conversations": turns} | picture)
        (self.folder / "list.json").write_text(json.dumps(dialogues))
        (self.folder / "llava.toml").write_text(LLAVA)
        alone = programs.execute(
            programs.TRAIN, self.folder, "--config", "llava.toml", "--device", "cpu", "--out", "alone"
        )
        self.assertEqual((alone.returncode, alone.stderr), (0, ""))
        losses = self.losses("alone")
        self.assertEqual(len(losses), 6)
        for ranks, level in ((2, "optimizer"), (3, "optimizer"), (2, "parameters")):
            run = f"{ranks} of {level}"
            divided = settings({"policies__shard__level": f'"{level}"'})
            results = self.finish(self.start_ranks(ranks, "--out", run, *divided, config="llava.toml"))
            self.assertEqual([(code, errors) for code, _, errors in results], [(0, "")] * ranks)
            self.assertEqual(self.losses(run), losses)
            folders = [self.folder / one / "checkpoints/step-00000006" for one in ("alone", run)]
            names = [sorted(path.name for path in folder.glob("*.safetensors")) for folder in folders]
            self.assertEqual(*names)
            for name in names[0]:
                one, other = (hashlib.sha256((folder / name).read_bytes()).hexdigest() for folder in folders)
                self.assertEqual(one, other, name)


class Native(RanksTest):
    def tensors(self, run: str) -> dict[str, list[float]]:
        stored = programs.read_safetensors(self.folder / run / LAST / "model.safetensors")
        return {name: list(struct.unpack(f"<{len(data) // 4}f", data)) for name, (_, data) in stored.items()}

    def test_the_bits_are_those_of_as_many_ranks_and_near_one_ranks(self):
        job = JOB | {"distributed__reduce": '"native"'}
        self.assert_done(self.train(train__out="alone", **job))
        for run in ("first", "second"):
            self.run_ranks(2, train__out=run, **job)
        self.assertEqual(self.hashes("second"), self.hashes("first"))
        self.run_ranks(2, train__out="whole", policies__shard__enabled="false", **job)
        self.assertEqual(self.hashes("whole"), self.hashes("first"))
        self.assertNotEqual(self.hashes("first"), self.hashes("alone"))  # else it were ordered
        for level in ("optimizer", "parameters"):  # with a short step, whose last round has one micro-batch
            self.run_ranks(3, train__out=level, policies__shard__level=f'"{level}"', **job)
        self.assertEqual(self.hashes("parameters"), self.hashes("optimizer"))
        alone, two = self.tensors("alone"), self.tensors("first")
        for name, values in alone.items():
            largest = max(map(abs, values))
            for one, other in zip(values, two[name], strict=True):
                self.assertLess(abs(one - other), 1e-5 * max(1, largest), name)


class Keys(RanksTest):
    def test_a_micro_batch_a_rank_is_the_default_and_is_saved(self):
        self.run_ranks(2, train__steps=2)
        saved = (self.folder / "run/config.toml").read_text()
        self.assertIn("accumulate = 2  # default: one micro-batch a rank\n", saved)
        # What it was begun with counts, whatever the number of ranks.
        self.run_ranks(1, "--resume", "auto", train__steps=4)
        self.assertIn("accumulate = 2  # the checkpoint's\n", (self.folder / "run/config.toml").read_text())
        results = self.finish(self.start_ranks(3, "--resume", "auto", train__steps=6))
        self.assertEqual([code for code, _, _ in results], [2, 2, 2], results)
        (said,) = [errors for _, _, errors in results if errors]
        self.assertIn("train.accumulate = 2: 3 ranks do not divide the micro-batches of a step; start 1 or 2 ranks", said)

    def test_a_default_that_is_taken_back_is_a_micro_batch_a_rank(self):
        (self.folder / "tiny.toml").write_text((self.folder / "tiny.toml").read_text().replace("log_every", "accumulate = 1\nlog_every"))
        job = {"data__batch": 8, "train__steps": 2}
        for code, _, errors in self.finish(self.start_ranks(2, **job)):
            self.assertEqual(code, 2)
            self.assertTrue(errors == "" or "2 ranks do not divide the micro-batches of a step; start 1 rank, or set train.accumulate = 2" in errors, errors)
        said = self.run_ranks(2, **job, train__accumulate="default")
        self.assertIn("2 ranks, each runs 1 of the 2 micro-batches of a step", said)

    def test_one_rank_has_nobody_to_share_with(self):
        result = self.train(policies__shard__enabled="true")
        self.assert_fails(
            result,
            2,
            "--set policies.shard.enabled=true: policies.shard.enabled = true has no effect where one rank trains alone; "
            "start several ranks, or leave it at \"default\"",
        )

    def test_the_leaders_clock_ends_all_after_the_same_step(self):
        self.run_ranks(2, train__steps=1000000, train__seconds=2, train__log_every=1)
        self.assertEqual(len(self.checkpoints()), 1)
        (end_of_run,) = [one for one in self.log() if one["event"] == "end"]
        self.assertEqual(self.checkpoints(), [f"step-{end_of_run['step']:08}"])

    def assert_refused(self, ranks: int, message: str, **values) -> None:
        """By one of them, at all; nothing is touched."""
        results = self.finish(self.start_ranks(ranks, **values))
        self.assertEqual([code for code, _, _ in results], [2] * ranks, results)
        said = [errors for _, _, errors in results if errors]
        self.assertEqual(len(said), 1, said)
        self.assertRegex(said[0], rf"^dit-train: rank \d on \S+: {message}\n$")
        self.assertFalse((self.folder / "run").exists())

    def test_another_thread_count_may_be_accepted_on_resume(self):
        self.run_ranks(2, train__steps=2)
        job = {"train__steps": 4, "train__threads": 2}
        results = self.finish(self.start_ranks(2, "--resume", "auto", **job))
        self.assertEqual([code for code, _, _ in results], [2, 2], results)
        self.run_ranks(2, "--resume", "auto", **job, train__allow_thread_change="true")

    def test_a_run_without_a_checkpoint_gives_way_to_an_automatic_one(self):
        job = {"train__steps": 100000000, "schedule__kind": '"constant"', "train__log_every": 1, "train__sample_every": 1}
        process = self.start_rank(0, 1, 0, *settings(job))
        self.wait_for(process, "run/log.jsonl", '"event":"sample"')
        process.kill()
        process.communicate()
        self.assertTrue(list((self.folder / "run/samples").iterdir()))
        refused = self.train(train__steps=2)
        self.assertEqual(refused.returncode, 2)
        said = self.run_ranks(2, "--resume", "auto", train__steps=2)
        self.assertIn("run holds an earlier start that came to no checkpoint; this run takes its place\n", said)
        self.assertEqual([one["step"] for one in self.log() if one["event"] == "step"], [1, 2])

    def test_ranks_that_do_not_divide_accumulate(self):
        self.assert_refused(
            3,
            r"--set train\.accumulate=4: train\.accumulate = 4: 3 ranks do not divide the micro-batches of a step; start "
            r"1, 2 or 4 ranks, or set train\.accumulate = 6 with data\.batch = 12",
            train__accumulate=4,
        )

    def test_ranks_that_do_not_divide_the_batch(self):
        self.assert_refused(
            3, r"tiny\.toml:10:9: data\.batch = 8: 3 ranks do not divide it; set data\.batch = 9"
        )

    def test_nccl_moves_no_tensors_of_a_cpu(self):
        self.assert_refused(
            2,
            r'--set distributed\.backend=nccl: distributed\.backend = "nccl": NCCL is for GPUs, and this rank trains on the '
            r'CPU; set distributed\.backend = "auto"',
            distributed__backend="nccl",
        )

    def test_gloo_may_be_asked_for(self):
        self.run_ranks(2, train__steps=1, distributed__backend='"gloo"')

    def test_what_one_rank_alone_can_do(self):
        self.assert_refused(
            2,
            r"--set memory\.split=2: memory\.split = 2: where several ranks train, a micro-batch is not split; set "
            r"memory\.split = 1 and raise train\.accumulate",
            memory__split=2,
        )
        self.assert_refused(
            2,
            r'--set memory\.on_out_of_memory=escalate: memory\.on_out_of_memory = "escalate": one rank\'s choice would '
            r'not be the others\'; set memory\.on_out_of_memory = "stop"',
            memory__on_out_of_memory="escalate",
        )


class Disagreement(RanksTest):
    def start_two(
        self, *arguments: str, second_config: str = "tiny.toml", second_folder: Path | None = None
    ) -> list[subprocess.Popen]:
        port = free_port()
        return [
            self.start_rank(0, 2, port, *arguments),
            self.start_rank(1, 2, port, *arguments, config=second_config, folder=second_folder),
        ]

    def test_about_a_folder_is_seen_before_anything_is_written_into_it(self):
        other = self.folder / "other"
        other.mkdir()
        for name in ("images", "labels", "tiny.toml"):
            shutil.copy(self.folder / name, other)
        (first, _, nothing), (second, _, said) = self.finish(self.start_two(second_folder=other))
        self.assertEqual((first, second, nothing), (2, 2, ""))
        self.assertRegex(
            said,
            r'^dit-train: rank 1 on \S+: train\.out = "run": the folder of this name is not the one that rank 0 writes '
            r"into, and each rank writes files of checkpoints there; name a folder that all hosts share, and start the "
            r"ranks in the same folder where it is relative\n$",
        )
        self.assertEqual(list((self.folder / "run").iterdir()), [])
        self.assertFalse((other / "run").exists())
        shared = settings({"train__out": f'"{self.folder}/run"', "train__steps": 1})
        results = self.finish(self.start_two(*shared, second_folder=other))
        self.assertEqual([(code, errors) for code, _, errors in results], [(0, "")] * 2)

    def test_about_a_key_is_named_with_both_values(self):
        text = (self.folder / "tiny.toml").read_text()
        (self.folder / "other.toml").write_text(text.replace("lr = 1e-3", "lr = 2e-3"))
        (first, _, nothing), (second, _, said) = self.finish(self.start_two(second_config="other.toml"))
        self.assertEqual((first, second, nothing), (2, 2, ""))
        self.assertRegex(
            said,
            r"^dit-train: rank 1 on (\S+): optimizer\.lr = 0\.002 here, optimizer\.lr = 0\.001 at rank 0 on \1; give all "
            r"ranks the same configuration\n$",
        )

    def test_about_data_is_named(self):
        other = self.folder / "other"
        other.mkdir()
        for name in ("images", "labels", "tiny.toml"):
            shutil.copy(self.folder / name, other)
        images = programs.idx_images(120)
        (other / "images").write_bytes(images)
        (other / "labels").write_bytes(programs.idx_labels(120))
        (first, _, nothing), (second, _, said) = self.finish(self.start_two(second_folder=other))
        self.assertEqual((first, second, nothing), (4, 4, ""))
        self.assertRegex(said, r"^dit-train: rank 1 on \S+: the data are others than rank 0's; between its and these: ")
        self.assertFalse((self.folder / "run").exists())

    def test_about_contents_is_seen_where_they_are_compared(self):
        other = self.folder / "other"
        other.mkdir()
        for name in ("images", "labels", "tiny.toml"):
            shutil.copy(self.folder / name, other)
        images = bytearray((other / "images").read_bytes())
        images[-1] ^= 1
        (other / "images").write_bytes(images)
        port = free_port()
        contents = settings({"data__fingerprint": '"contents"'})
        started = [self.start_rank(0, 2, port, *contents), self.start_rank(1, 2, port, *contents, folder=other)]
        results = self.finish(started)
        self.assertEqual([code for code, _, _ in results], [4, 4], results)
        self.assertIn("contents", results[1][2])


class Variables(RanksTest):
    def one(self, **variables) -> tuple[int, str]:
        own = {name: value for name, value in os.environ.items() if not name.startswith(("RANK", "WORLD", "MASTER"))}
        result = subprocess.run(
            [str(programs.TRAIN), "--config", "tiny.toml", "--device", "cpu", "--set", "distributed.timeout=1"],
            cwd=self.folder,
            env=own | {name: str(value) for name, value in variables.items()},
            capture_output=True,
            text=True,
            timeout=60,
        )
        self.assertFalse((self.folder / "run").exists())
        return result.returncode, result.stderr

    def test_that_contradict_each_other(self):
        self.assertEqual(
            self.one(RANK=2, WORLD_SIZE=2, MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port()),
            (2, 'dit-train: RANK = "2" is none of the numbers from 0 to 1\n'),
        )
        self.assertEqual(
            self.one(RANK=0),
            (
                2,
                "dit-train: RANK is set and WORLD_SIZE is not; a launcher sets both, such as torchrun --no-python "
                "--nproc-per-node 2 dit-train ...; without ranks set neither\n",
            ),
        )
        self.assertEqual(
            self.one(RANK=0, WORLD_SIZE=2),
            (
                2,
                "dit-train: rank 0 of 2: MASTER_ADDR is not set, the host of rank 0; set it and MASTER_PORT, with mpirun by "
                "-x MASTER_ADDR=HOST -x MASTER_PORT=29500\n",
            ),
        )

    def test_of_ranks_that_do_not_come(self):
        port = free_port()
        code, errors = self.one(RANK=0, WORLD_SIZE=3, MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
        self.assertEqual(code, 6)
        self.assertRegex(
            errors, rf"^dit-train: rank 0 on \S+: of 3 ranks 1, 2 did not come to 127\.0\.0\.1:{port} within 1 s\n$"
        )
        code, errors = self.one(RANK=1, WORLD_SIZE=2, MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
        self.assertEqual(code, 6)
        self.assertRegex(
            errors,
            rf"^dit-train: rank 1 on \S+: nobody answers at 127\.0\.0\.1:{port}, where MASTER_ADDR and MASTER_PORT say that rank 0 "
            r"is; start it, or set them \(distributed\.timeout = 1 s\): Connection refused\n$",
        )

    def test_of_ranks_that_come_late(self):
        late_leader, late_follower = free_port(), free_port()
        words = settings({"distributed__timeout": 60, "train__out": '"waited"'})
        first = [self.start_rank(1, 2, late_leader, *words), self.start_rank(0, 2, late_follower, *words)]
        said = [process.stdout.readline() for process in first]
        self.assertRegex(
            said[0], rf"^rank 1 on \S+ waits for rank 0 at 127\.0\.0\.1:{late_leader} \(MASTER_ADDR, MASTER_PORT\), 60 s at most\n$"
        )
        self.assertRegex(
            said[1], rf"^rank 0 on \S+ waits: of 2 ranks 1 did not come to 127\.0\.0\.1:{late_follower} yet, 60 s at most\n$"
        )
        followed = self.finish([first[1], self.start_rank(1, 2, late_follower, *words)])
        self.assertEqual([(code, errors) for code, _, errors in followed], [(0, "")] * 2)
        shutil.rmtree(self.folder / "waited")
        led = self.finish([first[0], self.start_rank(0, 2, late_leader, *words)])
        self.assertEqual([(code, errors) for code, _, errors in led], [(0, "")] * 2)

    def test_of_two_processes_of_one_rank(self):
        port = free_port()
        started = [self.start_rank(rank, 3, port, *settings({"distributed__timeout": 3})) for rank in (0, 1, 1)]
        results = self.finish(started)
        self.assertEqual(sorted(code for code, _, _ in results), [2, 6, 6], results)
        (said,) = [errors for code, _, errors in results if code == 2]
        self.assertRegex(said, r"^dit-train: rank 1 on \S+: another process says that it is rank 1, too; ")


if __name__ == "__main__":
    programs.TRAIN = Path(sys.argv[1]).absolute()
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
