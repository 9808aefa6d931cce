"""The rooms of the house, and which may include which: the one table.

A room is a folder of a library. CONTRIBUTING prints this table, and each room's list of sources begins with its sentence
(`python3 rooms.py ROOT --write` renews both); include_arrows.py breaks on an include that it does not allow. Besides, policies
and models include the standard library and LibTorch, the planner's rooms policies', and toolkit's all public headers of
the three. A folder, of tests, benchmarks and examples too, holds at most LARGEST modules.
"""

import re
import sys
from dataclasses import dataclass
from pathlib import Path

import tree


@dataclass(frozen=True)
class Room:
    path: str
    holds: str
    may: frozenset[str]  # paths of other rooms


FAMILIES = "toolkit/families"  # a room a folder


def rows(library: str, table: list[tuple[str, str, str]], also: str = "") -> list[Room]:
    """Rooms of one library. The third column names others of it; "*" is all above."""
    found: list[Room] = []
    for name, holds, may in table:
        above = [room.path for room in found]
        own = above if may == "*" else [f"{library}/{other}" for other in may.split()]
        found.append(Room(f"{library}/{name}", holds, frozenset([*own, *also.split()])))
    return found


POLICIES = rows(
    "policies",
    [
        ("seam", "what models and policies agree on: seam, policy, report, module path, simulation flag", ""),
        ("memory", "pages and heap of CPU tensors, staging rings, copies beside a device's work", "seam"),
        ("ledger", "the memory ledger: accounts, owners, phases, event log", "seam memory"),
        ("hooks", "LibTorch's autograd engine: saved tensors, guards, recomputing", "seam ledger"),
        ("activations", "checkpointing and offload", "seam memory ledger hooks"),
        ("ema", "the average of the weights", "seam memory ledger"),
        ("precision", "autocast, and which precision is faster", "seam hooks"),
        ("attention", "fused attention", "seam hooks"),
        ("fusion", "fused operators in place of several", "seam"),
        ("inference", "passes without gradient: rows a few at a time, results that wait", "seam"),
        ("shard", "several ranks: sums of their gradients, and the part of the parameters that each updates or has", "seam ledger hooks"),
        ("set", "all policies as one, and their options", "*"),
    ],
)
PLANNER = rows(
    "policies/planner",
    [
        ("core", "plan errors, shapes, stream order, placement of storages, figures", ""),
        ("cost", "FLOPs and what a kernel takes beside its results", "core"),
        ("kernels", "what operators return where nothing is computed", "core cost"),
        ("device", "the simulated CUDA device", "core cost kernels"),
        ("simulate", "running a job where nothing is computed, and measuring what it can not know", "*"),
        ("explain", "who holds the bytes of a peak", "*"),
    ],
    also="policies/seam policies/ledger policies/hooks",
)
MODELS = rows(
    "models",
    [
        ("seam", "what all models share: seam, layers", ""),
        ("ops", "fused operators, one pass over their tensors each", "seam"),
        ("quantized", "frozen weights in 4 or 8 bits", "seam"),
        ("ops/cuda", "CUDA kernels of fused operators: a library that is loaded at run time", ""),
        ("dit", "the diffusion transformer DiT", "seam ops"),
        ("diffusion_planner", "the driving model Diffusion-Planner", "seam ops"),
        ("llava", "the vision-language model LLaVA", "seam ops quantized"),
        ("vggt", "VGGT: cameras, depths and points from pictures of a scene", "seam ops"),
    ],
)
TOOLKIT = rows(
    "toolkit",
    [
        ("core", "errors, text, numbers, clock, random streams, threads", ""),
        ("io", "files, and formats that know no model", "core"),
        ("config", "a run's options: structs, strict reading, rules, printing", "core io"),
        ("device", "which device, and how much memory it and the machine have", "core config"),
        ("launch", "finding LibTorch and shipped configurations, and what this machine has; built without LibTorch", ""),
        ("distributed", "the ranks of a job: who they are, what they tell each other", "core io config device"),
        ("data", "sources of samples, and the loader", "core io config device"),
        ("diffusion", "objectives, processes, samplers", "core config"),
        ("checkpoint", "saved training state, and weights", "core io config distributed"),
        ("report", "what is said of a run or a plan: tables, charts, page", "core io config"),
        ("train", "trainer, optimizer, validation, trial steps", "*"),
        ("families", "a folder each: all of a model family but its network; none includes another", "*"),
        ("run", "one run, from its configuration to its folder", "*"),
        ("plan", "what a run would take: dit-plan's library", "*"),
        ("commands", "arguments and steps of the four programs", "*"),
        ("programs", "the four programs and their launcher: main(), terminal, processes", "*"),
        ("distributed/nccl", "LibTorch's group of NCCL: a library that is loaded at run time", ""),
    ],
)
ROOMS = {room.path: room for room in POLICIES + PLANNER + MODELS + TOOLKIT}
LARGEST = 25  # modules of a folder
LIMITED = ("policies", "models", "toolkit", "tests", "benchmarks", "examples")
OUTSIDE = "toolkit/distributed/declarations/gloo/"  # what LibTorch's wheel leaves out of its headers
BUILT_BY_CMAKE = {"models/ops/cuda/register.cpp"}  # which dtk_cuda_kernels() names
TESTS = {"tests/toolkit": "toolkit", "tests/policies": "policies", "tests/planner": "policies/planner", "tests/models": "models"}

# Public headers that neither lie beside a source of their name nor carry their room's.
HEADERS = {
    "policies": {
        "report": "seam", "advice": "seam", "enabled": "seam", "byte_count": "seam", "enum_text": "seam", "taps": "seam", "scoped": "seam", "counted_blocks": "ledger", "step_meter": "hooks", "torch_versions": "hooks",
        "checkpoint_options": "activations", "policy_options": "set", "gradient_sums": "shard", "shard_options": "shard", "own_options": "set",
    },
    "policies/planner": {"flops": "cost", "scratch": "cost"},
    "models": {"counted_forward": "seam"},
}  # fmt: skip
PUBLIC = {"policies": "policies", "planner": "policies/planner", "models": "models", "toolkit": "toolkit"}


def may_include(room: str, other: str) -> bool:
    return room == other or row_of(other) in ROOMS[row_of(room)].may


def modules(folder: Path) -> set[str]:
    """Names of a folder's modules: a header and the source of its name are one, a Python file is one of its own."""
    files = [path for path in folder.iterdir() if path.suffix in (*tree.CODE, ".py")]
    return {path.name if path.suffix == ".py" else path.stem for path in files}


def room_of_header(root: Path, include: str) -> str | None:
    """Of "dtk/<library>/..."; None if no room claims it."""
    library = PUBLIC.get(include.split("/")[1])
    stem = include.split("/")[-1].removesuffix(".h")
    if library is None:
        return None
    if stem in HEADERS.get(library, {}):
        return f"{library}/{HEADERS[library][stem]}"
    rooms = [room for room in ROOMS if room.rpartition("/")[0] == library]
    beside = [room for room in rooms if (root / room / f"{stem}.cpp").is_file()]
    named = [room for room in rooms if re.match(rf"{room.rpartition('/')[2]}(_|$)", stem)]
    return (beside + named + [None])[0]


def room_of(root: Path, path: str) -> str | None:
    """The room of a file of the tree; None outside of all rooms, such as a library's CMakeLists.txt."""
    public = re.search(r"/include/(dtk/.*)", path)
    if public:
        return room_of_header(root, public[1])
    folder = path.rpartition("/")[0]
    return folder if row_of(folder) in ROOMS else None


def row_of(room: str) -> str:
    """The table's row: one for all families."""
    return re.sub(r"^(toolkit/families)/.*", r"\1", room)


def table() -> str:
    def others(room: Room) -> str:
        order = [other for other in ROOMS if other in room.may]
        return ", ".join(shorter(room.path, order)) or "none"

    lines = ["| room | holds | may include, of the rooms |", "|---|---|---|"]
    return "\n".join(lines + [f"| `{room.path}/` | {room.holds} | {others(room)} |" for room in ROOMS.values()])


def shorter(own: str, others: list[str]) -> list[str]:
    """Names without the library that a room shares with the others."""
    library = next(name for name in ("policies/planner", "policies", "models", "toolkit") if own.startswith(name + "/"))
    above = [room for room in ROOMS if room.startswith(library + "/")]
    above = above[: above.index(own)]
    if len(above) > 4 and set(above) <= set(others):
        return ["all above of " + library, *[f"`{other}`" for other in others if other not in above]]
    return [f"`{other.removeprefix(library + '/')}`" for other in others]


PRINTED = re.compile(r"(?<=<!-- rooms -->\n).*?(?=<!-- /rooms -->)", re.DOTALL)


def check_printed(root: Path) -> list[str]:
    """CONTRIBUTING's copy of the table."""
    printed = PRINTED.search((root / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    if printed and printed[0] == table() + "\n":
        return []
    return ["CONTRIBUTING.md: its table of rooms is not tests/house/rooms.py's; renew it: python3 tests/house/rooms.py . --write"]


def purpose(room: Room) -> str:
    """The first line of a room's list of sources."""
    return f"# {room.holds[0].upper()}{room.holds[1:]}."


def lists(root: Path) -> list[tuple[Path, Room]]:
    found = [(root / room.path / "CMakeLists.txt", room) for room in ROOMS.values()]
    return [(path, room) for path, room in found if path.is_file()]


def check_purposes(root: Path) -> list[str]:
    wrong = [
        f"{room.path}/CMakeLists.txt: must begin with \"{purpose(room)}\", as tests/house/rooms.py says"
        for path, room in lists(root)
        if path.read_text(encoding="utf-8").split("\n")[0] != purpose(room)
    ]
    families = [path for path in tree.cmake_files(root) if path.parent.parent == root / FAMILIES]
    return wrong + [
        f"{tree.place(root, path)}: must begin with a sentence that says what the family is"
        for path in families
        if not re.fullmatch(r"# [A-Z].*\.", path.read_text(encoding="utf-8").split("\n")[0])
    ]


def check_listed(root: Path) -> list[str]:
    """Rooms that no list of sources builds, and folders with code that are no room."""
    without = [f"{room.path}/CMakeLists.txt: missing" for room in ROOMS.values()
               if room.path != FAMILIES and (root / room.path).is_dir() and not (root / room.path / "CMakeLists.txt").is_file()]  # fmt: skip
    files = sorted({path.relative_to(root).as_posix() for path in tree.code(root, *PUBLIC.values())})
    others = sorted({path for path in tree.files(root, *PUBLIC.values()) if path.suffix not in tree.CODE})
    return without + [
        f"{tree.place(root, path)}: of a kind that no check reads; allowed: {', '.join(sorted(tree.CODE))}, CMakeLists.txt, *.in, *.md, *.bash"
        for path in others
        if path.name != "CMakeLists.txt" and path.suffix not in (".in", ".md", ".bash")
    ] + [
        f"{file}: in no room of tests/house/rooms.py"
        for file in files
        if (room_of(root, file) is None if "/include/" in file else row_of(file.rpartition("/")[0]) not in ROOMS)
        and not file.startswith(OUTSIDE)
    ]


def check_sources(root: Path) -> list[str]:
    """Sources that their room's list leaves out, so that nothing builds them."""
    found = []
    folders = [root / room for room in ROOMS] + [path.parent for path in tree.cmake_files(root, FAMILIES)]
    for folder in sorted(folder for folder in set(folders) if (folder / "CMakeLists.txt").is_file()):
        text = "\n".join(tree.read_cmake(folder / "CMakeLists.txt"))
        listed = set(re.findall(r"[\w.-]+", re.sub(r"set_source_files_properties\([^)]*\)", "", text)))
        found += [
            f"{tree.place(root, path)}: not among the sources of {tree.place(root, folder)}/CMakeLists.txt"
            for path in sorted(folder.glob("*.cpp"))
            if path.name not in listed and tree.place(root, path) not in BUILT_BY_CMAKE
        ]
    return found


def check_targets(root: Path) -> list[str]:
    """A room alone is a target: its path with "_" for "/"."""
    found = []
    for path, room in lists(root):
        target = room.path.replace("/", "_")
        if not re.search(rf"\bdtk_room\(|\badd_custom_target\({target}\b", path.read_text(encoding="utf-8")):
            found.append(f"{tree.place(root, path)}: no target {target}: neither dtk_room() nor add_custom_target()")
    return found


def check_tests(root: Path) -> list[str]:
    """A room's tests lie in the folder of tests/ that has its name."""
    found = []
    for file in sorted({path.relative_to(root).as_posix() for path in tree.code(root, *TESTS)}):
        folder = file.rpartition("/")[0]
        library = next(name for name in TESTS if file.startswith(name + "/"))
        if row_of(TESTS[library] + folder.removeprefix(library)) not in ROOMS:
            found.append(f"{file}: tests no room of tests/house/rooms.py")
    return found


def check_crowded(root: Path) -> list[str]:
    found = []
    for folder in sorted({path.parent for path in tree.files(root, *LIMITED)}):
        place, count = tree.place(root, folder), len(modules(folder))
        if count > LARGEST:
            found.append(f"{place}/: {count} modules; a folder holds at most {LARGEST}")
    return found


def check(root: Path) -> list[str]:
    found = check_printed(root) + check_purposes(root) + check_listed(root) + check_sources(root)
    return found + check_targets(root) + check_tests(root) + check_crowded(root)


def write(root: Path) -> None:
    path = root / "CONTRIBUTING.md"
    path.write_text(PRINTED.sub(lambda _: table() + "\n", path.read_text(encoding="utf-8")), encoding="utf-8")
    for path, room in lists(root):
        lines = path.read_text(encoding="utf-8").split("\n")
        kept = lines[1:] if lines[0].startswith("#") else lines
        path.write_text("\n".join([purpose(room), *kept]), encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[2:] == ["--write"]:
        write(Path(sys.argv[1]))
    else:
        tree.run(check)
