"""gpu_calibration_test.py DIT_PLAN SOURCE: what a CUDA device adds, measured and against the formulas. Label gpu:
skipped where no driver answers."""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from gpu import SKIPPED, driver_problem  # noqa: E402


def main(plan: str, source: str) -> int:
    problem = driver_problem()
    if problem:
        print(f"SKIPPED: {problem}")
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "gpu.json")
        subprocess.run([plan, "--calibrate", str(file), "--device", "cuda"], check=True)
        terms = json.loads(file.read_text())["terms"]
        by_name = {name: [t for t in terms if t["name"] == name] for name in {t["name"] for t in terms}}
        assert set(by_name) == {"rounding", "attention_scratch", "reduction_scratch", "workspaces", "context", "pinned"}, terms
        for name in ("rounding", "attention_scratch", "reduction_scratch", "workspaces", "pinned"):
            for term in by_name[name]:
                assert term["bytes"] == term["by_formula"], term
        assert by_name["context"][0]["bytes"] > 500_000_000, terms
        command = [plan, "--config", f"{source}/configs/base.toml", "--calibration", str(file), "--json"]
        report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        for term in report["plan"]["device_terms"]:
            assert term["measured"] != "never" or not term["known"], term
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
