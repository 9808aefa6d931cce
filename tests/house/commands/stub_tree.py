"""A copy of the set-up and the two commands among stub programs, so that running them installs nothing."""

import shutil
import stat
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
COPIED = (
    "cmake/setup.sh",
    "cmake/build.sh",
    "cmake/wheels.py",
    "examples/diffusion_planner/quickstart",
    "examples/quickstart",
    "examples/support/quickstart.sh",
    "tests/run",
    "tests/house/commands/skips.py",
)
TOOLS = "bash env cat sed awk dirname mkdir rm mv cp df realpath find sort tail chmod touch sleep ls".split()
LOG = 'printf "%s %s\\n" "${0##*/}" "$*" >>"$CALLS"\n'

# Stands for python3 and for the virtual environment's: real for scripts, fabricated for venv and pip.
PYTHON = LOG + r"""
site=$(dirname "$0")/../lib/python3.11/site-packages
case "$*" in
  *version_info*) exit "${UNSUPPORTED:-0}" ;;
  *python_version*) echo 3.9.2 ;;
  *libcuda*) exit "${NO_DRIVER:-1}" ;;
  *sysconfig*) echo "$(dirname "$(dirname "$0")")/lib/python3.11/site-packages" ;;
  "-m venv "*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python" ;;
  "-m pip --version") [[ ! -e $(dirname "$0")/no-pip ]] ;;
  *" install "*)
    [[ -z ${PIP_FAILS:-} ]] || exit 1
    [[ -z ${PIP_SECONDS:-} ]] || sleep "$PIP_SECONDS"
    if [[ -n ${PIP_INTERRUPTED:-} ]]; then  # as by a power cut: half of it is there
      mkdir -p "$site/torch/lib"
      echo x >"$site/torch/lib/libc10.so"
      kill -KILL "$PPID"
    fi
    if [[ $* == *safetensors* ]]; then
      for package in safetensors-0.8.0 numpy-2.2.6 protobuf-6.33.1 absl_py-2.3.1 tensorboard-2.20.0 auditwheel-6.8.2 \
        transformers-4.57.1 peft-0.17.1 sentencepiece-0.2.3; do
        mkdir -p "$site/$package.dist-info"
        echo x >"$site/$package.dist-info/RECORD"
      done
      exit
    fi
    mkdir -p "$site/torch/lib"
    for name in torch_cpu c10; do echo x >"$site/torch/lib/lib$name.so"; done ;;
  *) exec "$REAL_PYTHON" "$@" ;;
esac
"""

CTEST = LOG + r"""
if [[ $* == *" -N "* ]]; then
  echo "Total Tests: ${LONG_TESTS:-0}"
  exit
fi
for argument; do
  if [[ $argument == --show-only* ]]; then
    echo '{"tests": [{"name": "a", "properties": [{"name": "LABELS", "value": ["unit"]}]}]}'
    exit
  fi
  if [[ ${previous:-} == --output-junit ]]; then echo "$JUNIT" >"$argument"; fi
  previous=$argument
done
exit "${CTEST_EXIT:-0}"
"""

CMAKE = LOG + r"""
folder=build/release
for argument; do
  [[ ${previous:-} != -B ]] || folder=$argument
  previous=$argument
done
mkdir -p "$folder"
touch "$folder/build.ninja"
library=${!#}
library=${library##*=}
{
  printf 'CMAKE_HOME_DIRECTORY:INTERNAL=%s\n' "$PWD"
  printf 'DTK_TORCH_CPU:FILEPATH=%s\n' "$library"
} >"$folder/CMakeCache.txt"
"""

# ninja "builds" the programs; dit-train leaves a grid behind, those around the driving model how they were called.
NINJA = LOG + r"""
cat >"$2/dit-train" <<'END'
#!/usr/bin/env bash
for argument; do printf '[%s]' "$argument"; done >"$ARGUMENTS"
for argument; do [[ $argument != train.out=* ]] || out=${argument#train.out=}; done
mkdir -p "$out/samples"
touch "$out/samples/grid-0001.png" "$out/samples/grid-0002.png"
exit "${TRAIN_EXIT:-0}"
END
chmod +x "$2/dit-train"
for program in draw-scenes dit-sample show-trajectories; do
  cat >"$2/$program" <<'END'
#!/usr/bin/env bash
name=${0##*/}
printf '%s %s\n' "$name" "$*" >>"$CALLS"
while [[ $# -gt 1 && $1 != --out ]]; do shift; done
mkdir -p "$2"
touch "$2/$name"
END
  chmod +x "$2/$program"
done
"""


class StubTreeTest(unittest.TestCase):
    NAME = "tree"

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.top = Path(folder.name).resolve()
        self.tree, self.bin, self.calls = self.top / self.NAME, self.top / "bin", self.top / "calls"
        for path in COPIED:
            (self.tree / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, self.tree / path)
        self.bin.mkdir()
        for tool in TOOLS:
            (self.bin / tool).symlink_to(shutil.which(tool))
        self.stub("python3", PYTHON)
        self.stub("id", "echo 0\n")
        self.stub("apt-get", LOG)
        self.stub(
            "dpkg-query",
            'for p; do [[ $p == -* || " ${MISSING:-} " == *" $p "* ]] || echo "$p installed"; done\n',
        )
        self.stub("cmake", CMAKE)
        self.stub("ninja", NINJA)
        self.stub("ctest", CTEST)
        self.move_system_paths()
        self.environment = {
            "PATH": str(self.bin),
            "HOME": str(self.top),
            "CALLS": str(self.calls),
            "REAL_PYTHON": sys.executable,
            "ARGUMENTS": str(self.top / "arguments"),
            "JUNIT": '<testsuite><testcase name="a" status="run"/></testsuite>',
        }

    def move_system_paths(self) -> None:
        """Points the copy away from this machine's Python and data set."""
        setup = self.tree / "cmake/setup.sh"
        text = setup.read_text()
        for path in ("/usr/share/datasets", "/usr/bin/python3"):
            self.assertIn(path, text)
            text = text.replace(path, str(self.top / "system") + path)
        setup.write_text(text)
        data = self.top / "system/usr/share/datasets/fashion-mnist"
        data.mkdir(parents=True)
        for name in ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"):
            (data / name).touch()
        (self.tree / "configs").mkdir()
        (self.tree / "configs/base.toml").write_text(
            f'[model]\nimages = "no"\n[data]\nimages = "{data}/train-images-idx3-ubyte.gz"\n'
            f'labels = "{data}/train-labels-idx1-ubyte.gz"  # gzipped\n[train]\n'
        )
        self.data = data

    def stub(self, name: str, text: str) -> None:
        path = self.bin / name
        path.unlink(missing_ok=True)  # it may be a link to the machine's own
        path.write_text("#!/usr/bin/env bash\n" + text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def run_command(self, *command: str, cwd: Path | None = None, **environment: str):
        self.calls.write_text("")
        return self.run_beside(*command, cwd=cwd, **environment)

    def run_beside(self, *command: str, cwd: Path | None = None, **environment: str):
        return subprocess.run(
            ["bash", *command],
            cwd=cwd or self.tree,
            env=self.environment | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )

    def setup_command(self, level: str, **environment: str):
        return self.run_command("cmake/setup.sh", level, **environment)

    def called(self, program: str) -> list[str]:
        return [line for line in self.calls.read_text().split("\n") if line.startswith(program + " ")]

    def installs(self) -> list[str]:
        return [line.split(" install ")[1] for line in self.called("python") if " install " in line]
