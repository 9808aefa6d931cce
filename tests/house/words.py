"""One word for one thing: names that were replaced do not come back, and a choice among words is an enum.

IDENTIFIERS and PHRASES are looked for everywhere, comments, texts and documents too; IN_CODE, which are words of English
as well, in code without comments and texts. "planner" is memory planning: no file or folder outside of its rooms has it
in its name, unless it says diffusion_planner.
"""

import re
from pathlib import Path

import tree

# What was said, and the word of today.
IDENTIFIERS = {
    r"\w*[Rr]ehears\w*": "simulate, Simulation...",
    r"FakeMemory|\w*fake_(?:cuda|memory|runtime)\w*": "SimulatedMemory, simulated_...",
    r"\w*[Ss]ub_?[Tt]ree\w*": "module, ModuleFn",
    r"JobWatch\w*|job_watch|run_watched": "JobObserver, run_observed",
    r"kept_storages\w*|KeptPhase": "event_log, LoggedPhase",
    r"PlanBeside": "DeviceOverhead",
    r"PassFold": "LoopFold, FoldableLoop",
    r"[Ss]urroundings\w*": "AmbientState",
    r"LastingState|StateWatch|StateKeptScope": "MutatedBuffers, MutationRecorder, MutationGuard",
    r"KeepScope|KeptOperators?": "SaveScope, SavedOperator",
    r"NotOfTheSegment": "UnwatchedScope",
    r"CheckpointChain": "CheckpointSegment",
    r"\w*SideCop(?:y|ies)|\w*CopyEngine|\w*copy_engine|side_cop(?:y|ies)": "AsyncCopies, StagingCopies",
    r"ChunkRing|chunk_ring|HostAverage|host_average": "StagingRing, HostEma",
    r"most_\w+|kMost\w*": "max_..., kMax...",
    r"least_\w+|kLeast\w*": "min_..., kMin...",
    r"GoOn": "KeepGoing",
    r"drives(?=\s*\()": "family_of(config)",
    r"unlearnt\w*": "unseen",
    r"with_place|place_of": "located, location_of",
}
IN_CODE = {r"Books": "LedgerSnapshot", r"Passes": "FoldableLoop", r"Room": "Capacity"}
IN_THE_PRODUCT = {r"least": "min, lowest, fewest"}
OF_THE_TOOLKIT = {r"(?<!policies::)\bKeptResults\b": "ResultsByModule"}
# A planned run differs by its files, its clock and its data, and nobody else asks whether there is one.
BY_SEAMS = {r"\bsimulating(?=\()": "FileSystem::keeps_content, Clock::waits_for_threads"}
BELOW_THE_SEAMS = ("toolkit/train/dropout_masks", "toolkit/families/")
DRIVING = {r"\bPlanner[A-Z]\w*|\b\w*planner_\w*|\b\w+_planner\b": "diffusion_planner"}
OF_FAMILIES = {r"(?<!namespace )\bplanner\b(?!::)": "model"}  # no name there but the library's
FAMILIES = ("toolkit/families/", "models/", "tests/toolkit/families/", "tests/models/")
KEYS = {"least_time", "least_speed", "most_gain", "most_flops", "most_skipped"}  # of configurations and JSON, which stay as they are
PHRASES = {
    r"sub-trees?\b": "module",
    r"\bfake-cuda\b": "simulated-cuda",
    r"\bcopy engines?\b": "staging copies",
    r"\bchunk rings?\b": "staging ring",
    r"\bhost average\b": "host EMA",
    r"\bcomput(?:e|es|ing) (?!the same )(?:\w+ ){0,4}again\b": "recompute",
    r"\bdriving planner": "driving model",
}

# A choice has an enum (dtk/policies/enum_text.h). Names of these stand for what a registry or a file holds, or a text that is
# read: its keys, tables and fields, units and endings, words of an argument, devices as LibTorch writes them, patterns.
NAMES = (
    "(?:key|name|text|value|calibration|attempt|begin|extension|getBackendName|out|(?<![.>])(?:descr|device|drawn|ending|field"
    r"|folder|from|one|operator_name|order|projector|rest|table|unit|wanted|word))_?\b"
)
LAST = rf"\b(?!{NAMES})[A-Za-z_]\w*(?:\(\))?"  # of a.b->c: c
COMPARED = {
    rf'(?<!data\.){LAST} [!=]= "|" [!=]= (?:\w+(?:\(\))?(?:\.|->))*{LAST}(?![\w.(-])': "a value of its enum",
    rf"\bis_one_of\([^,()]*?(?<!\w){LAST},": "a value of its enum",
    rf'(?:\.|->){LAST}\.(?:compare|starts_with|ends_with)\("': "a value of its enum",
    r"\b(?:what\(\)|problem|refusal|message|reason)\.(?:find|starts_with|ends_with|contains|compare)\b"
    r"|what\(\)\)?\.(?:find|starts_with|ends_with|contains|compare)\b|\bstrn?(?:str|cmp)\([^;]*what\(\)": "a type or a field: texts of errors decide nothing",
}

TEXTS = tree.CODE | {".py", ".md", ".toml", ".txt", ".cmake", ".sh", ""}
EXEMPT = ("CHANGELOG.md", "LICENSE", "tests/house/words.py", "tests/house/self_test.py")
PLANNER_ROOMS = ("policies/planner/", "tests/planner/", "tests/house/")


def whole_words(rules: dict[str, str]) -> dict[str, str]:
    return {rf"\b(?:{words})\b": now for words, now in rules.items()}


def identifier_rules(where: str) -> dict[str, str]:
    rules = whole_words(IN_CODE)
    if where.startswith(("toolkit/", "policies/", "models/")):
        rules |= whole_words(IN_THE_PRODUCT)
    if where.startswith("toolkit/"):
        rules |= OF_THE_TOOLKIT
        if not where.startswith(BELOW_THE_SEAMS):
            rules |= BY_SEAMS
    if where.startswith(FAMILIES):
        rules |= OF_FAMILIES
    return rules if where.startswith(PLANNER_ROOMS) else rules | DRIVING


def offences(root: Path, path: Path, lines: list[str], rules: dict[str, str], flags: int = 0) -> list[str]:
    compiled = [(re.compile(pattern, flags), now) for pattern, now in rules.items()]
    return [
        f"{tree.place(root, path, number)}: {match[0]}; today's word: {now}"
        for number, line in enumerate(lines, 1)
        for pattern, now in compiled
        if (match := pattern.search(line)) and match[0] not in KEYS
    ]


def is_read(where: str) -> bool:
    return where not in EXEMPT and not where.startswith(("tests/fixtures/", "tests/fuzz/corpus/", "benchmarks/results/"))


def identifier_offences(root: Path) -> list[str]:
    found = []
    for path in tree.code(root):
        where = path.relative_to(root).as_posix()
        if is_read(where):
            lines = [re.sub("diffusion_planner|DiffusionPlanner", "", line) for line in tree.read_code(path)]
            found += offences(root, path, lines, identifier_rules(where))
    return found


def choice_offences(root: Path) -> list[str]:
    found = []
    for path in tree.code(root, "toolkit", "policies", "models"):
        found += offences(root, path, tree.read_code(path, strings=True), COMPARED)
    return found


def phrase_offences(root: Path) -> list[str]:
    found = []
    for path in tree.files(root):
        where = path.relative_to(root).as_posix()
        if path.suffix in TEXTS and is_read(where):
            lines = path.read_text(encoding="utf-8").split("\n")
            found += offences(root, path, lines, PHRASES, re.IGNORECASE)
            found += offences(root, path, lines, whole_words(IDENTIFIERS))
    return found


def name_offences(root: Path) -> list[str]:
    found = []
    for path in tree.files(root):
        where = path.relative_to(root).as_posix()
        if not where.startswith(PLANNER_ROOMS) and "planner" in where.lower().replace("diffusion_planner", ""):
            found.append(f"{where}: planner is memory planning; the driving model is diffusion_planner")
    return found


def check(root: Path) -> list[str]:
    return identifier_offences(root) + choice_offences(root) + phrase_offences(root) + name_offences(root)


if __name__ == "__main__":
    tree.run(check)
