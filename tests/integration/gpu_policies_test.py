"""What each policy removes on a CUDA device. Label gpu: skipped where no driver answers."""
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from gpu_training_test import SKIPPED, driver_problem


def rows(text: str) -> dict:
    """(precision, attention, ema, checkpoint) -> peak bytes."""
    found = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split("|")]
        if len(cells) == 9 and cells[4].isdigit():
            found[tuple(cell == "on" for cell in cells[:4])] = int(cells[4])
    return found


def main(program: str) -> int:
    problem = driver_problem()
    if problem:
        print(f"SKIPPED: {problem}")
        return SKIPPED
    command = [program, "--model", "DiT-S/2", "--batch", "64", "--steps", "2", "--device", "cuda", "--bytes"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    print(text)
    peak = rows(text)
    assert len(peak) == 16, len(peak)
    for key, value in peak.items():
        for policy in range(4):
            without = key[:policy] + (False,) + key[policy + 1 :]
            if key[policy] and policy != 0:  # bf16 alone can raise a small batch's peak by its casts of weights
                assert value < peak[without], (key, policy, value, peak[without])
    assert peak[(True,) * 4] < peak[(False,) * 4] / 3, peak
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
