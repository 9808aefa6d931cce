"""skips.py JUNIT LABELS: prints each skipped test with its reason and judges the skips of a ctest run.

JUNIT is what `ctest --output-junit` wrote, LABELS what `ctest --show-only=json-v1` printed. A test says that
it, or a part of it, was skipped with a line "SKIPPED: <reason>"; a test skipped as a whole also exits with
the code that its SKIP_RETURN_CODE names. Exit 1: a skip outside the labels gpu, gpus (several), simulated-cuda, browser
and namespaces, a skip without a reason, or no test that ran.
"""

import json
import re
import sys
import xml.etree.ElementTree as xml
from dataclasses import dataclass
from pathlib import Path

MAY_SKIP = {"gpu", "gpus", "simulated-cuda", "browser", "namespaces"}
REASON = re.compile(r"^SKIPPED:[ \t]*(\S.*)$", re.MULTILINE)


@dataclass
class Test:
    name: str
    ran: bool
    skipped: bool
    reasons: list[str]


def read_tests(junit: Path) -> list[Test]:
    tests = []
    for case in xml.parse(junit).getroot().iter("testcase"):
        output = case.findtext("system-out") or ""
        reasons = REASON.findall(output)
        ran = case.get("status") in ("run", "fail")
        if not ran and not reasons and case.get("status") == "disabled":
            reasons = ["disabled in CMake"]
        tests.append(Test(case.get("name", "?"), ran, not ran or bool(reasons), reasons))
    return tests


def read_labels(listing: Path) -> dict[str, set[str]]:
    labels = {}
    for test in json.loads(listing.read_text())["tests"]:
        values = [entry["value"] for entry in test.get("properties", []) if entry["name"] == "LABELS"]
        labels[test["name"]] = {label for value in values for label in value}
    return labels


def judge(tests: list[Test], labels: dict[str, set[str]]) -> tuple[list[str], list[str]]:
    """Lines to print for the skipped tests, and what is wrong."""
    lines, wrong = [], []
    for test in tests:
        if not test.skipped:
            continue
        own = labels.get(test.name, set())
        lines.append(
            f"skipped: {test.name} [{' '.join(sorted(own))}]: {'; '.join(test.reasons) or 'no reason given'}"
        )
        if not test.reasons:
            wrong.append(f'{test.name}: skipped without a line "SKIPPED: <reason>"')
        if not own & MAY_SKIP:
            wrong.append(
                f"{test.name}: skipped, and only tests labelled {' or '.join(sorted(MAY_SKIP))} may be"
            )
    if not any(test.ran for test in tests):
        wrong.append("no test ran")
    return lines, wrong


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    junit, listing = Path(arguments[0]), Path(arguments[1])
    tests = read_tests(junit) if junit.is_file() else []
    lines, wrong = judge(tests, read_labels(listing))
    print("\n".join(lines + [f"tests/run: error: {line}" for line in wrong]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
