#!/usr/bin/env python3
"""put_back.py FOLDER [DEFECT...]: whether the corpora find the defects that readers once had.

In a copy of the tree in FOLDER, which stays there with its build, each defect is put back alone; then fuzz_replay over
the corpora, or bombs_test.py, has to fail on its target. Exit code 1 if one is not found. Takes minutes: run by hand.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass
class Defect:
    target: str
    file: str = ""
    edits: tuple[tuple[str, str], ...] = ()  # what stands there now, and what stood there then
    bombs: bool = False  # found by files that are made, by their memory, not by the corpus under sanitizers

    @property
    def preset(self) -> str:
        return "release" if self.bombs else "fuzz"


DEFECTS = {
    "compressed data end where zlib still holds some": Defect(
        "archive", "toolkit/io/zip_reader.cpp",
        (("status == Z_BUF_ERROR && stream_->avail_in == 0 && taken_ == entry_.packed",
          "status != Z_STREAM_END && stream_->avail_in == 0 && taken_ == entry_.packed"),)),
    "names of classes of any length and number": Defect(
        "torch_file", "toolkit/io/pickle.cpp",
        (("max_names_bytes = 4 << 20", "max_names_bytes = size_t{4} << 40"),
         ("max_name_bytes = 1024", "max_name_bytes = size_t{1} << 40")), True),
    "keys of any length and number of parts": Defect(
        "configuration", "toolkit/config/toml_guard.cpp",
        (("kMaxParts = 16", "kMaxParts = 1 << 30"), ("kMaxKeyBytes = 1024", "kMaxKeyBytes = size_t{1} << 40")), True),
    "a letter beyond ASCII before a key": Defect(
        "configuration", "toolkit/config/toml_guard.cpp",
        (("if (static_cast<unsigned char>(c) >= 0x80)", "if (false)"),)),
    "counts beyond int64 in a log": Defect(
        "history", "toolkit/report/history.cpp",
        (('whole_number(line.at("step"))', 'std::optional<int64_t>(line.at("step").get<int64_t>())'),)),
    "counts beyond int64 in a calibration": Defect(
        "calibration", "toolkit/plan/calibration.cpp",
        (("whole_number(member<nlohmann::json>(json, key, name))",
          "std::optional<int64_t>(member<int64_t>(json, key, name))"),)),
}  # fmt: skip


def build(tree: Path, preset: str) -> None:
    for command in (["cmake", "--preset", preset], ["ninja", "-C", f"build/{preset}", "fuzz_replay"]):
        done = subprocess.run(command, cwd=tree, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"put_back.py: {' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def finds(tree: Path, defect: Defect) -> bool:
    replay = tree / f"build/{defect.preset}/tests/fuzz_replay"
    environment = dict(os.environ, OMP_NUM_THREADS="1",
                       ASAN_OPTIONS="detect_leaks=0:allocator_may_return_null=1",
                       UBSAN_OPTIONS="halt_on_error=1")  # fmt: skip
    command = ([sys.executable, "-B", tree / "tests/fuzz/bombs_test.py", replay] if defect.bombs else
               [replay, tree / "tests/fuzz/corpus", defect.target])  # fmt: skip
    return subprocess.run(command, env=environment, capture_output=True).returncode != 0


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    tree = Path(sys.argv[1]).resolve()
    names = sys.argv[2:] or list(DEFECTS)
    tree.mkdir(parents=True, exist_ok=True)
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tree / name)
    if not (tree / ".deps").exists():
        (tree / ".deps").symlink_to(ROOT / ".deps")
    for preset, bombs in (("fuzz", False), ("release", True)):
        build(tree, preset)
        for target in sorted({DEFECTS[name].target for name in names if DEFECTS[name].bombs == bombs}):
            if finds(tree, Defect(target, bombs=bombs)):
                sys.exit(f"put_back.py: {target} fails without a defect")
    missed = 0
    for name in names:
        defect = DEFECTS[name]
        path = tree / defect.file
        text = path.read_text(encoding="utf-8")
        changed = text
        for now, then in defect.edits:
            if text.count(now) != 1:
                sys.exit(f"put_back.py: {defect.file} has {text.count(now)} times: {now}")
            changed = changed.replace(now, then)
        path.write_text(changed, encoding="utf-8")
        try:
            build(tree, defect.preset)
            found = finds(tree, defect)
        finally:
            path.write_text(text, encoding="utf-8")
        missed += not found
        print(f"{'found' if found else 'MISSED'}: {name} ({'bombs' if defect.bombs else defect.target})", flush=True)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
