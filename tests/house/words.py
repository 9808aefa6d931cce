"""One word for one thing: names that were replaced do not come back, and a choice among words is an enum.

IDENTIFIERS and PHRASES are looked for everywhere, comments, texts and documents too; IN_CODE, which are words of English
as well, in code, of Python too, without comments and texts. "planner" is memory planning: no file or folder outside of its
rooms has it in its name, unless it says diffusion_planner, and documents say it of memory alone.
"""

import re
import tokenize
from pathlib import Path

import family_names
import planner_names
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
    r"with_place|place_of|map<std::string, std::string>&? places": "located, location_of, locations",
}
OF_LIMITS = {r"least|LEAST_\w+": "min, lowest, fewest", r"MOST_\w+": "MAX_..."}
# Of configurations and JSON, which stay as they are: no names in C++.
KEYS = {"least_time", "least_speed", "most_gain", "most_flops", "most_skipped"}
IN_CODE = {r"Books": "LedgerSnapshot", r"Passes": "FoldableLoop", r"Room": "Capacity", "|".join(sorted(KEYS)): "max_..., min_..."} | OF_LIMITS
OF_THE_TOOLKIT = {r"(?<!policies::)\bKeptResults\b": "ResultsByModule"}
# A planned run differs by its files, its clock and its data, and nobody else asks whether there is one.
BY_SEAMS = {r"\bsimulating(?=\s*\()": "FileSystem::keeps_content, Clock::waits_for_threads"}
BELOW_THE_SEAMS = ("toolkit/train/dropout_masks", "toolkit/families/")
DRIVING = {r"\bPlanner[A-Z]\w*|\b\w*planner_\w*|\b\w+_planner\b": "diffusion_planner"}
OF_FAMILIES = {r"(?<!namespace )\bplanner\b(?!::)": "model"}  # no name there but the library's
FAMILIES = ("toolkit/families/", "models/", "tests/toolkit/families/", "tests/models/")
PHRASES = {
    r"sub-trees?\b": "module",
    r"\bfake-cuda\b": "simulated-cuda",
    r"\bcopy engines?\b": "staging copies",
    r"\bchunk rings?\b": "staging ring",
    r"\bhost average\b": "host EMA",
    r"\b(?:comput(?:e|es|ing) (?:\w+ ){0,4}|computed (?:\w+ )?)again\b": "recompute",
    r"\b(?:run|runs|made|makes) (?:\w+ ){0,3}again in backward\b": "recompute",
    r"\b(?:segments?|modules?|blocks?|layers?|checkpointing) (?:\w+ ){0,3}(?:runs?|made|makes?) (?:\w+ ){0,2}again\b": "recompute",
    r"\b(?:what|those that|modules|operators|within one it|when it) (?:is|are) (?:not )?(?:made|run) again\b": "recompute",
    r"\b(?:operators run|what runs|does not run) again\b": "recompute",
    r"\bdriving planner": "driving model",
}

# A choice has an enum (dtk/policies/enum_text.h). Names of these stand for what a registry or a file holds, or a text that is
# read: its keys, tables and fields, units and endings, words of an argument, devices as LibTorch writes them, patterns.
NAMES = (
    "(?:key|name|text|value|calibration|attempt|begin|extension|getBackendName|out|(?<![.>])(?:descr|device|drawn|ending|field"
    r"|folder|from|operator_name|order|projector|rest|table|unit|wanted|word))_?\b"
)
LAST = rf"\b(?!{NAMES})[A-Za-z_]\w*(?:\(\))?"  # of a.b->c: c
COMPARED = {
    rf'(?<!data\.){LAST} [!=]= "|" [!=]= (?:\w+(?:\(\))?(?:\.|->))*{LAST}(?![\w.(-])': "a value of its enum",
    rf"\bis_one_of\([^,()]*?(?<!\w){LAST},": "a value of its enum",
    r'\b(?:\w*options_?|model|config)(?:\.|->)name [!=]= "': "a value of its enum",  # a key, not what a file holds
    rf'(?:\.|->){LAST}\.(?:compare|starts_with|ends_with)\("': "a value of its enum",
    r'\b(?:contains\(|std::find\()[^;"]*, "\w+"\)': "a value of its enum",
}
# A file's own constants of text, which stand for what they hold.
CONSTANTS = re.compile(r"\b(?:constexpr\s+(?:static\s+)?|(?:static|inline)\s+const\s+|^const\s+)(?:std::string(?:_view)?|(?:const\s+)?char|auto)\b[^;]*;", re.MULTILINE)

TEXTS = tree.CODE | {".py", ".md", ".toml", ".txt", ".cmake", ".sh", ""}
EXEMPT = ("CHANGELOG.md", "LICENSE", "tests/house/words.py", "tests/house/self_test.py", "tests/house/names_test.py")
# Texts that describe; what they hold besides is what was put in or came out.
DESCRIBE = {"tests/fuzz/corpus/configuration/": ".toml", "benchmarks/results/": ".md"}
# Documents in which the planner is at home, and what it never does there.
ON_PLANS = ("CONTRIBUTING.md", "policies/README.md", "toolkit/README.md", "toolkit/plan/README.md")
ALONE = r"(?<![\w/])planners?\b(?!/)"
DRIVES = r"\b(?:cars?|driv\w+|steer\w*|roads?|routes?|lanes?|vehicles?|trajector\w+)\b"
ONE_SENTENCE = r"(?:(?!\n\n)[^.|])*?"
WELL_SAID = re.compile(r"diffusion[-_ ]planner|dtk::planner\b|the driving model", re.IGNORECASE)
PLANNER_ROOMS = ("policies/planner/", "tests/planner/", "tests/house/")


def whole_words(rules: dict[str, str]) -> dict[str, str]:
    return {rf"\b(?:{words})\b": now for words, now in rules.items()}


def identifier_rules(where: str) -> dict[str, str]:
    rules = whole_words(IN_CODE)
    if where.startswith("toolkit/"):
        rules |= OF_THE_TOOLKIT
        if not where.startswith(BELOW_THE_SEAMS):
            rules |= BY_SEAMS
    if where.startswith(FAMILIES):
        rules |= OF_FAMILIES
    return rules if where.startswith(PLANNER_ROOMS) else rules | DRIVING


def offences(root: Path, path: Path, lines: list[str], rules: dict[str, str], flags: int = 0, exempt: set[str] = KEYS) -> list[str]:
    compiled = [(re.compile(pattern, flags), now) for pattern, now in rules.items()]
    return [
        f"{tree.place(root, path, number)}: {match[0]}; today's word: {now}"
        for number, line in enumerate(lines, 1)
        for pattern, now in compiled
        if (match := pattern.search(line)) and match[0] not in exempt
    ]


def is_read(where: str) -> bool:
    return where not in EXEMPT and not where.startswith(("tests/fixtures/", "tests/fuzz/corpus/", "benchmarks/results/"))


def describes(where: str) -> bool:
    return any(where.startswith(folder) and where.endswith(ending) for folder, ending in DESCRIBE.items())


def names_of_python(path: Path) -> list[str]:
    """The names of each line."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    names = [""] * (len(lines) + 2)
    for token in tokenize.generate_tokens(iter(lines).__next__):
        if token.type == tokenize.NAME:
            names[token.start[0] - 1] += f" {token.string}"
    return names


def identifier_offences(root: Path) -> list[str]:
    found = []
    for path in tree.code(root):
        where = path.relative_to(root).as_posix()
        if is_read(where):
            lines = [re.sub("diffusion_planner|DiffusionPlanner", "", line) for line in tree.read_code(path)]
            found += offences(root, path, lines, identifier_rules(where), exempt=set())
    for path in tree.files(root):
        if path.suffix == ".py":
            found += offences(root, path, names_of_python(path), whole_words(OF_LIMITS))
    return found


def constants_as_texts(text: str) -> str:
    """Code in which a file's own constants of text are compared as what they stand for."""
    named = "|".join({name for statement in CONSTANTS.findall(text) for name in re.findall(r"(\w+)(?:\[\])?\s*(?:=\s*|\{)\"", statement)})
    if not named:
        return text
    return re.sub(rf"(?<=[!=]= )(?:\w+::)*({named})\b(?!\(| \+)|(?<![\w.>])(?:\w+::)*({named})\b(?= [!=]= )", lambda match: f'"{match[1] or match[2]}"', text)


def choice_offences(root: Path) -> list[str]:
    families, policies = family_names.names(root), planner_names.names(root, "policies")
    named = rf'(?:"(?:{"|".join(sorted(families | policies))})"|(?:\w+::)+kName\b)'
    asked = {
        rf"\bname\(\) [!=]= {named}|{named} [!=]= [^;&|]*\bname\(\)": "what its kind or family says of it",
        r"(?<!name\(\) )[!=]= (?:\w+::)+kName\b|(?:\w+::)+kName [!=]= (?![^;&|]*\bname\(\))": "policies::report_of(), or what its kind or family says of it",
    }
    found = []
    for path in tree.code(root, "toolkit", "policies", "models", "examples", "benchmarks"):
        rules = COMPARED if path.relative_to(root).parts[0] in ("toolkit", "policies", "models") else {}
        text = tree.without_comments(path.read_text(encoding="utf-8"), strings=True)
        found += offences(root, path, constants_as_texts(text).split("\n"), rules | asked)
    return found


def broken_offences(root: Path, path: Path, lines: list[str]) -> list[str]:
    """Phrases of prose that begin on one line and end on the next."""
    found = []
    for number, (line, after) in enumerate(zip(lines, lines[1:]), 1):
        line, after = line.rstrip(), re.sub(r"^\s*(?://+|#)?\s*", "", after)
        for pattern, now in PHRASES.items():
            match = re.search(pattern, f"{line} {after}", re.IGNORECASE)
            if match and match.start() < len(line) < match.end():
                found.append(f"{tree.place(root, path, number)}: {match[0]}; today's word: {now}")
    return found


def phrase_offences(root: Path) -> list[str]:
    found = []
    for path in tree.files(root):
        where = path.relative_to(root).as_posix()
        if path.suffix in TEXTS and (is_read(where) or describes(where)):
            lines = path.read_text(encoding="utf-8").split("\n")
            found += offences(root, path, lines, PHRASES, re.IGNORECASE) + broken_offences(root, path, lines)
            found += offences(root, path, lines, whole_words(IDENTIFIERS))
    return found


def planner_offences(root: Path) -> list[str]:
    """Documents that say planner of anything but memory."""
    found = []
    for path in tree.files(root):
        where = path.relative_to(root).as_posix()
        if path.suffix != ".md" or where.startswith(PLANNER_ROOMS):
            continue
        text = WELL_SAID.sub(lambda match: " " * len(match[0]), path.read_text(encoding="utf-8"))
        wrong = rf"{ALONE}{ONE_SENTENCE}{DRIVES}|{DRIVES}{ONE_SENTENCE}{ALONE}" if where in ON_PLANS else ALONE
        for match in re.finditer(wrong, text, re.IGNORECASE):
            line = text.count("\n", 0, match.start()) + 1
            found.append(f"{tree.place(root, path, line)}: {' '.join(match[0].split())}; planner is memory planning; the driving model is Diffusion-Planner")
    return found


def name_offences(root: Path) -> list[str]:
    found = []
    for path in tree.files(root):
        where = path.relative_to(root).as_posix()
        if not where.startswith(PLANNER_ROOMS) and "planner" in where.lower().replace("diffusion_planner", ""):
            found.append(f"{where}: planner is memory planning; the driving model is diffusion_planner")
    return found


def check(root: Path) -> list[str]:
    return identifier_offences(root) + choice_offences(root) + phrase_offences(root) + planner_offences(root) + name_offences(root)


if __name__ == "__main__":
    tree.run(check)
