"""Ranks that fail, stop or are started again, and launchers."""

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import programs  # noqa: E402
from png import write_png  # noqa: E402
from programs import end, settings  # noqa: E402
from ranks import JOB, RanksTest, free_port, processes_of  # noqa: E402

TORCHRUN = Path("torchrun")


class Failures(RanksTest):
    ENDLESS = {"train__steps": 100000000, "schedule__kind": '"constant"', "train__log_every": 1}

    def start_endless(self, ranks: int, **values) -> list[subprocess.Popen]:
        started = self.start_ranks(ranks, train__accumulate=ranks, data__batch=4 * ranks, **(self.ENDLESS | values))
        self.wait_for_step(started[0])
        return started

    def test_a_killed_rank_ends_all_others(self):
        """In whatever it does: a step, a save, a validation or samples."""
        busy = {"train__checkpoint_every": 1, "train__keep_checkpoints": 1, "train__validate_every": 2, "data__validation": 8}
        busy |= {"train__sample_every": 2, "sample__steps": 2}
        divided = busy | {"policies__shard__level": '"parameters"', "model__hidden": 128, "model__depth": 3}
        for killed, more in [(rank, job) for job in ({}, busy, divided) for rank in range(3)]:
            with self.subTest(killed=killed, job=more):
                shutil.rmtree(self.folder / "run", ignore_errors=True)
                started = self.start_endless(3, **more)
                time.sleep(0.1 * killed)
                started[killed].kill()
                begun = time.monotonic()
                results = self.finish(started, timeout=20)
                self.assertLess(time.monotonic() - begun, 2)
                for rank, (code, _, errors) in enumerate(results):
                    if rank == killed:
                        continue
                    self.assertEqual(code, 6, errors)
                    self.assertRegex(errors, rf"^dit-train: rank {rank} on \S+: another rank failed or does not answer, (before|in|while|behind) ")
                said = re.findall(r"; no word from rank ([^;]*); start all ranks again", "".join(errors for _, _, errors in results))
                self.assertIn(str(killed), ",".join(said), results)

    def test_a_rank_that_is_killed_while_it_starts_ends_the_others(self):
        timeout = 2
        for killed in (0, 1):
            for delay in (0.2, 0.5, 0.8):
                with self.subTest(killed=killed, delay=delay):
                    shutil.rmtree(self.folder / "run", ignore_errors=True)
                    job = self.ENDLESS | {"train__accumulate": 2, "distributed__timeout": timeout}
                    started = self.start_ranks(2, **job)
                    time.sleep(delay)
                    started[killed].kill()
                    begun = time.monotonic()
                    (code, _, errors), _ = self.finish([started[1 - killed], started[killed]], timeout=30)
                    self.assertEqual(code, 6, errors)
                    self.assertLess(time.monotonic() - begun, 2 * timeout + 5)  # to find rank 0, then to wait for all

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

    def test_a_disk_that_is_full_in_the_midst_of_the_moments_ends_all_and_keeps_the_last_checkpoint(self):
        def room_for_60_kb() -> None:  # weights take 42, moments 83
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))

        job = {"data__batch": 12, "train__accumulate": 6, "schedule__kind": '"constant"'}
        for ranks, writer in ((2, 0), (3, 2)):  # of the third file
            shutil.rmtree(self.folder / "run", ignore_errors=True)
            self.run_ranks(ranks, train__steps=2, **job)
            words = settings(job | {"train__steps": 4})
            port = free_port()
            started = []
            for rank in range(ranks):
                limit = room_for_60_kb if rank == writer else None
                started.append(self.start_rank(rank, ranks, port, "--resume", "run", *words, prepare=limit))
            results = self.finish(started, timeout=30)
            self.assertEqual([code for code, _, _ in results], [1] * ranks, results)
            said = results.pop(writer)[2]
            self.assertRegex(said, rf"^dit-train: rank {writer} on \S+: .*step-00000004\.partial/optimizer\.safetensors: .*File too large")
            self.assertEqual([errors for _, _, errors in results], [""] * (ranks - 1))
            self.assertEqual([path.name for path in (self.folder / "run/checkpoints").iterdir()], ["step-00000002"])

    def test_a_stop_in_the_last_validation_ends_all_with_a_checkpoint(self):
        for told, level in ((0, "optimizer"), (1, "optimizer"), (0, "parameters"), (1, "parameters")):
            shutil.rmtree(self.folder / "run", ignore_errors=True)
            job = {"train__accumulate": 2, "train__steps": 2, "train__validate_every": 2, "data__validation": 180}
            job |= {"policies__shard__level": f'"{level}"'}
            started = self.start_ranks(2, **(job | {"train__log_every": 1, "distributed__timeout": 20}))
            self.wait_for(started[0], "run/log.jsonl", '"step":2')
            started[told].send_signal(signal.SIGTERM)
            begun = time.monotonic()
            results = self.finish(started, timeout=60)
            self.assertLess(time.monotonic() - begun, 15)
            self.assertIn([code for code, _, _ in results], ([0, 0], [5, 5]), results)
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
        self.assertEqual(results[1][::2], (1, ""))

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
        keys = {"data__kind": "images", "data__folder": "set", "data__images": "default", "data__labels": "default"}
        words = settings(keys | {"train__accumulate": 2, "train__steps": 100})
        port = free_port()
        started = [self.start_rank(rank, 2, port, *words, folder=folder) for rank, folder in enumerate((whole, broken))]
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
    def test_torchrun(self):
        self.launch(str(TORCHRUN), "--no-python", "--nproc-per-node", "3", "--master-port", str(free_port()))

    def test_torchrun_with_rendezvous(self):
        """Its own store serves, of which every rank is a client."""
        self.launch(
            str(TORCHRUN),
            *("--no-python", "--nnodes", "1", "--nproc-per-node", "2", "--rdzv-backend", "c10d"),
            *("--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--max-restarts", "3"),
        )

    def test_a_killed_rank_is_started_again_and_goes_on_with_the_same_bits(self):
        job = JOB | {"train__steps": 300, "train__checkpoint_every": 20, "schedule__kind": '"constant"'}
        self.assert_done(self.train(train__out="alone", **job))
        command = [str(TORCHRUN), "--no-python", "--nproc-per-node", "2", "--master-port", str(free_port())]
        command += ["--max-restarts", "3", "--monitor-interval", "0.1", str(programs.TRAIN), "--config", "tiny.toml"]
        command += ["--device", "cpu", "--resume", "auto", *settings(job)]
        launcher = subprocess.Popen(
            command, cwd=self.folder, env=os.environ | {"OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.addCleanup(end, launcher)
        self.wait_for(launcher, "run/log.jsonl", '"event":"step"')  # before its first checkpoint, or behind it
        killed = processes_of(launcher.pid)
        self.assertEqual(len(killed), 2)
        os.kill(killed[1], signal.SIGKILL)
        errors = launcher.communicate(timeout=90)[1]
        self.assertEqual(launcher.returncode, 0, errors)
        last = "checkpoints/step-00000300"
        self.assertEqual(self.hashes("run", last), self.hashes("alone", last))

    def test_a_rank_that_was_refused_is_refused_again_at_once(self):
        command = [str(TORCHRUN), "--no-python", "--nproc-per-node", "2", "--master-port", str(free_port())]
        command += ["--max-restarts", "2", "--monitor-interval", "0.1", str(programs.TRAIN), "--config", "tiny.toml"]
        command += ["--device", "cpu", *settings({"train__accumulate": 3, "data__batch": 6})]
        result = subprocess.run(
            command, cwd=self.folder, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=90
        )
        self.assertEqual(result.returncode, 1)  # torchrun's own
        self.assertIn("train.accumulate = 3: 2 ranks do not divide", result.stderr)
        self.assertIn("another start would end as the one before: rank ", result.stderr)


if __name__ == "__main__":
    programs.TRAIN, TORCHRUN = (Path(path).absolute() for path in sys.argv[1:3])
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
