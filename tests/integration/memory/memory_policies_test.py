"""memory_policies_test.py MEMORY_POLICIES: the table of all combinations of the policies, on the CPU."""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

# Largest relative error of a gradient against the run without policies, by (precision, attention or fusion): measured on CPUs
# 2.5e-07 and 2.7e-07 with fused attention, 4.7e-03 to 5.0e-03 in bf16. The bounds leave a factor of 4 to 10 for other
# kernels; the lower one shows that bf16 was on at all.
ERROR_BOUNDS = {(False, True): (0.0, 2.5e-6), (True, False): (1e-4, 2e-2), (True, True): (1e-4, 2e-2)}
MODEL = ["--model", "DiT-S/4", "--depth", "2", "--batch", "16", "--steps", "1"]


class Row(NamedTuple):
    peak: int
    phase: str
    saved: str
    gradients: str
    bits: str  # digest of the gradients


def rows(text: str) -> dict[tuple[bool, ...], Row]:
    """(precision, attention, fusion, ema, checkpoint) -> what the table says of it, with --bytes."""
    found = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split("|")]
        if len(cells) == 12 and cells[5].isdigit():
            on = tuple(cell == "on" for cell in cells[:5])
            assert on not in found, line
            found[on] = Row(int(cells[5]), cells[6], cells[7], cells[10], cells[11])
    return found


def trainable(text: str) -> tuple[int, int]:
    """Parameters and tensors, by the header."""
    parameters, tensors = re.search(r"^(\d+) trainable parameters in (\d+) tensors$", text, re.M).groups()
    return int(parameters), int(tensors)


def without(on: tuple[bool, ...], policy: int) -> tuple[bool, ...]:
    return on[:policy] + (False,) + on[policy + 1 :]


def check_errors(on: tuple[bool, ...], row: Row, takes_bf16: bool) -> None:
    numerics = (on[0] and takes_bf16, on[1] or on[2])
    if numerics == (False, False):
        assert row.gradients == "bit-equal", (on, row)
        return
    error = re.fullmatch(r"numerics changed, max relative error (\S+)", row.gradients)
    if error is None:
        # So near that rounding explains it: other kernels may sum alike, bf16 cannot.
        assert not numerics[0] and re.fullmatch(r"bit-equal|within \d+ ulp", row.gradients), (on, row)
        return
    lowest, highest = ERROR_BOUNDS[numerics]
    assert lowest <= float(error[1]) <= highest, (on, row)


def check_reports(folder: str, table: dict[tuple[bool, ...], Row]) -> None:
    """Each combination's memory.json has the peak that the table says, and all its bytes have an owner."""
    assert len(list(Path(folder).iterdir())) == len(table), folder
    for on, row in table.items():
        peak = json.loads(Path(folder, "".join(str(int(is_on)) for is_on in on) + ".json").read_text())["peak"]
        assert (peak["bytes"], peak["phase"]) == (row.peak, row.phase), (on, peak)
        assert sum(peak["categories"].values()) == row.peak, (on, peak)


def main(program: str) -> int:
    with tempfile.TemporaryDirectory() as folder:
        command = [program, *MODEL, "--device", "cpu", "--bytes", "--reports", folder]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        print(text)
        table = rows(text)
        check_reports(folder, table)
    assert len(table) == 32, len(table)
    assert trainable(text)[0] > 5_000_000, text
    assert "\nEMA: nothing to move on the CPU: 0 B\n" in text
    # By default a CPU trains in bf16 where that was measured to be faster.
    takes_bf16 = re.search(r"^precision on this CPU, .*; taken: (bf16|fp32)", text, re.M)[1] == "bf16"
    none = table[(False,) * 5]
    assert none.gradients == "bit-equal", none
    for on, row in table.items():
        check_errors(on, row, takes_bf16)
        assert re.fullmatch("[0-9a-f]{16}", row.bits), row
        assert (row.bits == none.bits) == (row.gradients == "bit-equal"), (on, row)
        if on[1]:
            assert row.peak < table[without(on, 1)].peak, (on, row)
            if not on[4]:  # with checkpointing the weights live within a segment only
                assert int(row.saved) < int(table[without(on, 1)].saved), (on, row)
        if on[2]:
            assert row.peak <= table[without(on, 2)].peak, (on, row)
            if not on[4]:
                assert int(row.saved) < int(table[without(on, 2)].saved), (on, row)
        if on[3]:
            assert row.peak == table[without(on, 3)].peak, (on, row)
            assert row.bits == table[without(on, 3)].bits, (on, row)
        if on[4]:
            assert row.peak < table[without(on, 4)].peak, (on, row)
            assert int(row.saved) < int(table[without(on, 4)].saved), (on, row)
            assert row.bits == table[without(on, 4)].bits, (on, row)  # not a bit is another
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
