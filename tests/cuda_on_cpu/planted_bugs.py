"""Plants one bug at a time in a copy of the CUDA kernels, and says what the tests find of it.

    planted_bugs.py COMPILER CUDA_HEADERS FILE... [--write] [--only TEXT]

FILE: object files of the tests, and the libraries that they need. --write renews planted_bugs.md beside this script.
Exit code 1 if a bug is not found, or if the code to replace does not stand exactly once in its file.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
KERNELS = HERE.parent.parent / "models" / "ops" / "cuda"

# Kernel: bugs (what it is, file, code, what stands there instead).
N, G, B, S, C = "norm_modulate.cu", "gated_add.cu", "bias_gelu.cu", "column_sums.cu", "kernel.cuh"
M, L, R = "rms_norm.cu", "silu_mul.cu", "rotate.cu"
BUGS = {
    "norm_modulate": [
        ("no barrier after the factors", N, "store(factors + d, factor);\n  }\n  __syncthreads();", "store(factors + d, factor);\n  }"),
        ("no barrier between the warps' turns", N, "      });\n    }\n    __syncthreads();", "      });\n    }"),
        ("a barrier inside a branch", N, "      });\n    }\n    __syncthreads();", "      });\n      __syncthreads();\n    }"),
        ("no second barrier in a block's sum", N, "  __syncthreads();  // the next sum writes there\n", ""),
        ("no first barrier in a block's sum", N, "sums[threadIdx.x / kWarp] = of_warp;\n  __syncthreads();", "sums[threadIdx.x / kWarp] = of_warp;"),
        ("two barriers, one a branch", N, "  __syncthreads();  // the next sum writes there", "  if (threadIdx.x < 32) __syncthreads(); else __syncthreads();"),
        ("warps without a row leave", N, "  float shift_sum[kSlots][4]", "  if (first + warp >= last) return;\n  float shift_sum[kSlots][4]"),
        ("a column too many", C, "if (column < D) act", "if (column <= D) act"),
        ("a row too many", N, "t < last; t += kForwardWarps", "t <= last; t += kForwardWarps"),
        ("a row too many in the backward", N, "t < last; t += kBackwardWarps", "t <= last; t += kBackwardWarps"),
        ("the last partial sum is not written", N, "i < 2 * D; i += kBackwardWarps", "i < 2 * D - 1; i += kBackwardWarps"),
        ("too little shared memory", N, "shape.D * 3 * int64_t{sizeof(float)}", "shape.D * 2 * int64_t{sizeof(float)}"),
        ("adds to shared memory that nobody set", N, "if (turn > 0) {", "if (turn >= 0) {"),
        ("adds to partial sums that nobody set", N, "if (t > first) {", "if (t >= first) {"),
        ("a partial sum begins anew", N, "if (t > first) {", "if (t > first + 1) {"),
        ("blocks write the same partial sums", N, "float* const to = partial + static_cast<int64_t>(blockIdx.x) * 2 * D;", "float* const to = partial + sample * 2 * D;"),
        ("the variance over D - 1", N, "warp_sum(squares) / static_cast<float>(D)", "warp_sum(squares) / static_cast<float>(D - 1)"),
        ("scale for 1 + scale in the backward", N, "factor[i] += 1.0F;", "factor[i] += 0.0F;"),
        ("dx without the product", N, "out[i] = row_rstd * (gradient[slot][i] - sum - normal[slot][i] * product);", "out[i] = row_rstd * (gradient[slot][i] - sum);"),
        ("dscale of the scaled gradient", N, "scales[i] += gradient[i] * normal[i];", "scales[i] += gradient[i] * normal[i] * (1.0F + factor[i]);"),
        ("shift's stride for scale", N, "load(condition, scale.data, sample * scale.stride + d, multiply);", "load(condition, scale.data, sample * shift.stride + d, multiply);"),
        ("conditions of the first sample", N, "load_row(condition, scale, sample, D, multiply);", "load_row(condition, scale, 0, D, multiply);"),
        ("stride of a row taken for D", N, "load_row(static_cast<const __half*>(table.data) + row * table.stride, D, to);", "load_row(static_cast<const __half*>(table.data) + row * D, D, to);"),
        ("groups of four where they straddle", N, "if (!fours || D > kMaxInRegisters) return with_width(fours, long_row);", "if (D > kMaxInRegisters) return with_width(fours, long_row);"),
        ("too few slots", N, "if (D <= 768) return", "if (D <= 772) return"),
        ("32-bit offsets in the forward", N, "load_row(x + row * D, D, values);", "load_row(x + static_cast<int>(row) * D, D, values);"),
        ("32-bit offsets of conditions", N, "load(condition, shift.data, sample * shift.stride + d, add);", "load(condition, shift.data, static_cast<int>(sample) * static_cast<int>(shift.stride) + d, add);"),
        ("32-bit offsets of partial sums", N, "float* const sums = partial + static_cast<int64_t>(blockIdx.x) * 2 * D;", "float* const sums = partial + static_cast<int>(blockIdx.x) * 2 * D;"),
        ("half the lanes in the mask", C, "__shfl_xor_sync(0xffffffffU,", "__shfl_xor_sync(0x0000ffffU,"),
        ("down for xor", C, "__shfl_xor_sync", "__shfl_down_sync"),
        ("a step of the sum is missing", C, "distance > 0;", "distance > 1;"),
        ("a full mask in a branch", N, "const float row_mean = warp_sum(sum) / static_cast<float>(D);", "const float row_mean = (threadIdx.x % kWarp < 16 ? warp_sum(sum) : sum) / static_cast<float>(D);"),
        ("a condition's type ignored", C, "load(static_cast<const __nv_bfloat16*>(table) + at, to);", "load(static_cast<const __half*>(table) + at, to);"),
        ("a half type other than y's is taken", C, "return other == Type::fp32 || condition == Type::fp32 || other == condition;", "return true;"),
    ],
    "gated_add": [
        ("32-bit offsets", C, "act(row * D + first);", "act(static_cast<int>(row) * D + first);"),
        ("32-bit offsets of threads", C, "static_cast<int64_t>(blockIdx.x) *", "static_cast<int16_t>(blockIdx.x) *"),
        ("a thread too many", G, "if (column.sample >= N) return;\n  float factor[kWidth];", "if (column.sample > N) return;\n  float factor[kWidth];"),
        ("too few threads", C, "N * ((T + kRows - 1) / kRows) * (D / kWidth);", "N * ((T + kRows - 1) / kRows) * (D / kWidth) - 1;"),
        ("the gate's stride taken for D", G, "  float factor[kWidth];\n  load(condition, gate.data, column.sample * gate.stride + column.first, factor);", "  float factor[kWidth];\n  load(condition, gate.data, column.sample * D + column.first, factor);"),
        ("dgate with the gate", G, "sum[i] += gradient[i] * value[i];", "sum[i] += gradient[i] * value[i] * factor[i];"),
        ("dbranch without the gate", G, "gradient[i] *= factor[i];", ""),
        ("branch added, not multiplied", G, "sum[i] += factor[i] * addend[i];", "sum[i] += factor[i] + addend[i];"),
        ("chunks write the same partial sums", G, "store(partial + column.part * D", "store(partial + column.sample * D"),
        ("rows of the next sample", C, "end = sample * T + min(T, t + kRows);", "end = sample * T + t + kRows;"),
        ("a chunk of the wrong sample", C, "sample = part / parts;", "sample = part % parts;"),
        ("alignment is not looked at", C, " && reinterpret_cast<uintptr_t>(table.data) % bytes == 0", ""),
        ("32-bit offsets of partial sums", G, "store(partial + column.part * D", "store(partial + static_cast<int>(column.part) * D"),
        ("a stride is not looked at", C, "table.stride % 4 == 0 && ", ""),
        ("the second stage is missing", G, "return column_sums({shape.N, chunks(shape.T), shape.D, shape.condition}, partial, dgate, nullptr, stream);", "return cudaSuccess;"),
        ("a chunk too few in the second stage", G, "column_sums({shape.N, chunks(shape.T)", "column_sums({shape.N, shape.T / kChunkRows"),
        ("atomics", G, "store(partial + column.part * D + column.first, sum);", "for (int i = 0; i < kWidth; ++i) { partial[column.part * D + column.first + i] = sum[i]; atomicAdd(partial, 1e-9F); }"),
        ("launches for no rows", G, "return shape.N == 0 || shape.T == 0 || shape.D == 0;", "return shape.N == 0 || shape.D == 0;"),
    ],
    "bias_gelu": [
        ("32-bit offsets", C, "act(row * D + first);", "act(static_cast<int>(row) * D + first);"),
        ("a thread too many", B, "if (column.sample >= N) return;\n  float shift[kWidth];", "if (column.sample > N) return;\n  float shift[kWidth];"),
        ("the cube's factor", B, "kCubic = 0.044715F", "kCubic = 0.04472F"),
        ("1 for 3 in the derivative", B, "1.0F + 3.0F * kCubic", "1.0F + 1.0F * kCubic"),
        ("half the derivative", B, "return 0.5F * (1.0F + t) + 0.5F", "return 0.5F * (1.0F + t) + 0.25F"),
        ("the exact GELU", B, "return 0.5F * x * (1.0F + tanhf(kAlpha * (x + kCubic * x * x * x)));", "return 0.5F * x * (1.0F + erff(x * 0.70710678F));"),
        ("no bias in the backward", B, "gelu_derivative(value[i] + shift[i])", "gelu_derivative(value[i])"),
        ("dbias of dy", B, "      gradient[i] *= gelu_derivative(value[i] + shift[i]);\n      sum[i] += gradient[i];", "      sum[i] += gradient[i];\n      gradient[i] *= gelu_derivative(value[i] + shift[i]);"),
        ("chunks write the same partial sums", B, "store(partial + column.part * D", "store(partial + column.sample * D"),
        ("a chunk too few in the second stage", B, "column_sums({1, chunks(shape.R)", "column_sums({1, shape.R / kChunkRows"),
        ("the bias has x's type", B, "bias, shape.bias, static_cast<X*>(y));", "bias, shape.x, static_cast<X*>(y));"),
        ("in place what is not", B, "start(bias_gelu_backward_kernel<width.value, X>, static_cast<const X*>(dy))", "start(bias_gelu_backward_in_place_kernel<width.value, X>)"),
        ("no barrier in the second stage", S, "  __syncthreads();\n", ""),
        ("the barrier after a return", S, "  __syncthreads();\n  if (warp != 0 || d >= D) return;", "  if (warp != 0 || d >= D) return;\n  __syncthreads();"),
        ("a warp's sum is left out", S, "for (int i = 0; i < kWarps; ++i)", "for (int i = 1; i < kWarps; ++i)"),
        ("the second stage reads past a row", S, "  if (d < D) {", "  if (d <= D) {"),
    ],
    "rms_norm": [
        ("no barrier in a team's sum", M, "sums[turn % 2][warp] = value;\n  __syncthreads();", "sums[turn % 2][warp] = value;"),
        ("all sums in one place", M, "  value = warp_sum(value);", "  turn = 0;\n  value = warp_sum(value);"),
        ("a team without a row leaves", M, "const int columns = row < last ? D : 0;  // a team", "if (row >= last) return;\n    const int columns = D;  // a team"),
        ("a row too many", M, "const int columns = row < last ? D : 0;  // a team", "const int columns = row <= last ? D : 0;  // a team"),
        ("the first team's warps for all", M, "int i = warp - warp % warps, end = i + warps;", "int i = 0, end = i + warps;"),
        ("the mean over D - 1", M, "team_sum(squares, teams.warps, turn) / static_cast<float>(D)", "team_sum(squares, teams.warps, turn) / static_cast<float>(D - 1)"),
        ("no epsilon in long rows", M, "team_sum(squares, kLongWarps, turn) / static_cast<float>(D) + epsilon", "team_sum(squares, kLongWarps, turn) / static_cast<float>(D)"),
        ("dx without the product", M, "row_rstd * (gradient[slot][i] - normal[slot][i] * product)", "row_rstd * gradient[slot][i]"),
        ("dweight with the weight", M, "        sum[slot][i] += gradient[slot][i] * normal[slot][i];\n        gradient[slot][i] *= factor[slot][i];", "        gradient[slot][i] *= factor[slot][i];\n        sum[slot][i] += gradient[slot][i] * normal[slot][i];"),
        ("dweight of x", M, "        normal[slot][i] *= row_rstd;\n        sum[slot][i] += gradient[slot][i] * normal[slot][i];", "        sum[slot][i] += gradient[slot][i] * normal[slot][i];\n        normal[slot][i] *= row_rstd;"),
        ("no barrier between the teams' turns", M, "    }\n    __syncthreads();\n  }\n}", "    }\n  }\n}"),
        ("adds to shared memory that nobody set", M, "if (team > 0) load", "if (team >= 0) load"),
        ("too little shared memory", M, "shape.D * int64_t{sizeof(float)}", "shape.D * 2"),
        ("the last team writes to shared memory", M, "team + 1 < teams.rows ? sums", "team < teams.rows ? sums"),
        ("too few warps", M, "static_cast<int>((D + slots * kSlotColumns - 1) / (slots * kSlotColumns))", "static_cast<int>(D < slots * kSlotColumns ? 1 : D / (slots * kSlotColumns))"),
        ("rows that are too long for registers", M, "D > kMaxWarps * kManySlots * kSlotColumns", "D > kMaxWarps * kManySlots * kSlotColumns + 4"),
        ("32-bit offsets", M, "load(x + row * D + column, values[slot]);", "load(x + static_cast<int>(row) * D + column, values[slot]);"),
        ("32-bit offsets of long rows", M, "store(y + row * D + d, values);", "store(y + static_cast<int>(row) * D + d, values);"),
        ("32-bit offsets in the backward", M, "store(dx + row * D + column, out);", "store(dx + static_cast<int>(row) * D + column, out);"),
        ("adds to partial sums that nobody set", M, "if (row > first) load(sums + d, sum);", "if (row >= first) load(sums + d, sum);"),
        ("a partial sum begins anew", M, "if (row > first) load(sums + d, sum);", "if (row > first + 1) load(sums + d, sum);"),
        ("blocks write the same partial sums", M, "float* const to = partial + static_cast<int64_t>(blockIdx.x) * D;", "float* const to = partial;"),
        ("chunks of the wrong length", M, "summed ? kChunkRows : int64_t{kForwardTurns} * teams.rows", "int64_t{kForwardTurns} * teams.rows"),
        ("a chunk too few in the second stage", M, "column_sums({1, chunks(shape.R)", "column_sums({1, shape.R / kChunkRows"),
        ("the weight has y's type", M, "shape.weight, epsilon,", "shape.y, epsilon,"),
        ("sums that are not wanted", M, "if (partial == nullptr) return;", ""),
        ("all lanes write rstd", M, "if (lane == 0 && row < last) rstd", "if (row < last) rstd"),
        ("x's alignment is not looked at", M, "{{x, shape.x, shape.D}, {y, shape.y, shape.D}", "{{y, shape.y, shape.D}"),
        ("a half weight of an fp32 y is taken", M, "(shape.weight == Type::fp32 || shape.weight == shape.y)", "true"),
    ],
    "silu_mul": [
        ("the sigmoid of -x", L, "root = x < 0.0F ? half : 1.0F;", "root = x > 0.0F ? half : 1.0F;"),
        ("overflows far from zero", L, "expf(-0.5F * fabsf(x))", "expf(-0.5F * x)"),
        ("a sigmoid that is no normal number", L, "value * sigmoid.root * other * (sigmoid.root * sigmoid.whole)", "value * other * (sigmoid.root * sigmoid.root * sigmoid.whole)"),
        ("the product before the root", L, "value * sigmoid.root * other * (", "value * other * sigmoid.root * ("),
        ("the derivative without its 1", L, "(1.0F + value[i] * sigmoid.rest)", "(value[i] * sigmoid.rest)"),
        ("the sigmoid for its rest", L, "rest = x < 0.0F ? whole : small * whole;", "rest = x < 0.0F ? small * whole : whole;"),
        ("dgate without up", L, "slope * gradient[i] * other[i] *", "slope * gradient[i] *"),
        ("dup with up", L, "silu_times(sigmoid, value[i], gradient[i])", "silu_times(sigmoid, value[i], other[i])"),
        ("results in each other's place", L, "store(dup + at, value);\n    store(dgate + at, other);", "store(dgate + at, value);\n    store(dup + at, other);"),
        ("a number that is left is left out", L, "i < count; ++i", "i < count - 1; ++i"),
        ("a group too many", L, "at + kWidth <= count", "at + kWidth <= count + 1"),
        ("too few threads", L, "(count + width.value - 1) / width.value", "count / width.value"),
        ("too few blocks", L, "(threads + kThreads - 1) / kThreads", "threads / kThreads"),
        ("32-bit offsets", L, "const int64_t at = (static_cast<int64_t>(blockIdx.x) *", "const int at = (static_cast<int>(blockIdx.x) * (int)"),
        ("a gate's alignment is not looked at", L, "{{gate, shape.x, 0}, {up", "{{up"),
        ("a gate's alignment is not looked at in the backward", L, "{dy, shape.x, 0}, {gate, shape.x, 0}", "{dy, shape.x, 0}"),
        ("launches for no numbers", L, "  if (shape.count == 0) return cudaSuccess;\n  const bool fours = by_fours(\n", "  const bool fours = by_fours(\n"),
    ],
    "rotate": [
        ("turns the other way", R, "      if (transposed)\n", "      if (!transposed)\n"),
        ("the backward's sines are not exchanged", R, "load(type, sine, transposed ? j : i, ij);\n    load(type, sine, transposed ? i : j, ji);", "load(type, sine, i, ij);\n    load(type, sine, j, ji);"),
        ("the first half's cosines for both", R, "load(type, cosine, j, jj);", "load(type, cosine, i, jj);"),
        ("turns by the turned number", R, "out_j[k] = at_j[k] * turn.jj[k] + at_i[k] * turn.ji[k];", "out_j[k] = at_j[k] * turn.jj[k] + out_i[k] * turn.ji[k];"),
        ("one part for all", R, "const int i = pair / half * 2 * half + pair % half,", "const int i = pair,"),
        ("pairs of neighbours", R, "const int i = pair / half * 2 * half + pair % half, j = i + half;", "const int i = pair * 2, j = i + kWidth;"),
        ("the heads' stride taken for D", R, "head * strides.head;", "head * D;"),
        ("the tokens' stride taken for H D", R, "t * strides.token +", "t * H * D +"),
        ("a sample's stride is left out", R, "x + sample * strides.sample +", "x +"),
        ("tokens are not counted anew in a sample", R, "t = token % T;", "t = token;"),
        ("a head too many", R, "if (head >= H) break;", "if (head > H) break;"),
        ("the last heads are left out", R, "groups * ((H + kHeads - 1) / kHeads);\n", "groups * (H / kHeads + (H < kHeads));\n"),
        ("a thread too many", R, "if (thread >= threads) return;", "if (thread > threads) return;"),
        ("too few threads", R, "shape.N * shape.T * ((shape.H + kHeads - 1) / kHeads)", "shape.N * shape.T * (shape.H / kHeads)"),
        ("32-bit offsets in x", R, "x + sample * strides.sample + t * strides.token +", "x + static_cast<int>(sample * strides.sample + t * strides.token) +"),
        ("32-bit offsets in the result", R, "y + (token * H + head) * D;", "y + static_cast<int>((token * H + head) * D);"),
        ("32-bit offsets in the tables", R, "t * D + i, t * D + j, transposed", "static_cast<int>(t * D + i), static_cast<int>(t * D + j), transposed"),
        ("32-bit numbers of threads", R, "static_cast<int64_t>(blockIdx.x) *", "static_cast<int16_t>(blockIdx.x) *"),
        ("a stride is not looked at", R, "{x.data, shape.x, x.head},", ""),
        ("a sample's stride is not looked at", R, "{{x.data, shape.x, x.sample},\n                               {x.data, shape.x, x.token},", "{{x.data, shape.x, x.token},"),
        ("halves that fours do not divide", R, "{cosine, shape.table, half},\n                               {sine, shape.table, half},\n                               {y, shape.x, half}", "{cosine, shape.table, 2 * half},\n                               {sine, shape.table, 2 * half},\n                               {y, shape.x, 2 * half}"),
        ("the tables have x's type", R, "x, cosine, sine, shape.table, transposed,", "x, cosine, sine, shape.x, transposed,"),
        ("another half type of the tables is taken", R, "(shape.table == Type::fp32 || shape.table == shape.x)", "true"),
        ("a width without halves is taken", R, "shape.D % (2 * shape.parts) == 0 &&", ""),
    ],
}  # fmt: skip

SANITIZED = ["-std=c++20", "-O1", "-g1", "-w", "-fsanitize=thread,undefined", "-fno-sanitize-recover=all", "-fno-strict-aliasing"]
SECONDS = 300


class Builder:
    def __init__(self, compiler: str, headers: str, files: list[str], folder: Path):
        self.compiler, self.headers, self.files, self.folder = compiler, headers, files, folder
        self.kernels = folder / "kernels"
        self.kernels.mkdir()
        for path in KERNELS.iterdir():
            if path.suffix in (".cu", ".cuh", ".h"):
                shutil.copy(path, self.kernels)

    def object(self, source: str) -> Path:
        built = self.folder / f"{source}.o"
        command = [self.compiler, *SANITIZED, "-isystem", self.headers, "-x", "c++", "-include", str(HERE / "cuda_on_cpu.h")]
        subprocess.run([*command, "-c", str(self.kernels / source), "-o", str(built)], check=True)
        return built

    def program(self, kernel: str, objects: list[Path]) -> Path:
        tests = [name for name in self.files if f"{kernel}_test" in Path(name).name]
        libraries = [name for name in self.files if "_test" not in Path(name).name]
        linked = self.folder / "program"
        command = [self.compiler, "-fsanitize=undefined", "-o", str(linked), *tests, *map(str, objects), *libraries, "-ldl"]
        subprocess.run(command, check=True)
        return linked


FAILURES = [
    (r"out of bounds: \w+", r"unwritten memory: \w+", r"misaligned: \w+", r"data race", r"deadlock"),
    (r"the mask lacks the caller", r"which the mask lacks", r"gone is (?:lane|thread)", r"two barriers"),
    (r"runtime error: (?:signed integer overflow|[a-z ]+ misaligned address)",),
]


def found_by(program: Path) -> str | None:
    """What a test says first, or None if all pass."""
    try:
        done = subprocess.run([program, "--abort"], capture_output=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return "does not end"
    if done.returncode == 0:
        return None
    text = " ".join((done.stdout + done.stderr).decode(errors="replace").split())  # Catch2 breaks lines
    for patterns in FAILURES:
        for pattern in patterns:
            if found := re.search(pattern, text):
                return found[0].removeprefix("runtime error: ").strip()
    if done.returncode < 0:
        return f"signal {-done.returncode}"
    if values := re.search(r'take\( ?"(\w+)"', text) or re.search(r"(?:CHECK|REQUIRE)\( (?!summary)(.*?) \) with", text):
        what = values[1]
        return "depends on the schedule" if "bits()" in what else f"wrong values: {what}"
    return f"exit code {done.returncode}"


def examine(builder: Builder, kernel: str, bug: tuple[str, str, str, str], whole: dict[str, Path]) -> tuple[str, bool]:
    _, file, code, instead = bug
    original = (KERNELS / file).read_text(encoding="utf-8")
    if original.count(code) != 1:
        return f"NOT PLANTED: its code stands {original.count(code)} times in {file}", False
    (builder.kernels / file).write_text(original.replace(code, instead), encoding="utf-8")
    needed = [f"{kernel}.cu", S]
    changed = needed if file == C else [file]
    try:
        objects = [builder.object(name) if name in changed else whole[name] for name in needed]
        found = found_by(builder.program(kernel, objects))
    finally:
        (builder.kernels / file).write_text(original, encoding="utf-8")
    return (found, True) if found else ("NOT FOUND", False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("compiler")
    parser.add_argument("headers")
    parser.add_argument("files", nargs="+")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only", default="", help="only bugs whose kernel or text has this")
    options = parser.parse_args()
    lines = ["| kernel | planted | found by |", "|---|---|---|"]
    total = missed = 0
    with tempfile.TemporaryDirectory() as folder:
        builder = Builder(options.compiler, options.headers, options.files, Path(folder))
        wholes = Path(folder) / "whole"
        wholes.mkdir()
        for kernel, bugs in BUGS.items():
            chosen = [bug for bug in bugs if options.only in kernel or options.only in bug[0]]
            if not chosen:
                continue
            whole = {name: builder.object(name).rename(wholes / f"{name}.o") for name in (f"{kernel}.cu", S)}
            if found := found_by(builder.program(kernel, list(whole.values()))):
                sys.exit(f"{kernel}_test fails without a planted bug: {found}")
            for bug in chosen:
                said, good = examine(builder, kernel, bug, whole)
                total, missed = total + 1, missed + (not good)
                lines.append(f"| {kernel} | {bug[0]} | {said} |")
                print(lines[-1], flush=True)
    summary = f"{total - missed} of {total} bugs were found."
    print(summary)
    if options.write:
        page = ["# Planted bugs", "", "What the tests say first of each, by the command of ctest's `planted_bugs_test` with `--write` (`ctest -N -V -R planted_bugs_test`", "in the build folder shows it). Not run on a GPU.", ""]
        (HERE / "planted_bugs.md").write_text("\n".join([*page, *lines, "", summary, ""]), encoding="utf-8")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
