"""report_browser_test.py DIT_TRAIN: a browser shows report.html as it is meant, at 390 and at 1280 pixels.

The report is put into frames of a page whose script measures them and leaves the figures in its own document, which
headless Chromium prints. Skipped where there is no Chromium.
"""

import functools
import html
import json
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import programs  # noqa: E402
from programs import STEPS, ProgramTest, execute, settings, write_inputs  # noqa: E402

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
WIDTHS = (390, 1280)
MEASURE = r"""
const box = element => { const b = element.getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom]; };
const all = (page, selector) => [...page.querySelectorAll(selector)];
window.onload = () => {
  const figures = [...document.querySelectorAll("iframe")].map(frame => {
    const page = frame.contentDocument, window = frame.contentWindow;
    return {
      width: frame.clientWidth,
      scrollWidth: page.documentElement.scrollWidth,
      background: window.getComputedStyle(page.body).backgroundColor,
      ink: window.getComputedStyle(page.body).color,
      curves: Object.fromEntries(all(page, "figure.chart").map(chart =>
          [chart.dataset.chart, box(chart.querySelector("path.bold"))])),
      strokes: all(page, "path.bold").map(path => window.getComputedStyle(path).strokeWidth),
      labels: all(page, ".xs, .ys, .bar-axis div").map(axis => [...axis.children].map(box)),
      fontSizes: all(page, "body *").map(e => parseFloat(window.getComputedStyle(e).fontSize)),
      bars: all(page, ".bar svg").map(svg => ({
        phase: svg.dataset.phase, box: box(svg),
        parts: [...svg.children].map(rect => [...box(rect), window.getComputedStyle(rect).fill]) })),
      images: all(page, "img").map(image => [image.naturalWidth, box(image)]),
      pairs: all(page, ".pair > figure").map(box),
      folded: all(page, "details:not([open]) > summary").map(summary => summary.textContent),
      captions: all(page, "figure.chart").map(chart => (chart.querySelector("p.note") || {textContent: ""}).textContent),
      headings: all(page, "h2").map(heading => heading.textContent),
    };
  });
  document.body.dataset.figures = JSON.stringify(figures);
};
"""


@functools.cache
def browser() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


@functools.cache
def report() -> str:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_inputs(folder)
        values = {"train__sample_every": 8, "log__peak_tflops": 0.5, "train__log_every": 1}
        result = execute(
            programs.TRAIN, folder, "--config", "tiny.toml", "--device", "cpu", *settings(values)
        )
        assert result.returncode == 0, result.stderr
        return (folder / "run/report.html").read_text(encoding="utf-8")


def show(page: str, *options: str) -> tuple[list[dict], list[str]]:
    """The figures measured in frames of `page`, and what the browser's console says."""
    frames = "".join(
        f'<iframe style="width:{width}px;height:900px;border:0" srcdoc="{html.escape(page)}"></iframe>' for width in WIDTHS
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "frames.html"
        file.write_text(
            f'<!DOCTYPE html><html><head><meta charset="utf-8"></head><body>{frames}<script>{MEASURE}</script></body></html>',
            encoding="utf-8",
        )
        command = [browser(), "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile"]
        command += ["--enable-logging=stderr", "--window-size=1500,900", *options, "--dump-dom", file.as_uri()]
        result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    console = [line for line in result.stderr.splitlines() if ":CONSOLE" in line]
    found = re.search(r'data-figures="([^"]*)"', result.stdout)
    assert found, f"nothing was measured: {console}\n{result.stderr[-2000:]}"
    return json.loads(html.unescape(found[1])), console


@functools.cache
def shown() -> tuple[list[dict], list[str]]:
    return show(report())


def apart(boxes: list[list[float]]) -> bool:
    """No two boxes touch."""
    return all(
        a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
        for i, a in enumerate(boxes)
        for b in boxes[:i]
    )


class Browser(ProgramTest):
    def test_the_console_is_silent(self):
        self.assertEqual(shown()[1], [])

    def test_the_console_would_be_heard(self):
        _, console = show(report().replace("</body>", "<script>nothing.here()</script></body>"))
        self.assertEqual(len(console), len(WIDTHS), console)
        self.assertIn("nothing is not defined", console[0])

    def test_nothing_is_wider_than_the_page(self):
        for width, figures in zip(WIDTHS, shown()[0]):
            self.assertEqual(figures["width"], width)
            self.assertLessEqual(figures["scrollWidth"], width)
            self.assertEqual(figures["headings"][:3], ["Samples", "Training", "Memory"])

    def test_curves_are_drawn(self):
        for figures in shown()[0]:
            self.assertEqual(set(figures["curves"]), {"loss", "lr", "speed", "gradient_norm", "mfu", "process_memory"})
            for name, (left, top, right, bottom) in figures["curves"].items():
                self.assertGreater(right - left, figures["width"] / 4, name)
                if name != "process_memory":  # lies level
                    self.assertGreater(bottom - top, 20, name)
                self.assertGreaterEqual(left, 0, name)
                self.assertLessEqual(right, figures["width"], name)
            self.assertEqual(set(figures["strokes"]), {"2px"})

    def test_each_chart_says_what_it_shows(self):
        for figures in shown()[0]:
            self.assertEqual(len(figures["captions"]), len(figures["curves"]))
            for caption in figures["captions"]:
                self.assertRegex(caption, r"^[A-Z].{20,}\.$")

    def test_labels_can_be_read(self):
        for figures in shown()[0]:
            self.assertGreaterEqual(min(figures["fontSizes"]), 12)
            self.assertGreaterEqual(len(figures["labels"]), 11)
            for labels in figures["labels"]:
                self.assertGreaterEqual(len(labels), 2)
                self.assertTrue(apart(labels), labels)
                for left, _, right, _ in labels:
                    self.assertGreaterEqual(left, 0)
                    self.assertLessEqual(right, figures["width"])

    def test_bars_are_stacked(self):
        for figures in shown()[0]:
            self.assertIn("backward", [bar["phase"] for bar in figures["bars"]])
            for bar in figures["bars"]:
                left, _, right, _ = bar["box"]
                self.assertGreater(right - left, figures["width"] / 3)
                *bar["parts"], planned = bar["parts"]  # drawn last
                last = bar["parts"][-1]  # where kernels take something for themselves, this, which is in no plan
                self.assertTrue(last[0] - 3 < planned[0] < last[2] + 3, (planned, last))
                self.assertLess(planned[2] - planned[0], 4)
                edges = [part[0] for part in bar["parts"]]
                self.assertEqual(edges, sorted(edges))
                self.assertAlmostEqual(edges[0], left, delta=1)
                self.assertLessEqual(bar["parts"][-1][2], right + 1)
                colours = [part[4] for part in bar["parts"]]
                self.assertEqual(len(set(colours)), len(colours))
                self.assertNotIn("rgb(0, 0, 0)", colours)

    def test_grids_are_decoded(self):
        for figures in shown()[0]:
            self.assertEqual(len(figures["images"]), 3)
            for width, (left, top, right, bottom) in figures["images"]:
                self.assertGreater(width, 0)
                self.assertGreater(min(right - left, bottom - top), 100)
            width, (left, _, right, _) = figures["images"][0]  # the latest, at a whole multiple of its size
            self.assertAlmostEqual(right - left, min(right - left, 8 * width), delta=0)
            if right - left > width:
                self.assertEqual((right - left) % width, 0)

    def test_no_chart_stands_alone_in_a_row(self):
        for figures in shown()[0]:
            rows = {}
            for left, top, right, _ in figures["pairs"]:
                rows.setdefault(round(top), []).append(right - left)
            widest = max(sum(row) for row in rows.values())
            for row in rows.values():
                self.assertGreater(sum(row), 0.9 * widest)

    def test_what_is_exact_is_folded(self):
        for figures in shown()[0]:
            self.assertEqual(figures["folded"][0], "Exact bytes")

    def test_dark_where_the_user_prefers_it(self):
        def brightness(colour: str) -> float:
            return sum(map(int, re.findall(r"\d+", colour)[:3])) / 3

        dark, console = show(report(), "--blink-settings=preferredColorScheme=0")
        self.assertEqual(console, [])
        for light_figures, dark_figures in zip(shown()[0], dark):
            self.assertGreater(brightness(light_figures["background"]) - brightness(light_figures["ink"]), 150)
            self.assertGreater(brightness(dark_figures["ink"]) - brightness(dark_figures["background"]), 150)


if __name__ == "__main__":
    programs.TRAIN = Path(sys.argv[1]).resolve()
    if browser() is None:
        print(f"SKIPPED: no browser here ({', '.join(NAMES)})")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
