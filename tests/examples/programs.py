"""Runs an example as its user does."""

import json
import subprocess
from pathlib import Path


def execute(program: Path, *arguments: object) -> subprocess.CompletedProcess:
    command = [str(program), *(str(argument) for argument in arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240)


def result_of(program: Path, *arguments: object) -> dict:
    done = execute(program, *arguments, "--json")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return json.loads(done.stdout)
