"""dit_statement.py DIT_JOB WITHOUT_GELU WITHOUT_GATE: one statement deleted in the DiT changes plan and run alike.

The programs are one job with the shipped layers, and with ones whose source lacks the activation of the MLP or the two
gates of a block; operators run one after the other. Each is planned and run: both agree to the byte for every model, and the models differ by what the statement's
result takes.
"""

import functools
import json
import subprocess
import sys
import unittest

BLOCKS, BATCH, TOKENS, HIDDEN = 2, 4, 16, 32
JOB = f"""
data.kind=synthetic data.samples=100 data.batch={BATCH} model.depth={BLOCKS} model.hidden={HIDDEN} model.heads=2
model.patch=2 model.image_size=8 model.channels=3 model.classes=5 train.steps=2 train.threads=1 train.out=runs/planned
policies.fusion.enabled=false sample.steps=3 sample.guidance=2.0 sample.classes=0-1 sample.per_class=2
""".split()
FP32 = ("policies.precision.enabled=false",)
BF16 = ("policies.precision.enabled=true",)
KEPT = ("policies.checkpoint.enabled=false",)
AGAIN = ("policies.checkpoint.enabled=true",)
OFFLOADED = ("policies.checkpoint.keep=offload", "policies.checkpoint.offload_min_bytes=0")
# (N, T, 4D) and twice (N, T, D): elements of the results, in one block.
GELU, GATES = BATCH * TOKENS * 4 * HIDDEN, 2 * BATCH * TOKENS * HIDDEN
# (N, 6D): the modulation, which nothing but the gates keeps.
MODULATION = 6 * BATCH * HIDDEN
PROGRAMS = []


@functools.cache
def job(program: str, *settings: str) -> dict:
    result = subprocess.run([program, *JOB, *settings], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def less_at_peak(whole: dict, without: dict) -> dict[str, int]:
    """Bytes by category."""
    others = without["peak"]["categories"]
    return {name: held - others[name] for name, held in whole["peak"]["categories"].items() if held != others[name]}


def fewer_births(whole: dict, without: dict) -> dict[str, tuple[int, int]]:
    """Storages and bytes by owner."""
    none = {"count": 0, "bytes": 0}
    found = {}
    for owner in whole["born"] | without["born"]:
        a, b = whole["born"].get(owner, none), without["born"].get(owner, none)
        if a != b:
            found[owner] = (a["count"] - b["count"], a["bytes"] - b["bytes"])
    return found


class Statement(unittest.TestCase):
    def phases(self, program: str, *settings: str) -> dict:
        """As measured, and as planned."""
        outcome = job(program, *settings)
        self.assertEqual(outcome["differences"], [], f"{program} {settings}")
        return outcome["measured"]

    def both(self, variant: str, *settings: str) -> tuple[dict, dict]:
        whole, without = self.phases(PROGRAMS[0], *settings), self.phases(variant, *settings)
        self.assertEqual(whole.keys(), without.keys())
        for phase in ("build", "ema", "optimizer", "save"):
            self.assertEqual(whole[phase], without[phase])
        return whole, without

    def test_a_result_less_is_saved_in_every_block(self):
        for variant, operator, elements, times, beside in ((PROGRAMS[1], "aten::gelu", GELU, 1, 0), (PROGRAMS[2], "aten::mul", GATES, 2, MODULATION)):
            for precision, size in ((FP32, 4), (BF16, 2)):
                with self.subTest(operator=operator, bytes_an_element=size):
                    whole, without = (phases["forward"] for phases in self.both(variant, *precision, *KEPT))
                    born = BLOCKS * elements * size
                    less = born + BLOCKS * beside * size
                    self.assertEqual(whole["peak"]["bytes"] - without["peak"]["bytes"], less)
                    self.assertEqual(less_at_peak(whole, without), {"saved": less})
                    self.assertEqual(fewer_births(whole, without), {f"temporaries {operator}": (times * BLOCKS, born)})

    def test_one_block_at_a_time_has_it_where_blocks_are_computed_again(self):
        whole, without = self.both(PROGRAMS[1], *FP32, *AGAIN)
        born = {"temporaries aten::gelu": (BLOCKS, BLOCKS * GELU * 4)}
        self.assertEqual(fewer_births(whole["forward"], without["forward"]), born)
        born["temporaries aten::gelu_backward"] = born["temporaries aten::gelu"]
        self.assertEqual(fewer_births(whole["backward"], without["backward"]), born)
        self.assertEqual(less_at_peak(whole["backward"], without["backward"]), {"saved": GELU * 4})
        self.both(PROGRAMS[2], *FP32, *AGAIN)

    def test_host_memory_has_it_where_blocks_are_offloaded(self):
        for variant, elements, times in ((PROGRAMS[1], GELU, 1), (PROGRAMS[2], GATES + MODULATION, 3)):
            with self.subTest(variant):
                whole, without = self.both(variant, *FP32, *OFFLOADED)
                host = "host memory in forward"
                self.assertEqual(less_at_peak(whole[host], without[host]), {"offloaded": BLOCKS * elements * 4})
                self.assertEqual(
                    fewer_births(whole[host], without[host]),
                    {f"offloaded blocks.{block}": (times, elements * 4) for block in range(BLOCKS)},
                )


if __name__ == "__main__":
    PROGRAMS = sys.argv[1:4]
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
