"""overlap.py DIT_TRAIN: how much of what two ranks send hides behind what they compute, over a slow link.

Two ranks of one thread each, on hosts that are network namespaces, train a DiT in fp32 at both levels of policies.shard: over
a link of 200 Mbit/s, and, for K, what they compute, over one without a limit, in turns. C is what the bytes that the first host
sends in a step take on the slow link alone, at the rate of a stream that was measured there. Hidden to the last byte,
a step would take max(K, C); one after the other, K + C. Needs root, iproute2 and its tc."""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/integration/support")]
from hosts import TwoHosts, missing  # noqa: E402
from programs import settings, write_inputs  # noqa: E402
from ranks import environment, free_port  # noqa: E402

MEGABITS = 200
STEPS, FIRST = 7, 2  # of a run; the first has no weights of the one before on their way
JOB = {
    "train.accumulate": 2, "train.steps": STEPS, "train.log_every": 1, "schedule.kind": '"constant"',
    "model.hidden": 384, "model.depth": 6, "model.heads": 6,
    "policies.ema.enabled": "false", "policies.checkpoint.enabled": "false", "policies.precision.cpu": '"fp32"',
    "distributed.interface": '"v0"',
}  # fmt: skip
STREAM = 50_000_000  # bytes
RECEIVE = f"""
import socket
connection, _ = socket.create_server(("{TwoHosts.ADDRESS}", 9)).accept()
while connection.recv(1 << 20): pass
"""
SEND = f"""
import socket, time
connection = socket.create_connection(("{TwoHosts.ADDRESS}", 9))
begun = time.monotonic()
connection.sendall(bytes({STREAM}))
connection.shutdown(socket.SHUT_WR)
connection.recv(1)
print(time.monotonic() - begun)
"""


def stream_rate(hosts: TwoHosts) -> float:
    """Bytes that the link carries in a second."""
    receiver = subprocess.Popen([*hosts.on(0), sys.executable, "-c", RECEIVE])
    try:
        for _ in range(50):
            time.sleep(0.1)
            command = [*hosts.on(1), sys.executable, "-c", SEND]
            sender = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
            if sender.returncode == 0:
                return STREAM / float(sender.stdout)
        sys.exit("overlap: no connection between the hosts: " + sender.stderr)
    finally:
        receiver.kill()
        receiver.wait()


def run(hosts: TwoHosts, program: Path, folder: Path, job: dict) -> tuple[list[float], int]:
    """Seconds of each step that counts, and bytes that the first host sends in a step."""
    port = free_port()
    shutil.rmtree(folder / "run", ignore_errors=True)
    ranks = []
    for rank in range(2):
        command = [*hosts.on(rank), str(program), "--config", "tiny.toml", "--device", "cpu", *settings(job)]
        variables = environment(rank, 2, port) | {"MASTER_ADDR": TwoHosts.ADDRESS}
        ranks.append(subprocess.Popen(command, cwd=folder, env=variables, stdout=subprocess.DEVNULL))
    if any([rank.wait(timeout=900) for rank in ranks]):
        sys.exit("overlap: a rank failed")
    lines = [json.loads(line) for line in (folder / "run/log.jsonl").read_text().splitlines()]
    seconds = [line["seconds"] for line in lines if line["event"] == "step"]
    sent = json.loads((folder / "run/memory.json").read_text())["ranks"]["sent_in_step"]
    steps = [end - begin for begin, end in zip(seconds, seconds[1:])]
    return steps[FIRST - 1 :], sum(one["bytes"] for one in sent.values())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("program", type=Path)
    parser.add_argument("--batch", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--prefetch", type=int, default=1, help="policies.shard.prefetch, where weights are divided")
    arguments = parser.parse_args()
    if why := missing():
        sys.exit("overlap: " + why)
    program = arguments.program.absolute()
    hosts = TwoHosts()
    try:
        hosts.limit(MEGABITS)
        rate = stream_rate(hosts)
        print(f"a stream of bytes over the slow link: {rate * 8 / 1e6:.0f} Mbit/s\n")
        print("| level | K, s | C, s | a step, s | max(K, C) + 0.25 min(K, C) | hidden of the shorter |")
        print("|---|---:|---:|---:|---:|---:|")
        for level in ("optimizer", "parameters"):
            job = JOB | {"data.batch": arguments.batch, "policies.shard.level": f'"{level}"'}
            if level == "parameters":
                job["policies.shard.prefetch"] = arguments.prefetch
            times: dict[int, list[float]] = {0: [], MEGABITS: []}
            with tempfile.TemporaryDirectory() as name:
                write_inputs(Path(name))
                for _ in range(arguments.rounds):
                    for limit, steps in times.items():
                        hosts.limit(limit)
                        more, sent = run(hosts, program, Path(name), job)
                        steps += more
            k, step, c = median(times[0]), median(times[MEGABITS]), sent / rate
            spread = f"{min(times[MEGABITS]):.2f} to {max(times[MEGABITS]):.2f}"
            bound, hidden = max(k, c) + 0.25 * min(k, c), (k + c - step) / min(k, c)
            print(f"| {level} | {k:.2f} | {c:.2f} | {step:.2f} ({spread}) | {bound:.2f} | {hidden:.0%} |", flush=True)
    finally:
        hosts.close()


if __name__ == "__main__":
    main()
