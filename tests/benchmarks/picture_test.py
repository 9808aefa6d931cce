"""picture_test.py: the committed picture of the memory policies is what its script makes of the committed results, and
says what they say."""

import copy
import json
import re
import sys
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks/policies"))

import picture  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"
PARTS = ("planned", "measured")


class Drawn:
    """A picture's texts and bars."""

    def __init__(self, svg: str):
        self.root = ElementTree.fromstring(svg)
        self.texts = [(float(text.get("x")), float(text.get("y")), text.get("class") or "", text.text)
                      for text in self.root.iter(SVG + "text")]
        self.words = [words for *_, words in self.texts]

    def bars(self, part: str, left: float) -> list[float]:
        """Lengths of the bars that begin at `left`, from the top; what continues one is added to it."""
        rows: dict[float, list[tuple[float, float]]] = {}
        for rect in self.root.iter(SVG + "rect"):
            if part in rect.get("class").split():
                rows.setdefault(float(rect.get("y")), []).append((float(rect.get("x")), float(rect.get("width"))))
        found = []
        for _, pieces in sorted(rows.items()):
            inside = [(x, length) for x, length in pieces if (x < picture.RIGHT) == (left < picture.RIGHT)]
            if inside:
                assert abs(min(inside)[0] - left - 0.5) < 0.1, inside
                found.append(sum(length for _, length in inside))
        return found


class Picture(unittest.TestCase):
    def setUp(self):
        self.results = json.loads((picture.RESULTS / "policies.json").read_text(encoding="utf-8"))
        self.svg = (picture.RESULTS / "policies.svg").read_text(encoding="utf-8")
        self.drawn = Drawn(self.svg)

    def test_the_committed_picture_is_made_of_the_committed_results(self):
        self.assertEqual(self.svg.encode(), picture.picture(self.results).encode(),
                         "run benchmarks/policies/picture.py")

    def test_the_results_hold_every_combination_once_and_say_where_they_are_from(self):
        rows = self.results["peaks"]
        names = ("precision", "attention", "ema", "checkpoint")
        self.assertEqual(len({tuple(row[name] for name in names) for row in rows}), 16)
        self.assertEqual(len(rows), 16)
        for row in rows:
            for part in (*PARTS, *({"calibrated"} & set(row))):
                self.assertEqual(sum(row[part]["categories"].values()), row[part]["bytes"], row)
        for name in ("command", "commands", "commit", "date", "hardware"):
            self.assertTrue(self.results[name], name)
        self.assertEqual(self.results["unit"], "bytes")
        budgets = [(row["budget_bytes"], row["policies"]) for row in self.results["batches"]]
        self.assertEqual(sorted(budgets), [(10**9, "all"), (10**9, "none"), (2 * 10**9, "all"), (2 * 10**9, "none")])

    def test_the_numbers_in_the_texts_are_those_of_the_results(self):
        for label, _, switches in picture.ROWS:
            row = picture.combination(self.results, switches)
            self.assertEqual("".join(str(int(row[name])) for name in ("precision", "attention", "ema", "checkpoint")),
                             switches)
            self.assertIn(label, self.drawn.words)
        drawn = [picture.combination(self.results, switches) for *_, switches in picture.ROWS]
        self.assertEqual([words for words in self.drawn.words if re.search(r" MiB (planned|measured)$", words)],
                         [f"{row[part]['bytes'] / 2**20:.1f} MiB {part}" for row in drawn for part in PARTS])
        self.assertEqual([words for words in self.drawn.words if re.search(r"^\d+ (planned|measured)$", words)],
                         [f"{row[part]['batch']} {part}" for row in self.results["batches"] for part in PARTS])
        for origin in (self.results["command"], self.results["commit"], self.results["date"],
                       self.results["hardware"]["processor"]):
            self.assertIn(origin, self.drawn.words[-1])

    def test_the_heads_are_what_the_numbers_come_to(self):
        none, everything = (picture.combination(self.results, switches)["measured"]["bytes"]
                            for switches in ("0000", "1111"))
        self.assertIn(f"Same training step: {round(100 - 100 * everything / none)} % less memory", self.drawn.words)
        measured = [row["measured"]["batch"] for row in self.results["batches"]]
        ratios = [measured[1] / measured[0], measured[3] / measured[2]]
        self.assertIn(f"Same memory: {int(min(ratios))} times the batch", self.drawn.words)
        self.assertEqual([words for words in self.drawn.words if re.search(r"^[\d.]+ times$", words)],
                         [f"{ratio:.1f} times" for ratio in ratios])

    def test_bars_are_as_long_as_their_numbers(self):
        drawn = [picture.combination(self.results, switches) for *_, switches in picture.ROWS]
        for part in PARTS:
            for lengths, numbers in (
                (self.drawn.bars(part, picture.LEFT_BARS), [row[part]["bytes"] for row in drawn]),
                (self.drawn.bars(part, picture.RIGHT_BARS), [row[part]["batch"] for row in self.results["batches"]])):
                self.assertEqual(len(lengths), len(numbers))
                for length, number in zip(lengths, numbers, strict=True):
                    self.assertAlmostEqual(length, max(lengths) * number / max(numbers), delta=0.25)

    def test_where_plan_and_run_differ_the_picture_says_by_how_much(self):
        differences = [row["measured"]["bytes"] - row["planned"]["bytes"] for row in self.results["peaks"]]
        text = " ".join(self.drawn.words)
        self.assertIn(f"{differences.count(0)} of all 16 combinations agree to the byte", text)
        if any(differences):
            self.assertIn(f"up to {abs(max(differences, key=abs)):,} bytes (", text)
            agree = all(row.get("calibrated", row["planned"])["bytes"] == row["measured"]["bytes"]
                        for row in self.results["peaks"])
            self.assertEqual("(--calibration here), all agree to the byte" in text, agree)
        batches = self.results["batches"]
        equal = all(row["planned"][name] == row["measured"][name]
                    for row in batches for name in ("batch", "next_batch"))
        self.assertEqual("Plan and run agree" in text, equal)

    def test_other_results_would_be_said(self):
        other = copy.deepcopy(self.results)
        for row in other["peaks"]:
            row["measured"] = copy.deepcopy(row["planned"])
        self.assertEqual(picture.difference_words(other), ["16 of all 16 combinations agree to the byte."])
        other["peaks"][3]["measured"]["bytes"] += 1000
        self.assertRegex(picture.difference_words(other)[0], r"^15 of .*; in 1 plan and run are up to 1,000 bytes \(")
        self.assertEqual(len(picture.difference_words(other)), 1, "nothing counted it as scratch")
        other["batches"][0]["measured"]["batch"] += 1
        self.assertIn("Plan and run differ", picture.batch_words(other)[0])

    def test_who_reads_it_small_in_the_dark_or_aloud_can(self):
        self.assertIn("@media (prefers-color-scheme: dark)", self.svg)
        sizes = [int(size) for size in re.findall(r"(\d+)px", self.svg)]
        self.assertGreaterEqual(min(sizes), 12)
        self.assertEqual(self.drawn.root.get("width"), "900")
        self.assertTrue(self.drawn.root.find(SVG + "title").text)
        spoken = self.drawn.root.find(SVG + "desc").text
        for row in self.results["batches"]:
            self.assertIn(f"{row['measured']['batch']} measured", spoken)

    def test_texts_do_not_meet(self):
        """By the widths of a wide font: DejaVu Sans takes 0.5 to 0.58 of its size a letter of these texts."""
        sizes = {"head": 16 * 1.08, "large": 20 * 1.08, "small": 12, "name": 13 * 1.08}
        lines: dict[float, list[tuple[float, float, str]]] = {}
        for x, y, kind, words in self.drawn.texts:
            size = next((sizes[name] for name in kind.split() if name in sizes), 13)
            width = 0.56 * size * len(words)
            begin = x - width if "end" in kind.split() else x
            lines.setdefault(y, []).append((begin, begin + width, words))
        for spans in lines.values():
            spans.sort()
            self.assertGreaterEqual(spans[0][0], 0, spans)
            self.assertLessEqual(spans[-1][1], picture.WIDTH, spans)
            for (_, end, one), (begin, _, other) in zip(spans, spans[1:], strict=False):
                self.assertLessEqual(end, begin + 3, (one, other))


if __name__ == "__main__":
    unittest.main()
