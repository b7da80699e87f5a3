"""A report in a browser: on a page of 400 pixels, by the rules of axe, and in print."""

import json
import re
import shutil
import subprocess
from html import unescape

import pytest

from cards import PUBLISHED, published_page
from headtohead.report.writing import write_report
from made.fake_study import Study, edit, write_study
from measured import RESULTS

WIDTH = 400
SMALLEST = 9
"""Smallest size of text in figures, in pixels of the page."""

MEASURE = """
document.querySelectorAll("details").forEach(function (part) { part.open = true; });
var sizes = [];
document.querySelectorAll("svg text").forEach(function (text) {
  if (!text.getClientRects().length) return;
  var matrix = text.getScreenCTM();
  var scale = Math.hypot(matrix.a, matrix.b);
  sizes.push([parseFloat(getComputedStyle(text).fontSize) * scale, text.textContent]);
});
sizes.sort(function (a, b) { return a[0] - b[0]; });
var hidden = 0;
document.querySelectorAll(".plot:not(.natural), .chart, .chart table").forEach(function (plot) {
  hidden = Math.max(hidden, plot.scrollWidth - plot.clientWidth);
});
var found = { page: document.documentElement.scrollWidth, hidden: hidden, window: innerWidth, texts: sizes.length };
found.smallest = sizes[0];
parent.postMessage(JSON.stringify(found), "*");
"""
FRAME = """<title></title><script>onmessage = function (event) {{ document.title = event.data; }}</script>
<iframe src="page.html" width="{width}" height="900" style="border: 0"></iframe>"""
"""A browser window has at least 500 pixels, a frame can be narrower."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def page(quickstart, tmp_path_factory):
    return write_report(quickstart, tmp_path_factory.mktemp("reports")).html.read_text(
        encoding="utf-8"
    )


@pytest.fixture
def chromium(tmp_path):
    """Return a function that runs Chromium without a window, and returns its output."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("needs Chromium")

    def run(*arguments):
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
        command += ["--disable-background-networking", "--disable-component-update"]
        command += ["--disable-sync", f"--user-data-dir={tmp_path}/profile", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)

    return run


@pytest.fixture
def answered(tmp_path, chromium):
    """Return a function that opens a page in a frame with a script, and returns the JSON that the script posts."""

    def open_page(page, script, width=WIDTH):
        allowed = re.sub(
            r'(Content-Security-Policy" content=")[^"]*', r"\1default-src * 'unsafe-inline'", page
        )
        content = f"<script>{script}</script></body>"
        head, _, tail = allowed.rpartition("</body>")
        (tmp_path / "page.html").write_text(head + content + tail, encoding="utf-8")
        (tmp_path / "frame.html").write_text(FRAME.format(width=width), encoding="utf-8")
        done = chromium(
            "--virtual-time-budget=20000", "--dump-dom", f"file://{tmp_path}/frame.html"
        )
        title = re.search(r"<title>(.*?)</title>", done.stdout, re.DOTALL)
        assert title is not None
        return json.loads(unescape(title[1]))

    return open_page


@pytest.fixture
def measured(answered):
    """Return a function that lays a page out on a phone and measures it, with a script in the page itself."""

    def measure(page):
        found = answered(page, MEASURE)
        assert found["window"] == WIDTH
        return found

    return measure


def test_a_page_on_a_phone_is_legible_and_does_not_scroll_sideways(page, measured):
    found = measured(page)
    assert found["texts"] > 200
    assert found["smallest"][0] >= SMALLEST, found["smallest"]
    assert found["page"] <= WIDTH
    assert found["hidden"] == 0


def test_long_words_do_not_make_a_page_scroll_sideways(tmp_path, measured):
    folder = write_study(
        tmp_path / "runs", Study(seeds=(1, 2), maps=False, axes={"positional": ["sinusoidal"]})
    )
    edit(next(folder.glob("*-s2-*")) / "run.json", versions={"torch": "2.14.0+" + "d" * 100})
    page = write_report(folder, tmp_path / "reports").html.read_text(encoding="utf-8")
    assert measured(page)["page"] <= WIDTH


AXE = "axe-core@4.14.1"
"""The npm package with the rules."""
LEVELS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
RULES = """
document.querySelectorAll("details").forEach(function (part) {{ part.open = true; }});
axe.run(document, {{ runOnly: {levels} }}).then(function (results) {{
  var violations = results.violations.map(function (violation) {{
    return violation.id + ": " + violation.nodes.map(function (node) {{ return node.html.slice(0, 120); }}).join(" | ");
  }});
  parent.postMessage(JSON.stringify({{ passes: results.passes.length, violations: violations }}), "*");
}});
"""


@pytest.fixture(scope="module")
def axe(tmp_path_factory):
    """The script of axe, which npm installs."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("needs npm")
    folder = tmp_path_factory.mktemp("axe")
    command = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(folder), AXE]
    if subprocess.run(command, capture_output=True, timeout=180).returncode:
        pytest.skip(f"npm cannot install {AXE}")
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [1280, WIDTH])
def test_a_page_violates_no_rule_of_level_a_or_aa(page, answered, axe, width):
    script = axe + RULES.format(levels=json.dumps(LEVELS))
    found = answered(page, script, width)
    assert found["violations"] == []
    assert found["passes"] > 15


@pytest.mark.parametrize("width", [1280, WIDTH])
@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_page_violates_no_rule_and_cuts_no_column(answered, axe, name, width):
    page = (RESULTS / published_page(name)).read_text(encoding="utf-8")
    found = answered(page, axe + RULES.format(levels=json.dumps(LEVELS)), width)
    assert found["violations"] == []
    measured = answered(page, MEASURE, width)
    assert measured["window"] == width
    assert measured["page"] <= width
    assert measured["hidden"] == 0


def test_axe_finds_text_of_little_contrast_and_a_figure_without_a_name(page, answered, axe):
    script = axe + RULES.format(levels=json.dumps(LEVELS))
    pale = page.replace("--muted: #5f6876", "--muted: #a0a0a0")
    unnamed = re.sub(
        r'( role="img") aria-labelledby="[^"]*">(<title.*?</title>)?(<desc.*?</desc>)?',
        r"\1>",
        pale,
    )
    found = answered(unnamed, script)
    rules = {violation.partition(":")[0] for violation in found["violations"]}
    assert {"color-contrast", "svg-img-alt"} <= rules


MAX_PAGES = 8


def test_a_printed_report_is_in_portrait_and_has_at_most_eight_pages(tmp_path, chromium):
    axes = {
        "positional": ["sinusoidal", "rotary", "none"],
        "attention": ["split-heads", "independent-heads"],
    }
    folder = write_study(tmp_path / "runs", Study(axes=axes, margin=0.03, interactions=True))
    page = write_report(folder, tmp_path / "reports").html.read_text(encoding="utf-8")
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    chromium(f"--print-to-pdf={tmp_path}/page.pdf", f"file://{tmp_path}/page.html")
    content = (tmp_path / "page.pdf").read_bytes()
    assert 1 < len(re.findall(rb"/Type\s*/Page\b", content)) <= MAX_PAGES
    sizes = re.findall(rb"/MediaBox\s*\[\s*0 0 ([\d.]+) ([\d.]+)", content)
    assert sizes
    assert all(float(width) < float(height) for width, height in sizes)
