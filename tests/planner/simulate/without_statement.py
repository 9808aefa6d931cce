"""without_statement.py SOURCE STATEMENT OUTPUT: writes SOURCE without the one line that is STATEMENT and a semicolon.

Fails if that line is not there exactly once, so that a variant never is the original.
"""

import sys
from pathlib import Path

source, statement, output = sys.argv[1:]
lines = Path(source).read_text(encoding="utf-8").splitlines(keepends=True)
found = [number for number, line in enumerate(lines) if line.strip() == statement + ";"]
if len(found) != 1:
    sys.exit(f'{source}: "{statement};" is a line of its own {len(found)} times; name a statement that is there once')
del lines[found[0]]
Path(output).write_text("".join(lines), encoding="utf-8")
