"""Ranks on two hosts; and a launcher that may be missing."""

import json
import os
import shutil
import subprocess
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import programs  # noqa: E402
from hosts import TwoHosts, missing  # noqa: E402
from programs import end, settings  # noqa: E402
from ranks import JOB, RanksTest, free_port  # noqa: E402

PLAN = Path("dit-plan")
PORT = 29511


class Hosts(RanksTest):
    def setUp(self):
        if why := missing():
            print("SKIPPED: " + why, flush=True)
            self.skipTest(why)
        super().setUp()
        self.hosts = TwoHosts()
        self.addCleanup(self.hosts.close)

    def start_on_hosts(self, **values) -> list[subprocess.Popen]:
        started = []
        words = settings({"distributed__interface": "v0"} | values)
        for rank in range(2):
            own = {"RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": TwoHosts.ADDRESS, "MASTER_PORT": PORT, "OMP_NUM_THREADS": 1}
            command = [*self.hosts.on(rank), str(programs.TRAIN), "--config", "tiny.toml", "--device", "cpu"]
            started.append(
                subprocess.Popen(
                    [*command, *words],
                    cwd=self.folder,
                    env=os.environ | {name: str(value) for name, value in own.items()},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
            self.addCleanup(end, started[-1])
        return started

    def test_bits_are_those_of_one_rank_and_what_is_sent_is_what_was_planned(self):
        job = JOB | {"model__hidden": 96, "model__depth": 3, "train__checkpoint_every": 0, "schedule__kind": '"constant"'}
        self.assert_done(self.train(train__out="alone", **job))
        sent = {}
        for steps in (2, 20):
            shutil.rmtree(self.folder / "run", ignore_errors=True)
            before = self.hosts.sent()
            results = self.finish(self.start_on_hosts(**(job | {"train__steps": steps})))
            self.assertEqual([(code, errors) for code, _, errors in results], [(0, "")] * 2)
            sent[steps] = self.hosts.sent() - before
        self.assertEqual(self.hashes("run"), self.hashes("alone"))
        words = settings(job | {"distributed__interface": "v0", "train__threads": 1})
        planned = programs.execute(
            PLAN, self.folder, "--config", "tiny.toml", "--device", "cpu", "--world", "2", "--json", *words
        )
        counted = json.loads(planned.stdout)["plan"]["sent_in_step"]
        self.assertEqual(json.loads((self.folder / "run/memory.json").read_text())["ranks"]["sent_in_step"], counted)
        in_step = sum(one["bytes"] for one in counted.values())
        # Of 20 steps the two that end an epoch have two micro-batches a rank in place of six.
        sums = counted["broadcast"]["bytes"]
        short = sums + (in_step - sums) * 2 // 6
        steps = 16 * in_step + 2 * short
        self.assertLess(abs((sent[20] - sent[2]) / steps - 1), 0.03, (sent, steps))

    def test_a_link_that_is_cut_ends_both(self):
        started = self.start_on_hosts(
            train__accumulate=2, train__steps=100000000, schedule__kind='"constant"', train__log_every=1, distributed__timeout=4
        )
        self.wait_for(started[0], "run/log.jsonl", '"event":"step"')
        self.hosts.cut()
        begun = time.monotonic()
        results = self.finish(started, timeout=30)
        self.assertLess(time.monotonic() - begun, 4 + 5)
        self.assertEqual([code for code, _, _ in results], [6, 6], results)
        self.assertFalse(any((self.folder / "run/checkpoints").iterdir()))

    def test_a_link_that_comes_back_in_time_and_a_slow_one_change_no_bit(self):
        job = JOB | {"train__steps": 60, "train__checkpoint_every": 0, "schedule__kind": '"constant"'}
        self.assert_done(self.train(train__out="alone", **job))
        alone = self.hashes("alone", "checkpoints/step-00000060")
        for slow in (False, True):
            with self.subTest(slow=slow):
                shutil.rmtree(self.folder / "run", ignore_errors=True)
                if slow:
                    self.hosts.limit(5)
                started = self.start_on_hosts(**job, distributed__timeout=20)
                self.wait_for(started[0], "run/log.jsonl", '"event":"step"')
                if not slow:
                    self.hosts.cut()
                    before = len(self.log())
                    time.sleep(2)
                    self.assertLessEqual(len(self.log()), before + 1)  # else the cut had no effect
                    self.hosts.mend()
                results = self.finish(started)
                self.assertEqual([(code, errors) for code, _, errors in results], [(0, "")] * 2)
                self.assertEqual(self.hashes("run", "checkpoints/step-00000060"), alone)

    def test_an_interface_that_is_not_there_is_named(self):
        results = self.finish(self.start_on_hosts(distributed__interface="v9", distributed__timeout=5))
        self.assertEqual([code for code, _, _ in results], [2, 2], results)
        self.assertIn('distributed.interface = "v9": rank ', results[0][2])


class Mpirun(RanksTest):
    def test_mpirun(self):
        if shutil.which("mpirun") is None:
            print("SKIPPED: mpirun is not installed", flush=True)
            self.skipTest("no mpirun")
        port = free_port()
        self.launch(
            *("mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2"),
            *("-x", "MASTER_ADDR=127.0.0.1", "-x", f"MASTER_PORT={port}"),
        )


if __name__ == "__main__":
    programs.TRAIN, PLAN = (Path(path).absolute() for path in sys.argv[1:3])
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
