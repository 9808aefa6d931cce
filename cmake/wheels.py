"""Finds packages in a site-packages folder that an interrupted pip left incomplete.

wheels.py repair SITE   removes the metadata of incomplete packages, so that pip installs them again
wheels.py verify SITE   names incomplete packages and exits 1

A package is complete when its RECORD is there and every file that RECORD gives a size for has that size.
"""

import csv
import shutil
import sys
from pathlib import Path


def first_defect(site: Path, dist_info: Path) -> str | None:
    """What is wrong with an installed package, or None."""
    # pip writes INSTALLER and the final RECORD after all other files.
    for name in ("METADATA", "INSTALLER", "RECORD"):
        if not (dist_info / name).is_file():
            return f"{dist_info.name}/{name} is missing"
    with open(dist_info / "RECORD", newline="", encoding="utf-8") as record:
        for row in csv.reader(record):
            path, size = row[0], row[2] if len(row) > 2 else ""
            if not size:
                continue
            try:
                seen = (site / path).stat().st_size
            except OSError:
                return f"{path} is missing"
            if seen != int(size):
                return f"{path} has {seen} bytes instead of {size}"
    return None


def incomplete_packages(site: Path) -> list[tuple[Path, str]]:
    found = []
    for dist_info in sorted(site.glob("*.dist-info")):
        defect = first_defect(site, dist_info)
        if defect:
            found.append((dist_info, defect))
    return found


def main(arguments: list[str]) -> int:
    if len(arguments) != 2 or arguments[0] not in ("repair", "verify"):
        print(__doc__, file=sys.stderr)
        return 2
    action, site = arguments[0], Path(arguments[1])
    found = incomplete_packages(site)
    for dist_info, defect in found:
        if action == "repair":
            print(f"setup: incomplete, will be installed again: {dist_info.stem} ({defect})")
            shutil.rmtree(dist_info)
        else:
            print(f"setup: error: incomplete: {dist_info.name} ({defect})", file=sys.stderr)
    return 1 if found and action == "verify" else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
