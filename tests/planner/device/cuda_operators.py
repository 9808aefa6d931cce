"""cuda_operators.py PROGRAM [--write]: no CUDA kernel is replaced silently where a CUDA device is simulated.

PROGRAM lists the operators with a kernel in libtorch_cuda in one process, and says in another, without
libtorch_cuda, what would become of each. The list in policies/planner/device/composite_cuda_operators.cpp must hold
those that the LibTorch of PROGRAM gives, and besides none that it has; --write adds and removes what is so.
"""

import re
import subprocess
import sys
import textwrap
import unittest
from collections import Counter
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[3] / "policies/planner/device/composite_cuda_operators.cpp"
PROGRAM = ""

HEAD = """\
// Written by tests/planner/device/cuda_operators.py --write.
#include "device/device_runtime.h"

namespace dtk::planner {

const std::vector<const char*>& composite_cuda_operators() {
  // clang-format off
  static const auto* const names = new std::vector<const char*>{
"""
TAIL = """};
  // clang-format on
  return *names;
}

}  // namespace dtk::planner
"""


def run(mode: str, names: list[str] = ()) -> list[str]:
    text = "".join(name + "\n" for name in names)
    result = subprocess.run([PROGRAM, mode], input=text, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return sorted(result.stdout.splitlines())


def source(names: list[str]) -> str:
    listed = ", ".join(f'"{name}"' for name in names)
    return HEAD + textwrap.fill(listed, 110, initial_indent=" " * 6, subsequent_indent=" " * 6) + TAIL


def renewed(composites: list[str]) -> list[str]:
    """The list with those of this LibTorch; of others, what this one does not have."""
    listed = re.findall(r'"(\w+::[\w.]+)"', SOURCE.read_text())
    return sorted({*composites, *run("unknown", listed)})


class CudaOperators(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.kernels = run("kernels")

    def test_the_list_of_composites_is_up_to_date(self):
        self.assertGreater(len(self.kernels), 1000)
        composites = run("composites", self.kernels)
        self.assertIn("aten::silu_backward", composites)
        self.assertEqual(SOURCE.read_text(), source(renewed(composites)), f"run {Path(__file__).name} --write")

    def test_the_simulated_device_takes_no_operator_apart_that_cuda_does_not(self):
        lines = run("check", self.kernels)
        kinds = Counter(line.split()[0] for line in lines)
        print(f"{len(self.kernels)} operators with a CUDA kernel: {dict(kinds)}")
        self.assertEqual([line for line in lines if line.startswith("composite ")], [])
        self.assertEqual(set(kinds), {"own", "structured", "by_shapes"})

    def test_the_check_finds_an_operator_that_is_taken_apart(self):
        # Composite on every device, so never in the list.
        self.assertEqual(run("check", ["aten::linear"]), ["composite aten::linear"])


if __name__ == "__main__":
    PROGRAM = sys.argv[1]
    if sys.argv[2:] == ["--write"]:
        SOURCE.write_text(source(renewed(run("composites", run("kernels")))))
    else:
        unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
