"""picture.py: draws benchmarks/results/policies.svg of benchmarks/results/policies.json.

With `--stdout` the picture is printed instead. `benchmarks/policies/measure_picture` makes the results. Lengths are
pixels at a width of 900, sizes bytes. The widths of texts depend on the reader's fonts, so there is room beside them.
"""

import json
import sys
from pathlib import Path
from xml.sax.saxutils import escape

RESULTS = Path(__file__).resolve().parents[1] / "results"
WIDTH, MARGIN = 900, 8
MIB = 2**20
STATE = ("parameters", "gradients", "optimizer", "ema")  # as large whatever the batch
# Label, second line, and the switches precision, attention, ema, checkpoint; from the highest peak to the lowest.
ROWS = (
    ("no policy", "", "0000"),
    ("EMA on the host", "ema: no effect on a CPU", "0010"),
    ("fused attention", "attention", "0100"),
    ("bf16", "precision", "1000"),
    ("blocks recomputed", "checkpoint", "0001"),
    ("all four", "but not fusion", "1111"),
)
BAR, GAP, PITCH = 15, 3, 47  # height of a bar, between the two of a row, from row to row
LINE = 17  # from small text to small text
LEFT_BARS, LEFT_LENGTH = 160, 262
RIGHT, RIGHT_BARS, RIGHT_LENGTH = 584, 658, 130
TOP = 92  # of the first row

STYLE = """
  text { font: 13px -apple-system, "Segoe UI", "Noto Sans", Helvetica, Arial, sans-serif; fill: #1f2328 }
  .head { font-size: 16px; font-weight: 600 }
  .name { font-weight: 600 }
  .large { font-size: 20px; font-weight: 700; fill: #0b5cad }
  .small { font-size: 12px }
  .quiet { fill: #59636e }
  .act { fill: #0b5cad }
  .end { text-anchor: end }
  rect { stroke-width: 1 }
  .state { fill: #818b98; stroke: #818b98 }
  .rest { fill: #1f7ae0; stroke: #1f7ae0 }
  .planned { fill-opacity: 0.22 }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc }
    .large, .act { fill: #79b8ff }
    .quiet { fill: #9da7b3 }
    .state { fill: #8b949e; stroke: #8b949e }
    .rest { fill: #4c9bf5; stroke: #4c9bf5 }
    .planned { fill-opacity: 0.25 }
  }
"""


def text(x: float, y: float, words: str, kind: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}"' + (f' class="{kind}"' if kind else "") + f">{escape(words)}</text>"


def lines_of(x: float, y: float, lines: list[str]) -> list[str]:
    """Small texts below each other; the first one's base line is at y."""
    return [text(x, y + LINE * index, line, "small quiet") for index, line in enumerate(lines)]


def bar(x: float, y: float, length: float, kind: str) -> str:
    """Half a pixel off the grid, so that its outline is sharp."""
    return f'<rect x="{x + 0.5:.1f}" y="{y + 0.5:.1f}" width="{length:.1f}" height="{BAR - 1}" class="{kind}"/>'


def mib(size: int) -> str:
    return f"{size / MIB:.1f}"


def state_bytes(peak: dict) -> int:
    return sum(peak["categories"].get(name, 0) for name in STATE)


def rest_bytes(peak: dict) -> int:
    return peak["bytes"] - state_bytes(peak)


def combination(results: dict, switches: str) -> dict:
    names = ("precision", "attention", "ema", "checkpoint")
    wanted = {name: switch == "1" for name, switch in zip(names, switches, strict=True)}
    return next(row for row in results["peaks"] if all(row[name] == on for name, on in wanted.items()))


def peak_bar(y: float, peak: dict, kind: str, scale: float) -> list[str]:
    state = state_bytes(peak) * scale
    return [bar(LEFT_BARS, y, state, f"state {kind}"),
            bar(LEFT_BARS + state, y, rest_bytes(peak) * scale, f"rest {kind}"),
            text(LEFT_BARS + peak["bytes"] * scale + 7, y + BAR - 3, f"{mib(peak['bytes'])} MiB {kind}", "small")]


def peak_rows(results: dict) -> list[str]:
    most = max(row[kind]["bytes"] for row in results["peaks"] for kind in ("planned", "measured"))
    scale = LEFT_LENGTH / most
    parts = []
    for index, (label, key, switches) in enumerate(ROWS):
        row, y = combination(results, switches), TOP + index * PITCH
        parts += [text(MARGIN, y + (14 if key else 21), label, "name")]
        if key:
            no_bf16 = key == "precision" and results["job"]["precision_on"] != "bf16"
            parts.append(text(MARGIN, y + 30, key + (": no bf16 here" if no_bf16 else ""), "small quiet"))
        parts += peak_bar(y, row["planned"], "planned", scale)
        parts += peak_bar(y + BAR + GAP, row["measured"], "measured", scale)
    return parts


def peak_legend(results: dict) -> list[str]:
    """Above the parts of the first bar that they name."""
    first = combination(results, "0000")["planned"]
    split = LEFT_BARS + state_bytes(first) / first["bytes"] * LEFT_LENGTH
    return [text(split - 5, TOP - 8, "weights, gradients, Adam, EMA", "small quiet end"),
            text(split + 5, TOP - 8, "activations, temporaries", "small act")]


def activations_note(results: dict) -> list[str]:
    """To the right of the last row, whose bars are short."""
    none, everything = (rest_bytes(combination(results, switches)["measured"]) for switches in ("0000", "1111"))
    y = TOP + (len(ROWS) - 1) * PITCH
    return [text(RIGHT - 16, y + BAR - 3, "activations, temporaries", "small act end"),
            text(RIGHT - 16, y + 2 * BAR + GAP - 3, f"{mib(none)} \u2192 {mib(everything)} MiB", "small act end")]


def budget_rows(results: dict) -> dict[int, dict[str, dict]]:
    """By budget in bytes, the rows "none" and "all"."""
    found: dict[int, dict[str, dict]] = {}
    for row in results["batches"]:
        found.setdefault(row["budget_bytes"], {})[row["policies"]] = row
    return found


def ratio(rows: dict[str, dict]) -> float:
    """Of the batches measured, with all policies and without."""
    return rows["all"]["measured"]["batch"] / rows["none"]["measured"]["batch"]


def batch_rows(results: dict) -> list[str]:
    most = max(row[kind]["batch"] for row in results["batches"] for kind in ("planned", "measured"))
    scale = RIGHT_LENGTH / most
    parts, y = [], TOP
    for budget, rows in budget_rows(results).items():
        parts.append(text(RIGHT, y - 8, f"in {budget / 10**9:g} GB", "name"))
        parts.append(text(WIDTH - MARGIN, y + 25, f"{ratio(rows):.1f} times", "large end"))
        for label, name in (("no policy", "none"), ("all four", "all")):
            parts.append(text(RIGHT, y + 21, label, "name"))
            for kind, top in (("planned", y), ("measured", y + BAR + GAP)):
                length = rows[name][kind]["batch"] * scale
                parts += [bar(RIGHT_BARS, top, length, f"rest {kind}"),
                          text(RIGHT_BARS + length + 7, top + BAR - 3, f"{rows[name][kind]['batch']} {kind}", "small")]
            y += PITCH
        y += PITCH / 2
    return parts + lines_of(RIGHT, y + 4, batch_words(results))


def batch_words(results: dict) -> list[str]:
    rows = results["batches"]
    equal = all(row["planned"][name] == row["measured"][name] for row in rows for name in ("batch", "next_batch"))
    return ["Plan and run agree on the batch: one sample" if equal else "Plan and run differ. By each, one sample",
            "more exceeds the budget. 1 GB: 10\u2079 bytes."]


def differences(results: dict) -> list[int]:
    """Measured less planned bytes at the peak, of each combination."""
    return [row["measured"]["bytes"] - row["planned"]["bytes"] for row in results["peaks"]]


def calibrated_too(results: dict) -> bool:
    """Whether all that the plans missed is scratch of kernels, and plans that have it agree with the run."""
    return all(row["measured"]["categories"].get("scratch", 0) == difference
               and row.get("calibrated", row["planned"])["bytes"] == row["measured"]["bytes"]
               for row, difference in zip(results["peaks"], differences(results), strict=True))


def difference_words(results: dict) -> list[str]:
    """How far plan and run of the sixteen combinations are apart; each line fits the picture."""
    found = differences(results)
    other = [difference for difference in found if difference != 0]
    agreed = f"{len(found) - len(other)} of all {len(found)} combinations agree to the byte"
    if not other:
        return [f"{agreed}."]
    worst = max(range(len(found)), key=lambda index: abs(found[index]))
    share = abs(found[worst]) / results["peaks"][worst]["measured"]["bytes"]
    apart = f"{agreed}; in {len(other)} plan and run are up to {abs(found[worst]):,} bytes ({100 * share:.2f} %) apart"
    if not calibrated_too(results):
        return [f"{apart}."]
    measured_first = "where dit-plan measures that first (--calibration here), all agree to the byte"
    return [f"{apart},", f"which is scratch of kernels: {measured_first}."]


def footnote(results: dict) -> list[str]:
    machine = results["hardware"]
    return ["Planned by dit-plan, which computes nothing; measured by counting the tensors of the job while it ran.",
            *difference_words(results),
            f"{results['command']}, commit {results['commit']}, {results['date']}; {machine['processor']}, "
            f"{machine['cores']} cores, {machine['memory_gib']} GiB, on the {results['job']['device'].upper()}."]


def heads(results: dict) -> list[str]:
    job = results["job"]
    none, everything = (combination(results, switches)["measured"]["bytes"] for switches in ("0000", "1111"))
    lowest = min(ratio(rows) for rows in budget_rows(results).values())
    return [text(MARGIN, 22, f"Same training step: {100 * (1 - everything / none):.0f} % less memory", "head"),
            text(MARGIN, 43, f"Peak memory of {job['model']}, batch {job['batch']}, by policy", "quiet"),
            text(RIGHT, 22, f"Same memory: {int(lowest)} times the batch", "head"),
            text(RIGHT, 43, f"Largest batch of {job['model']}, by budget", "quiet")]


def description(results: dict) -> str:
    """What the picture says, for who cannot see it."""
    peaks = [f"{label} {mib(row['planned']['bytes'])} planned, {mib(row['measured']['bytes'])} measured"
             for label, _, switches in ROWS for row in [combination(results, switches)]]
    batches = [f"in {budget / 10**9:g} GB {rows[name][kind]['batch']} {kind} with {words}"
               for budget, rows in budget_rows(results).items()
               for name, words in (("none", "no policy"), ("all", "all four")) for kind in ("planned", "measured")]
    return f"Peak memory in MiB: {'; '.join(peaks)}. Largest batch: {'; '.join(batches)}."


def picture(results: dict) -> str:
    notes, notes_top = footnote(results), TOP + len(ROWS) * PITCH + 20
    height = notes_top + LINE * len(notes) - 5
    parts = [*heads(results), *peak_legend(results), *peak_rows(results), *activations_note(results),
             *batch_rows(results)]
    parts += lines_of(MARGIN, notes_top, notes)
    body = "\n".join("  " + part for part in parts)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
            f'role="img" aria-labelledby="title desc">\n  <title id="title">What the memory policies of dit-train do'
            f'</title>\n  <desc id="desc">{escape(description(results))}</desc>\n'
            f"  <style>{STYLE}  </style>\n{body}\n</svg>\n")


def main() -> None:
    svg = picture(json.loads((RESULTS / "policies.json").read_text(encoding="utf-8")))
    if sys.argv[1:] == ["--stdout"]:
        sys.stdout.write(svg)
    elif sys.argv[1:]:
        raise SystemExit(__doc__)
    else:
        (RESULTS / "policies.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
