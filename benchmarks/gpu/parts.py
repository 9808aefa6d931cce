"""The parts of benchmarks/gpu_day: what is run, what it needs, and how long it may take."""

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"
# Copies in the background, where a wrong address would be ours.
SANITIZED = ("offload_test", "policies_test")
# compute-sanitizer's tools for kernels of our own. The tests of them that launch no kernels of libraries are tagged
# [kernels].
KERNEL_TOOLS = ("memcheck", "racecheck", "synccheck")
KERNELS = "libdtk_cuda_kernels.so"


def whole(text: str) -> str:
    return text


def last_lines(count: int) -> Callable[[str], str]:
    return lambda text: "\n".join(text.splitlines()[-count:])


@dataclasses.dataclass(frozen=True)
class Part:
    name: str
    title: str
    seconds: int  # its time box
    commands: Callable[[Path, Path], list[list[str]]]  # of the build folder and the folder of results
    tools: tuple[str, ...] = ()  # programs that it needs beside the build
    built: tuple[str, ...] = ()  # files of the build folder that not every build has
    torch: bool = False  # needs a Python torch with CUDA
    shorten: Callable[[str], str] = whole  # what of a command's output is kept in the results
    never: str = ""  # where a command prints it, the part has failed


def python(script: Path, *arguments: object) -> list[str]:
    return [sys.executable, "-B", str(script), *(str(argument) for argument in arguments)]


PLANS_AT_ONCE = 7  # half a minute each, most of it for a checkpoint
ON_CUDA = ["env", "DTK_TEST_DEVICE=cuda", "OMP_NUM_THREADS=1"]


def checked(tool: str, program: Path, tests: str) -> list[str]:
    return [*ON_CUDA, "compute-sanitizer", "--tool", tool, "--error-exitcode", "1", str(program), tests]


def without_wrappers(command: list[str]) -> list[str]:
    """The command without what it is run under."""
    return command[len(checked("", Path(), "")) - 2 :] if "compute-sanitizer" in command else command


def tests(build: Path, _: Path) -> list[list[str]]:
    return [["ctest", "--test-dir", str(build), "-L", "^gpu$", "--output-on-failure", "--timeout", "120", "--no-tests=error"]]


def sanitizer(build: Path, _: Path) -> list[list[str]]:
    return [checked("memcheck", build / "tests" / name, "[device]") for name in SANITIZED]


def kernels(tool: str) -> Callable[[Path, Path], list[list[str]]]:
    return lambda build, _: [checked(tool, build / "tests/cuda_ops_test", "[kernels]")]


def bandwidth(build: Path, _: Path) -> list[list[str]]:
    """The tokens of DiT-XL/2: 75 MB in bf16, more than a GPU's cache holds."""
    return [[str(build / "benchmarks/operator-bandwidth"), "--device", "cuda", "--kernels", str(build / KERNELS),
             "--samples", "128", "--tokens", "256", "--width", "1152"]]


def calibration(build: Path, out: Path) -> list[list[str]]:
    return [[str(build / "dit-plan"), "--calibrate", str(out / "calibration.json"), "--device", "cuda"]]


def plans(first: int) -> Callable[[Path, Path], list[list[str]]]:
    def commands(build: Path, _: Path) -> list[list[str]]:
        return [python(BENCHMARKS / "plans/device_accuracy.py", build / "dit-plan", build / "dit-train", ROOT / "configs",
                       "--first", first, "--jobs", PLANS_AT_ONCE)]
    return commands


def largest(build: Path, _: Path) -> list[list[str]]:
    return [python(BENCHMARKS / "gpu/largest_batch.py", build / "dit-plan", build / "dit-train", ROOT / "configs")]


def policies(build: Path, _: Path) -> list[list[str]]:
    program = str(build / "benchmarks/memory-policies")
    return [[program, "--model", "DiT-B/2", "--batch", "64", "--steps", "5", "--device", "cuda"]]


def attention(build: Path, _: Path) -> list[list[str]]:
    return [[str(build / "benchmarks/attention-kernels")]]


def step_time(*more: str) -> Callable[[Path, Path], list[list[str]]]:
    def commands(build: Path, _: Path) -> list[list[str]]:
        return [python(BENCHMARKS / "step_time/step_time.py", build / "benchmarks/step-time", "--device", "cuda", "--bf16",
                       "--pairs", 21, "--starts", 0, "--models", "DiT-XL/2", *more)]
    return commands


PARTS = (
    Part("tests", "Tests with label gpu", 240, tests, tools=("ctest",), shorten=last_lines(60), never="***Skipped"),
    Part("sanitizer", "compute-sanitizer, memcheck", 240, sanitizer, tools=("compute-sanitizer",), shorten=last_lines(8)),
    *(Part(tool, f"compute-sanitizer, {tool} of the fused operators' kernels", 120, kernels(tool),
           tools=("compute-sanitizer",), built=(KERNELS,), shorten=last_lines(8), never="No tests ran") for tool in KERNEL_TOOLS),
    Part("bandwidth", "Fused operators beside a copy and beside LibTorch's operators", 90, bandwidth, built=(KERNELS,)),
    Part("calibration", "What the device adds, measured and by formula", 60, calibration),
    Part("attention", "Attention's kernels: time and scratch", 60, attention),
    *(Part(f"plans_{first}", f"Plans against runs, from job {first}", 280, plans(first), tools=("nvidia-smi",))
      for first in range(0, 20, PLANS_AT_ONCE)),
    Part("step_256", "Step time of DiT-XL/2 at 256 px against PyTorch eager", 150, step_time("--batches", "32", "128"), torch=True),
    Part("compiled_256", "Step time of DiT-XL/2 at 256 px against torch.compile", 240,
         step_time("--batches", "32", "--compile"), torch=True),
    Part("step_512", "Step time of DiT-XL/2 at 512 px against PyTorch eager", 150,
         step_time("--batches", "16", "--side", "64"), torch=True),
    Part("policies", "The policies' sixteen combinations, DiT-B/2", 200, policies),
    Part("largest", "Largest batches, planned and reached", 240, largest),
)
