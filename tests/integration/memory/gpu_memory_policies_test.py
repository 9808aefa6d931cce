"""What each policy removes on a CUDA device. Label gpu: skipped where no driver answers."""
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from gpu import SKIPPED, driver_problem  # noqa: E402
from memory_policies_test import rows, trainable, without

ROUNDING = 512  # bytes to which the caching allocator rounds each tensor up


def main(program: str) -> int:
    problem = driver_problem()
    if problem:
        print(f"SKIPPED: {problem}")
        return SKIPPED
    command = [program, "--model", "DiT-S/2", "--batch", "64", "--steps", "2", "--device", "cuda", "--bytes"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    print(text)
    table = rows(text)
    assert len(table) == 16, len(table)
    peak = {on: row.peak for on, row in table.items()}
    assert table[(False,) * 4].gradients == "bit-equal", table  # it ran twice
    parameters, tensors = trainable(text)
    moves = 0
    for on, row in table.items():
        for policy in range(4):
            if on[policy] and policy != 0:  # bf16 alone can raise a small batch's peak by its casts of weights
                assert row.peak < peak[without(on, policy)], (on, policy, table)
        same_phase = on[2] and row.phase == table[without(on, 2)].phase
        if same_phase:  # the average is all that leaves the device
            moves += 1
            moved = peak[without(on, 2)] - row.peak
            assert 4 * parameters <= moved <= 4 * parameters + ROUNDING * tensors, (on, moved, parameters)
    assert moves > 0, ("no two peaks were in the same phase, so the average's bytes were compared nowhere", table)
    assert peak[(True,) * 4] < peak[(False,) * 4] / 3, peak
    assert re.search(r"\nEMA: \d+ B moved off cuda.* ms hidden and .* ms exposed on the host an update\n", text), text
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
