"""A report on a page of 400 pixels, measured in a browser."""

import json
import re
import shutil
import subprocess
from html import unescape

import pytest

from headtohead.report.writing import write_report
from made.fake_study import Study, edit, write_study

WIDTH = 400
SMALLEST = 9
"""Smallest size of text in figures, in pixels of the page."""

MEASURE = """
var sizes = [];
document.querySelectorAll("svg text").forEach(function (text) {
  if (!text.getClientRects().length) return;
  var matrix = text.getScreenCTM();
  var scale = Math.hypot(matrix.a, matrix.b);
  sizes.push([parseFloat(getComputedStyle(text).fontSize) * scale, text.textContent]);
});
sizes.sort(function (a, b) { return a[0] - b[0]; });
var hidden = 0;
document.querySelectorAll(".plot:not(.natural)").forEach(function (plot) {
  hidden = Math.max(hidden, plot.scrollWidth - plot.clientWidth);
});
var found = { page: document.documentElement.scrollWidth, hidden: hidden, window: innerWidth, texts: sizes.length };
found.smallest = sizes[0];
parent.postMessage(JSON.stringify(found), "*");
"""
FRAME = f"""<title></title><script>onmessage = function (event) {{ document.title = event.data; }}</script>
<iframe src="page.html" width="{WIDTH}" height="900" style="border: 0"></iframe>"""
"""A browser window has at least 500 pixels, a frame can be narrower."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def page(quickstart, tmp_path_factory):
    return write_report(quickstart, tmp_path_factory.mktemp("reports")).html.read_text(
        encoding="utf-8"
    )


@pytest.fixture
def measured(tmp_path):
    """Return a function that lays a page out on a phone and measures it, with a script in the page itself."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("needs Chromium")

    def measure(page):
        allowed = re.sub(
            r'(Content-Security-Policy" content=")[^"]*', r"\1default-src * 'unsafe-inline'", page
        )
        script = f"<script>{MEASURE}</script></body>"
        (tmp_path / "page.html").write_text(allowed.replace("</body>", script), encoding="utf-8")
        (tmp_path / "frame.html").write_text(FRAME, encoding="utf-8")
        command = [
            browser,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={tmp_path}/profile",
        ]
        command += ["--virtual-time-budget=3000", "--dump-dom", f"file://{tmp_path}/frame.html"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        title = re.search(r"<title>(.*?)</title>", done.stdout)
        assert title is not None
        found = json.loads(unescape(title[1]))
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
