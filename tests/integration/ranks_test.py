"""Several ranks that train together: bits, one voice, launchers, refusals, ranks that fail."""

import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import unittest
from pathlib import Path

import programs
from png import write_png
from programs import ProgramTest, TENSOR_FILES, end, settings

PLAN = Path("dit-plan")
TORCHRUN = Path("torchrun")
# 200 images: an epoch is eight steps of 24 and one of 8, whose micro-batches are four of twelve.
JOB = {
    "data__batch": 24,
    "data__drop_last": "false",
    "train__accumulate": 12,
    "train__steps": 20,
    "train__log_every": 1,
    "train__checkpoint_every": 7,
    "train__keep_checkpoints": 9,
    "model__class_dropout": 0.3,
    "optimizer__clip": 0.5,
}
LAST = "checkpoints/step-00000020"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class RanksTest(ProgramTest):
    def environment(self, rank: int, ranks: int, port: int) -> dict[str, str]:
        own = {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": rank, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        return os.environ | {name: str(value) for name, value in own.items()} | {"OMP_NUM_THREADS": "1"}

    def start_ranks(self, ranks: int, *arguments: str, config: str = "tiny.toml", **values) -> list[subprocess.Popen]:
        port = free_port()
        command = [str(programs.TRAIN), "--config", config, "--device", "cpu", *settings(values), *arguments]
        started = []
        for rank in range(ranks):
            started.append(
                subprocess.Popen(
                    command,
                    cwd=self.folder,
                    env=self.environment(rank, ranks, port),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
            self.addCleanup(end, started[-1])
        return started

    def finish(self, started: list[subprocess.Popen], timeout: float = 100) -> list[tuple[int, str, str]]:
        """Exit code, output and errors of each."""
        results = []
        for process in started:
            output, errors = process.communicate(timeout=timeout)
            results.append((process.returncode, output, errors))
        return results

    def run_ranks(self, ranks: int, *arguments: str, **values) -> str:
        """What the leader says of a run that comes to its end, and nobody else does."""
        results = self.finish(self.start_ranks(ranks, *arguments, **values))
        self.assertEqual([(code, errors) for code, _, errors in results], [(0, "")] * ranks)
        self.assertEqual([output for _, output, _ in results[1:]], [""] * (ranks - 1))
        return results[0][1]

    def hashes(self, run: str, checkpoint: str = LAST) -> dict[str, str]:
        """SHA-256 of each file of tensors."""
        files = {name: self.folder / run / checkpoint / name for name in TENSOR_FILES}
        return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}

    def losses(self, run: str) -> list[tuple[int, float, float]]:
        return [(one["step"], one["loss"], one["gradient_norm"]) for one in self.log(run) if one["event"] == "step"]


class Bits(RanksTest):
    def assert_same_at_any_number(self, numbers: list[int], **values) -> None:
        job = JOB | values
        self.assert_done(self.train(train__out="alone", **job))
        alone, losses = self.hashes("alone"), self.losses("alone")
        self.assertEqual(len(losses), 20)
        for ranks in numbers:
            run = f"ranks{ranks}"
            self.run_ranks(ranks, train__out=run, **job)
            self.assertEqual(self.losses(run), losses, run)
            self.assertEqual(self.hashes(run), alone, run)

    def test_are_those_of_one_rank_at_any_number(self):
        self.assert_same_at_any_number([2, 3, 4, 6, 12])

    def test_are_those_of_one_rank_without_recomputing_and_clipping(self):
        self.assert_same_at_any_number([3], policies__checkpoint__enabled="false", optimizer__clip=0)

    def test_are_those_of_one_rank_in_bf16(self):
        self.assert_same_at_any_number([2], policies__precision__cpu='"bf16"')

    def test_are_those_of_one_rank_where_steps_may_be_skipped(self):
        self.assert_same_at_any_number([2], train__on_not_finite='"skip"')

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


class Keys(RanksTest):
    def test_a_micro_batch_a_rank_is_the_default_and_is_saved(self):
        self.run_ranks(2, train__steps=2)
        saved = (self.folder / "run/config.toml").read_text()
        self.assertIn("accumulate = 2  # default: one micro-batch a rank\n", saved)
        again = self.train("--resume", "run", "--set", "train.steps=4", train__accumulate=2)
        self.assert_done(again)

    def assert_refused(self, ranks: int, message: str, **values) -> None:
        """By one of them, at all; nothing is touched."""
        results = self.finish(self.start_ranks(ranks, **values))
        self.assertEqual([code for code, _, _ in results], [2] * ranks, results)
        said = [errors for _, _, errors in results if errors]
        self.assertEqual(len(said), 1, said)
        self.assertRegex(said[0], rf"^dit-train: rank \d on \S+: {message}\n$")
        self.assertFalse((self.folder / "run").exists())

    def test_ranks_that_do_not_divide_accumulate(self):
        self.assert_refused(
            3,
            r"--set train\.accumulate=4: train\.accumulate = 4: 3 ranks do not divide the micro-batches of a step; start "
            r"1, 2, 4 ranks, or set train\.accumulate = 6",
            train__accumulate=4,
        )

    def test_ranks_that_do_not_divide_the_batch(self):
        self.assert_refused(
            3, r"tiny\.toml:10:9: data\.batch = 8: 3 ranks do not divide it; set data\.batch = 9"
        )

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
    def start_two(self, second_config: str | None = None, second_folder: Path | None = None) -> list[subprocess.Popen]:
        port = free_port()
        started = []
        for rank in range(2):
            config = second_config if rank == 1 and second_config else "tiny.toml"
            folder = second_folder if rank == 1 and second_folder else self.folder
            command = [str(programs.TRAIN), "--config", config, "--device", "cpu"]
            started.append(
                subprocess.Popen(
                    command,
                    cwd=folder,
                    env=self.environment(rank, 2, port),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
            self.addCleanup(end, started[-1])
        return started

    def test_about_a_key_is_named_with_both_values(self):
        text = (self.folder / "tiny.toml").read_text()
        (self.folder / "other.toml").write_text(text.replace("lr = 1e-3", "lr = 2e-3"))
        (first, _, nothing), (second, _, said) = self.finish(self.start_two("other.toml"))
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
        self.assertRegex(said, r"^dit-train: rank 1 on \S+: other data than at rank 0: ")
        self.assertFalse((self.folder / "run").exists())


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
            rf"^dit-train: rank 1 on \S+: nobody answers at 127\.0\.0\.1:{port} within 1 s, where rank 0 should be: ",
        )

    def test_of_two_processes_of_one_rank(self):
        port = free_port()
        started = []
        for rank in (0, 1, 1):
            started.append(
                subprocess.Popen(
                    [str(programs.TRAIN), "--config", "tiny.toml", "--device", "cpu", "--set", "distributed.timeout=3"],
                    cwd=self.folder,
                    env=self.environment(rank, 3, port),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
            self.addCleanup(end, started[-1])
        said = "".join(process.communicate(timeout=60)[1] for process in started)
        self.assertRegex(said, r"another process says that it is rank 1, too")
        self.assertNotIn(0, [process.returncode for process in started])


class Failures(RanksTest):
    ENDLESS = {"train__steps": 100000000, "schedule__kind": '"constant"', "train__log_every": 1}

    def start_endless(self, ranks: int, **values) -> list[subprocess.Popen]:
        started = self.start_ranks(ranks, train__accumulate=ranks, data__batch=4 * ranks, **(self.ENDLESS | values))
        self.wait_for_step(started[0])
        return started

    def test_a_killed_rank_ends_all_others(self):
        for killed in range(3):
            with self.subTest(killed=killed):
                shutil.rmtree(self.folder / "run", ignore_errors=True)
                started = self.start_endless(3)
                started[killed].kill()
                begun = time.monotonic()
                results = self.finish(started, timeout=20)
                self.assertLess(time.monotonic() - begun, 4)
                for rank, (code, _, errors) in enumerate(results):
                    if rank == killed:
                        continue
                    self.assertEqual(code, 6, errors)
                    self.assertRegex(errors, rf"^dit-train: rank {rank} on \S+: another rank does not answer: ")

    def test_a_rank_that_stands_still_ends_the_others(self):
        started = self.start_endless(2, distributed__timeout=2)
        os.kill(started[1].pid, signal.SIGSTOP)
        begun = time.monotonic()
        (code, _, errors) = self.finish(started[:1], timeout=20)[0]
        self.assertLess(time.monotonic() - begun, 2 + 5)
        self.assertEqual(code, 6, errors)

    def test_a_stop_signal_to_any_rank_ends_all_with_a_checkpoint(self):
        for told in (0, 1):
            shutil.rmtree(self.folder / "run", ignore_errors=True)
            started = self.start_endless(2)
            started[told].send_signal(signal.SIGTERM)
            results = self.finish(started, timeout=30)
            self.assertEqual([(code, errors) for code, _, errors in results], [(5, ""), (5, "")])
            self.assertEqual(len(self.checkpoints()), 1)

    def test_the_rank_that_fails_says_why_and_all_end_with_its_code(self):
        started = self.start_endless(2)
        (self.folder / "run/checkpoints").chmod(0o755)
        shutil.rmtree(self.folder / "run/checkpoints")
        (self.folder / "run/checkpoints").write_text("a file in the folder's place")
        started[1].send_signal(signal.SIGTERM)
        results = self.finish(started, timeout=30)
        self.assertEqual(results[0][0], 1, results)
        self.assertRegex(results[0][2], r"^dit-train: rank 0 on \S+: .*run/checkpoints")

    def test_a_sample_that_one_rank_cannot_read_ends_all_with_its_text(self):
        whole, broken = self.folder / "whole", self.folder / "broken"
        for folder in (whole, broken):
            for label in range(4):
                (folder / f"set/class{label}").mkdir(parents=True)
                for number in range(8):
                    write_png(folder / f"set/class{label}/{number}.png", 8, 8, bytes(range(64)))
            shutil.copy(self.folder / "tiny.toml", folder)
        last = broken / "set/class2/5.png"
        last.write_bytes(last.read_bytes()[:30] + bytes(len(last.read_bytes()) - 30))
        port = free_port()
        started = []
        for rank, folder in enumerate((whole, broken)):
            command = [str(programs.TRAIN), "--config", "tiny.toml", "--device", "cpu"]
            keys = {"data__kind": "images", "data__folder": "set", "data__images": "default", "data__labels": "default"}
            command += settings(keys | {"train__accumulate": 2, "train__steps": 100})
            started.append(
                subprocess.Popen(
                    command,
                    cwd=folder,
                    env=self.environment(rank, 2, port),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
            self.addCleanup(end, started[-1])
        results = self.finish(started)
        self.assertEqual([code for code, _, _ in results], [4, 4], results)
        self.assertEqual(results[0][2], "")
        self.assertRegex(results[1][2], r"^dit-train: rank 1 on \S+: .*set/class2/5\.png")

    def test_no_number_ends_all_after_the_same_step(self):
        started = self.start_ranks(2, train__accumulate=2, optimizer__lr=1e20, optimizer__clip=0, train__log_every=1)
        results = self.finish(started)
        self.assertEqual([code for code, _, _ in results], [1, 1], results)
        self.assertEqual(len([errors for _, _, errors in results if errors]), 1)


class Launchers(RanksTest):
    def launch(self, *command: str, **variables) -> None:
        self.train(train__out="alone", **(JOB | {"train__steps": 3}))
        words = settings(JOB | {"train__steps": 3})
        result = subprocess.run(
            [*command, str(programs.TRAIN), "--config", "tiny.toml", "--device", "cpu", *words],
            cwd=self.folder,
            env=os.environ | {"OMP_NUM_THREADS": "1"} | {name: str(value) for name, value in variables.items()},
            capture_output=True,
            text=True,
            timeout=100,
        )
        self.assertEqual(result.returncode, 0, result.stderr)
        last = "checkpoints/step-00000003"
        self.assertEqual(self.hashes("run", last), self.hashes("alone", last))

    def test_torchrun(self):
        self.launch(str(TORCHRUN), "--no-python", "--nproc-per-node", "3", "--master-port", str(free_port()))

    def test_torchrun_with_rendezvous(self):
        """Its own store serves, of which every rank is a client."""
        self.launch(
            str(TORCHRUN),
            *("--no-python", "--nnodes", "1", "--nproc-per-node", "2", "--rdzv-backend", "c10d"),
            *("--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--max-restarts", "3"),
        )

    def test_mpirun(self):
        if shutil.which("mpirun") is None:
            print("SKIPPED: mpirun is not installed", flush=True)
            self.skipTest("no mpirun")
        port = free_port()
        self.launch(
            *("mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2"),
            *("-x", "MASTER_ADDR=127.0.0.1", "-x", f"MASTER_PORT={port}"),
        )


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

    def test_equal_the_leaders_run_to_the_byte(self):
        job = {"data__batch": 24, "train__accumulate": 12, "train__steps": 4, "train__threads": 1}
        peaks = {}
        for ranks in (2, 3):
            shutil.rmtree(self.folder / "run", ignore_errors=True)
            self.run_ranks(ranks, **job)
            measured = json.loads((self.folder / "run/memory.json").read_text())
            planned = self.planned(ranks, **job)
            for phase in measured["phases"]:
                (of_plan,) = [one for one in planned["phases"] if one["name"] == phase["name"]]
                self.assertEqual(of_plan["peak_bytes"], phase["peak_bytes"], (ranks, phase["name"]))
            peaks[ranks] = {one["name"]: one["peak_bytes"] for one in measured["phases"]}
        alone = {one["name"]: one["peak_bytes"] for one in self.planned(1, **job)["phases"]}
        self.assertNotEqual(peaks[2]["backward"], alone["backward"])  # else this shows nothing


if __name__ == "__main__":
    programs.TRAIN, PLAN, TORCHRUN = (Path(path).absolute() for path in sys.argv[1:4])
    unittest.main(argv=sys.argv[:1] + sys.argv[4:], verbosity=2)
