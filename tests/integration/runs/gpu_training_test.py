"""Three steps on a CUDA device, and the memory report of them. Label gpu: skipped where no driver answers."""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import programs  # noqa: E402
from gpu import SKIPPED, driver_problem  # noqa: E402


def main(train: str) -> int:
    problem = driver_problem()
    if problem:
        print(f"SKIPPED: {problem}")
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        programs.write_inputs(Path(folder))
        command = [train, "--config", "tiny.toml", "--device", "cuda", "--set", "train.steps=3", "--set", "train.out=run"]
        subprocess.run(command, cwd=folder, check=True)
        memory = json.loads((Path(folder) / "run/memory.json").read_text())
        over = [*command[:-1], "train.out=over", "--set", "memory.budget=1MB", "--set", "memory.on_over_budget=warn"]
        refused = subprocess.run(over, cwd=folder, capture_output=True, text=True)
    # What the allocator refuses, before a step is over: its message names the limit as LibTorch does.
    assert refused.returncode == 3, refused
    assert "out of memory" in refused.stderr.lower(), refused.stderr
    assert memory["device"] == "cuda:0", memory["device"]
    assert memory["peak"]["bytes"] > 0 and memory["host"]["peak_bytes"] > 0, memory
    names = [phase["name"] for phase in memory["phases"]]
    assert {"build", "first_step", "forward", "backward", "optimizer", "ema", "sample", "save"} <= set(names), names
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
