"""rank_matrix_test.py DIT_TRAIN: 20 steps at 1, 2, 3, 4, 6 and 12 ranks have the same bits: weights, moments, average, losses.

Each combination of what is divided, precision and recomputation, with clipping, dropped classes, flips and a short last step.
"""

import itertools
import shutil
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import programs  # noqa: E402
from ranks import RanksTest  # noqa: E402

NUMBERS = [2, 3, 4, 6]
NETWORK = {"model__hidden": 128, "model__depth": 2, "data__flip": "true"}  # of several units


class Matrix(RanksTest):
    def test_bits_are_those_of_one_rank(self):
        digests = {}
        for level, bf16, recomputes in itertools.product(("optimizer", "parameters"), (False, True), (False, True)):
            values = {"policies__shard__level": level, "policies__precision__cpu": "bf16" if bf16 else "fp32"}
            values["policies__checkpoint__enabled"] = "default" if recomputes else "false"
            for run in ("alone", *(f"ranks{ranks}" for ranks in NUMBERS)):
                shutil.rmtree(self.folder / run, ignore_errors=True)
            with self.subTest(**values):
                self.assert_same_at_any_number(NUMBERS, **NETWORK, **values)
                digests[level, bf16, recomputes] = self.hashes("alone")["model.safetensors"]
                print(f"{level}, {'bf16' if bf16 else 'fp32'}, {'recomputed' if recomputes else 'kept'}: "
                      f"{digests[level, bf16, recomputes]} at 1, {', '.join(map(str, NUMBERS))} ranks", flush=True)  # fmt: skip
        # What is divided and recomputed changes no bit, the precision does.
        self.assertEqual(len(digests), 8)
        self.assertEqual(len({digest for (_, bf16, _), digest in digests.items() if bf16}), 1)
        self.assertEqual(len(set(digests.values())), 2)

    def test_bits_of_a_micro_batch_a_rank(self):
        self.assert_same_at_any_number([12], **NETWORK)


if __name__ == "__main__":
    programs.TRAIN = Path(sys.argv[1]).absolute()
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
