"""memory_policies_test.py MEMORY_POLICIES: the table of all combinations of the policies, on the CPU."""

import re
import subprocess
import sys
from typing import NamedTuple

MODEL = ["--model", "DiT-S/4", "--depth", "2", "--batch", "8", "--steps", "1"]


class Row(NamedTuple):
    peak: int
    phase: str
    saved: str
    gradients: str


def rows(text: str) -> dict[tuple[bool, ...], Row]:
    """(precision, attention, ema, checkpoint) -> what the table says of it, with --bytes."""
    found = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split("|")]
        if len(cells) == 10 and cells[4].isdigit():
            on = tuple(cell == "on" for cell in cells[:4])
            assert on not in found, line
            found[on] = Row(int(cells[4]), cells[5], cells[6], cells[9])
    return found


def trainable(text: str) -> tuple[int, int]:
    """Parameters and tensors, by the header."""
    parameters, tensors = re.search(r"^(\d+) trainable parameters in (\d+) tensors$", text, re.M).groups()
    return int(parameters), int(tensors)


def without(on: tuple[bool, ...], policy: int) -> tuple[bool, ...]:
    return on[:policy] + (False,) + on[policy + 1 :]


def main(program: str) -> int:
    command = [program, *MODEL, "--device", "cpu", "--bytes"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    print(text)
    table = rows(text)
    assert len(table) == 16, len(table)
    assert trainable(text)[0] > 5_000_000, text
    assert "\nEMA: nothing to move on the CPU: 0 B\n" in text
    none = table[(False,) * 4]
    assert none.gradients == "bit-equal", none
    for on, row in table.items():
        kinds = r"bit-equal|within \d+ ulp|numerics changed, max relative error \d\.\de[-+]\d\d"
        assert re.fullmatch(kinds, row.gradients), row
        if on[1]:
            assert row.peak < table[without(on, 1)].peak, (on, row)
            if not on[3]:  # with checkpointing the weights live within a segment only
                assert int(row.saved) < int(table[without(on, 1)].saved), (on, row)
        if on[2]:
            assert row.peak == table[without(on, 2)].peak, (on, row)
        if on[3]:
            assert row.peak < table[without(on, 3)].peak, (on, row)
            assert int(row.saved) < int(table[without(on, 3)].saved), (on, row)
            assert row.gradients == table[without(on, 3)].gradients, (on, row)
    assert table[(False, False, True, True)].gradients == "bit-equal"
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
