"""Texts of files, data and servers are escaped in every output of the commands.

A case is a source of a text and an output that contains it. The sources are planted into a made-up study, a plugin, a
data file and servers; each output is made once, by the real command, for all its sources.
"""

from __future__ import annotations

import csv
import html.parser
import io
import json
import re
import shutil
import subprocess
import threading
import unicodedata
import xml.dom.minidom
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from markdown_it import MarkdownIt

import headtohead as h2h
from headtohead.escaping import is_safe_link, safe_markdown, spreadsheet_text, visible
from made import fake_study

Command = Callable[..., Any]

TERMINAL = "\x1b[31m\x07\b\x9b2J\x7f\x00"
BIDIRECTIONAL = "\u202egpj\u2066x\u200f\u200b\ufeff\U000e0041\u2028"
MARKUP = '<script>alert(1)</script><img src="http://far.away/p.png" onerror="alert(1)">'
MARKDOWN = "`a` | [x](javascript:alert(1)) ![p](http://far.away/p.png) </style>"
ORDINARY = "عربى שלום 👨‍👩‍👧 e\u0301 ü ¼"
"""Right-to-left letters, joined emoji and a combining mark: every output keeps these."""


def hostile(marker: str) -> str:
    return f"={marker} {ORDINARY}{TERMINAL}{BIDIRECTIONAL}{MARKUP}{MARKDOWN}"


DESCRIPTION = f"""={{marker}} {ORDINARY} {TERMINAL}{BIDIRECTIONAL} {MARKUP}

[a](javascript:alert(1)) [b](<javascript:alert(1)>) [c](java\\script\\:alert(1)) [d][e] <javascript:alert(1)>
[f](data:text/html,x) [g](data:image/png;base64,AA) [h](vbscript:x) [i](//far.away/x) [j](file:///etc/passwd)
![k](http://far.away/p.png) ![l][m] ![n](data:image/png;base64,AA) [JAVA&#115;CRIPT](java&#115;cript&colon;x)

[e]: javascript:alert(1)
[m]: http://far.away/p.png
{"long " * 4_000}"""
"""MLflow limits a description to 20,000 characters."""


# What an output must hold, and must not.


def hidden(text: str) -> set[str]:
    """Return the characters that control a terminal or hide text, by their Unicode categories."""
    unsafe = {letter for letter in text if unicodedata.category(letter) in {"Cc", "Cf", "Cs", "Zl", "Zp"}}
    return unsafe - {"\n", "\t", "\u200c", "\u200d"}


def check_terminal(text: str, marker: str) -> None:
    assert hidden(text) == set()
    assert marker in text
    line = next(line for line in text.splitlines() if marker in line)
    assert r"\x1b[31m\x07\x08\x9b2J\x7f\x00\u202egpj\u2066x\u200f\u200b\ufeff\U000e0041" in line
    assert ORDINARY in line


def check_reply(text: str, marker: str) -> None:
    """Check an error line that quotes a part of a server's reply."""
    assert hidden(text) == set()
    assert marker in text
    assert r"\x1b[31m\x07\x08\x9b2J\x7f" in text


class Elements(html.parser.HTMLParser):
    """The elements and the text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def check_page(page: str, marker: str, scripts: int = 0) -> None:
    """Check that HTML executes no planted script, loads nothing, has no unsafe link and shows the text."""
    found = Elements(page)
    assert hidden(page) == set()
    assert marker in found.text
    assert ORDINARY in found.text
    executed = [tag for tag, values in found.elements if tag == "script" and values.get("type") != "application/json"]
    assert len(executed) == scripts
    for tag, values in found.elements:
        assert tag not in {"img", "iframe", "object", "embed", "base", "form"}, values
        assert not [name for name in values if name.startswith("on")], values
        assert not values.get("src"), values
        for name in ("href", "xlink:href"):
            target = values.get(name) or ""
            if tag == "image" and target.startswith("data:image/png;base64,"):
                continue  # a heat map
            assert is_safe_link(target) or (tag, target) == ("link", "data:,"), values
            assert tag == "a" or not target.startswith("http"), values
            assert not re.match(r"\s*(javascript|vbscript|file|data:[^,])", target, re.IGNORECASE), values
    assert not re.search(r"url\(['\"]?(http|//)|@import", page)


def check_markdown(text: str, marker: str) -> None:
    """Check Markdown in a renderer that allows raw HTML and all links."""
    parser = MarkdownIt("commonmark", {"html": True}).enable("table")
    parser.validateLink = lambda url: True  # type: ignore[method-assign]
    figures = re.compile(r'<img src="figures/\w+\.svg" alt="[^"<>]*" />')
    check_page(figures.sub("", parser.render(text)), marker)


def check_table(text: str, marker: str) -> None:
    """Check that a spreadsheet finds no formula in a CSV file, and numbers unchanged."""
    rows = list(csv.reader(io.StringIO(text)))
    assert f"'={marker}" in text
    for row in rows:
        for cell in row:
            assert not cell.startswith(tuple("=+-@\t\r")) or re.fullmatch(r"-?[\d.]+(e[+-]?\d+)?", cell), cell
    assert float(rows[1][rows[0].index("test/exact_match")]) == 0.5


def check_latex(text: str, marker: str) -> None:
    """Check that LaTeX has the text and only the commands of the renderer."""
    assert hidden(text) == set()
    assert marker in text
    assert ORDINARY in text
    layout = "usepackage|begin|end|centering|small|caption|label|toprule|midrule|bottomrule|medskip|parbox|linewidth"
    letters = "textbackslash|textless|textgreater|textbar|textasciigrave|textasciitilde|textperiodcentered|textendash"
    rest = re.sub(rf"\\({layout}|{letters}|footnotesize)(?![a-z])|\\[\\{{}}$&#_%]", "", text)
    assert "\\" not in rest


def check_json(text: str, marker: str) -> None:
    """Check that JSON has the exact text, and can be printed."""
    assert hidden(text) == set()
    texts = strings(json.loads(text))
    assert any(hostile(marker) in value for value in texts), [value for value in texts if marker in value]


def strings(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for inner in value.values() for text in strings(inner)]
    if isinstance(value, list):
        return [text for inner in value for text in strings(inner)]
    return [value] if isinstance(value, str) else []


# The outputs.


@dataclass
class Outputs:
    """A study in which every text is hostile, and the outputs of commands on it."""

    folder: Path
    h2h: Command
    request: pytest.FixtureRequest
    made: dict[str, str]

    def of(self, sink: str) -> str:
        if sink not in self.made:
            self.made[sink] = getattr(self, sink.replace(" ", "_").replace("-", "_").replace(".", "_"))()
        return self.made[sink]

    def call(self, *arguments: str, code: int = 0, **environment: str) -> Any:
        ended = self.h2h(self.folder, *arguments, **environment)
        assert ended.returncode == code, ended.stdout + ended.stderr
        return ended

    def status(self) -> str:
        return str(self.call("status", "study").stdout)

    def report(self) -> str:
        return str(self.call("report", "study", "--allow-partial").stdout)

    def _file(self, name: str) -> str:
        self.of("report")
        return (self.folder / "reports" / "study" / name).read_text(encoding="utf-8")

    def index_html(self) -> str:
        return self._file("index.html")

    def report_md(self) -> str:
        return self._file("report.md")

    def answer_json(self) -> str:
        return self._file("answer.json")

    def table_tex(self) -> str:
        return str(self.call("report", "study", "--format", "latex").stdout)

    def results_csv(self) -> str:
        return self._file("results.csv")

    def figures(self) -> str:
        self.of("report")
        files = sorted((self.folder / "reports" / "study" / "figures").glob("*.svg"))
        texts = [path.read_text(encoding="utf-8") for path in files]
        for text in texts:
            xml.dom.minidom.parseString(text)
        return "".join(texts)

    def notebook(self) -> str:
        return str(h2h.results("study", runs=self.folder / "runs")._repr_html_())  # type: ignore[operator]

    def mlflow(self) -> str:
        """Return the descriptions in MLflow, which MLflow renders as Markdown."""
        from mlflow import MlflowClient

        self.of("report")
        shutil.copy(self.request.getfixturevalue("store_template"), self.folder / "mlflow.db")
        uri = f"sqlite:///{self.folder}/mlflow.db"
        self.call("sync", "study", MLFLOW_TRACKING_URI=uri)
        client = MlflowClient(uri)
        notes = []
        for experiment in client.search_experiments():
            notes.append(experiment.tags.get("mlflow.note.content", ""))
            for run in client.search_runs([experiment.experiment_id]):
                notes.append(run.data.tags["mlflow.note.content"])
        return "\n\n---\n\n".join(notes)

    def plan(self) -> str:
        return str(self.call("plan", "file.yaml").stdout)

    def plugins(self) -> str:
        return str(self.call("plugins", "--plugin", "plugin.py").stdout)

    def plugin(self) -> str:
        return str(self.call("plugins", "evil", "--plugin", "plugin.py").stdout)

    def data(self) -> str:
        line = self.call("data", "stats", "tatoeba", "--set", "file=pairs.tsv", code=2, H2H_CACHE="cache").stderr
        assert len(line.splitlines()) == 1
        return str(line)

    def errors(self) -> str:
        """Return error lines that quote a file, a field and an argument."""
        (self.folder / "wrong.yaml").write_text(
            yaml.safe_dump({"question": "x", "base": {"positional": hostile("FIELD")}}, allow_unicode=True),
            encoding="utf-8",
        )
        file = hostile("FILE-NAME").replace("/", "").replace("\0", "") + ".yaml"
        lines = [
            self.call("plan", "wrong.yaml", code=2).stderr,
            self.call("plan", file, code=2).stderr.replace(r"\x7f", r"\x7f\x00"),
            self.call("status", "study", hostile("ARGUMENT"), code=2).stderr,
        ]
        return "".join(lines)

    def mlflow_server(self) -> str:
        """Return the error output of a command whose MLflow server replies with control characters."""
        with server(json.dumps({"error_code": "INVALID_PARAMETER_VALUE", "message": hostile("MLFLOW")})) as address:
            ended = self.call("judge", address, "--experiment", "study", "--baseline", "a", code=2)
        assert len(ended.stderr.splitlines()) == 1
        return str(ended.stderr)


@contextmanager
def server(reply: str) -> Iterator[str]:
    """Answer every request with status 400 and a reply, also as the reason of the status."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = reply.encode()
            self.send_response_only(400, "".join(letter for letter in reply if ord(letter) < 256))
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, *arguments: object) -> None:
            pass

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{running.server_port}"
    finally:
        running.shutdown()
        thread.join()
        running.server_close()


PLUGIN = """
{docstring!r}
import headtohead as h2h
from pydantic import Field

class Evil(h2h.plugin.Positional):
    {summary!r}

    class Options(h2h.plugin.Options):
        weight: float = Field(1.0, description={option!r})

@h2h.plugin.hookimpl
def register_positionals():
    return {{"evil": Evil}}
"""


@pytest.fixture(scope="module")
def outputs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, h2h_here: Command
) -> Iterator[Outputs]:
    folder = tmp_path_factory.mktemp("output")
    write_study(folder / "runs")
    (folder / "plugin.py").write_text(
        PLUGIN.format(docstring=hostile("DOCSTRING"), summary=hostile("SUMMARY"), option=hostile("OPTION")),
        encoding="utf-8",
    )
    (folder / "pairs.tsv").write_text(f"a\tb\n{hostile('ROW')}\n".replace("\u2028", ""), encoding="utf-8", newline="")
    experiment = {
        "question": hostile("QUESTION"),
        "base": {
            "data": {"dataset": "toy-grammar", "size": 200},
            "model": {"d_model": 8, "heads": 2, "layers": 1, "d_ff": 8},
            "train": {"steps": 2, "batch_tokens": 128},
        },
        "baseline": {"positional": "sinusoidal"},
        "design": [{"one_at_a_time": {"positional": ["none", "rotary"]}}],
        "exclude": [{"when": {"positional": "rotary"}, "reason": hostile("EXCLUDED")}],
        "seeds": 1,
    }
    (folder / "file.yaml").write_text(yaml.safe_dump(experiment), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("H2H_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("no_proxy", "127.0.0.1")
        yield Outputs(folder, h2h_here, request, {})


def write_study(runs: Path) -> None:
    """Write a study of two variants and three seeds, and plant a hostile text into each text of its records."""
    sentence = hostile("SENTENCE").replace("\x00", "\\0"), hostile("REFERENCE")
    fake_study.write_study(
        runs,
        fake_study.Study(
            name="study",
            axes={"positional": ["sinusoidal", "none"]},
            seeds=(1, 2, 3),
            states={("none", 3): "FAILED"},
            sentences=(sentence,),
            question=hostile("QUESTION"),
            description=DESCRIPTION.format(marker="DESCRIPTION"),
            data={"licence": hostile("LICENCE"), "citation": hostile("CITATION"), "notes": [hostile("DATA-NOTE")]},
            score=lambda axes, seed: 0.5,
            config=lambda axes: {
                family: {role: {"name": "x", "options": {}} for role in ("encoder", "decoder", "cross")}
                for family in ("positional", "attention", "masking")
            },
        ),
    )
    for path in [runs / "study" / "experiment.json", *runs.glob("study/*/*.json")]:
        content = json.loads(path.read_text(encoding="utf-8"))
        _plant(content)
        path.write_text(json.dumps(content), encoding="utf-8")
    for path in runs.glob("study/*/results.json"):
        fake_study.record_checksums(path.parent)


def _plant(record: dict[str, Any]) -> None:
    for variant in record.get("variants", [record]):
        if "title" in variant:
            variant["title"] = f"{variant['axes']['positional']} · {hostile('TITLE')}"
            variant["axes"]["positional"] += hostile("VALUE")
            variant["pitfalls"] = [
                {"name": hostile("PITFALL"), "field": hostile("FIELD"), "consequence": hostile("CONSEQUENCE")}
            ]
    if record.get("state") == "FAILED":
        record["reason"] = hostile("REASON")
    if "metrics" in record and "buckets" in record:
        record["notes"] = [hostile("RESULT-NOTE")]
    if "command" in record:
        record["command"] = hostile("COMMAND")
    for contrast in record.get("contrasts", ()):
        if contrast["kind"] == "factor":
            contrast["value"] += hostile("CONTRAST")


@dataclass(frozen=True)
class Case:
    """A source of a text and an output with this text."""

    sink: str
    marker: str
    check: Callable[[str, str], None]

    @property
    def kind(self) -> str:
        return f"{self.sink}-{self.marker}"  # an output is made once: every case is fast

    @property
    def name(self) -> str:
        return "case"


def page_with_maps(page: str, marker: str) -> None:
    check_page(page, marker, scripts=1)


CASES = [
    Case(sink, marker, check)
    for sink, check, markers in (
        ("status", check_terminal, "QUESTION REASON"),
        ("report", check_terminal, "CONTRAST"),
        ("plan", check_terminal, "EXCLUDED"),
        ("plugins", check_terminal, "SUMMARY"),
        ("plugin", check_terminal, "DOCSTRING OPTION"),
        ("errors", check_terminal, "FIELD FILE-NAME ARGUMENT"),
        ("mlflow-server", check_reply, "MLFLOW"),
        (
            "index.html",
            page_with_maps,
            "QUESTION DESCRIPTION TITLE SENTENCE REFERENCE REASON LICENCE CITATION DATA-NOTE PITFALL CONSEQUENCE",
        ),
        (
            "report.md",
            check_markdown,
            "QUESTION DESCRIPTION TITLE SENTENCE REFERENCE REASON LICENCE CITATION DATA-NOTE PITFALL CONSEQUENCE",
        ),
        ("answer.json", check_json, "QUESTION"),
        ("results.csv", check_table, "REASON"),
        ("table.tex", check_latex, "QUESTION TITLE"),
        ("figures", check_page, "TITLE"),
        ("notebook", check_page, "TITLE REASON PITFALL"),
        ("mlflow", check_markdown, "QUESTION DESCRIPTION TITLE PITFALL CONSEQUENCE REASON"),
    )
    for marker in markers.split()
]


def test_hostile_text_is_escaped(case: Case, outputs: Outputs) -> None:
    case.check(outputs.of(case.sink), case.marker)


# A trained model whose vocabulary comes from a hostile file.


# The functions themselves.


def test_a_line_of_a_text_cannot_pretend_to_be_a_line_of_the_command(outputs: Outputs) -> None:
    (outputs.folder / "lines.yaml").write_text('question: "x\\nh2h: done"\n"z\\nh2h: done": 1\n', encoding="utf-8")
    line = outputs.call("plan", "lines.yaml", code=2).stderr
    assert "z\\nh2h: done" in line
    assert len(line.splitlines()) == 1


@pytest.mark.parametrize("text", [ORDINARY, "a\tb\nc", "naïve — “x” … 漢字 हिन्दी क्‍ष می‌خواهم 🇫🇷 👍🏽"])
def test_ordinary_text_is_unchanged(text: str) -> None:
    assert visible(text) == text


@pytest.mark.parametrize(
    ("target", "safe"),
    [
        ("https://a.org/x:y", True),
        ("mailto:a@b.org", True),
        ("../a/b?c=d:e", True),
        ("#part", True),
        ("javascript:alert(1)", False),
        (" java\tscript:alert(1)", False),
        ("data:text/html,x", False),
        ("//far.away/x", False),
        ("\\\\far.away\\x", False),
        ("/\\far.away", False),
    ],
)
def test_links_are_relative_or_of_three_schemes(target: str, safe: bool) -> None:
    assert is_safe_link(target) is safe


def test_markdown_without_unsafe_parts_is_unchanged() -> None:
    text = "# Why\n\n*order* **matters**: [a](https://a.org) [b](c.html), `x[0]` and `![y](z)`\n\n- one"
    assert safe_markdown(text) == text
    assert safe_markdown("![p](p.png) [a](https://a.org)") == "!&#91;p](p.png) [a](https://a.org)"


@pytest.mark.parametrize(("text", "cell"), [("=1+1", "'=1+1"), ("-x", "'-x"), ("-1.5e-3", "-1.5e-3"), ("a=b", "a=b")])
def test_only_formulas_get_an_apostrophe(text: str, cell: str) -> None:
    assert spreadsheet_text(text) == cell


@pytest.fixture(scope="module")
def trained(
    tmp_path_factory: pytest.TempPathFactory, h2h_here: Command, no_figures: Callable[[], Any]
) -> Callable[..., Any]:
    """Train on hostile words; return the command with the same cache, and the output of the training first."""
    folder = tmp_path_factory.mktemp("trained")
    words = [f"w{letter}\x1b[31m\u202e" for letter in "abcdef"]
    pairs = [f"{a} {b}\t{b} {a}" for a in words for b in words if a != b]
    (folder / "pairs.tsv").write_text("\n".join(pairs) + "\n", encoding="utf-8")
    experiment = {
        "question": "Are words escaped?",
        "base": {
            "data": {"dataset": "tatoeba", "pair": "eng-fra", "file": "pairs.tsv", "normalise": "none"},
            "model": {"d_model": 8, "heads": 1, "layers": 1, "d_ff": 8},
            "train": {"steps": 30, "batch_tokens": 64, "lr": 0.02},
        },
        "baseline": {"positional": "sinusoidal"},
        "seeds": 1,
    }
    (folder / "words.yaml").write_text(yaml.safe_dump(experiment), encoding="utf-8")

    def call(*arguments: str) -> Any:
        ended = h2h_here(folder, *arguments, H2H_CACHE=str(folder / "cache"))
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended

    with no_figures():
        call("run", "words.yaml", "--no-tracking")
    (run,) = (folder / "runs" / "words").glob("*-s1-*")
    sentence = f"{words[0]} {words[1]}"
    return lambda command, *more: call(command, run.name, sentence, *more)


@pytest.mark.slow
@pytest.mark.parametrize(
    "typed", [("translate",), ("attention",), ("trace",), ("trace", "--format", "html")], ids=" ".join
)
def test_words_of_a_model_are_escaped(trained: Callable[..., Any], typed: tuple[str, ...]) -> None:
    ended = trained(*typed)
    assert hidden(ended.stdout + ended.stderr) == set()
    assert r"\x1b[31m\u202e" in ended.stdout


@pytest.mark.slow
def test_logged_warnings_are_escaped(h2h_process: Command, tmp_path: Path) -> None:
    cache = tmp_path / "cache\x1b[31m\u202e"
    arguments = ("data", "stats", "toy-grammar", "--set", "size=100")
    assert h2h_process(tmp_path, *arguments, H2H_CACHE=str(cache)).returncode == 0
    for path in cache.rglob("*.npz"):
        path.write_bytes(b"damaged")
    ended = h2h_process(tmp_path, *arguments, H2H_CACHE=str(cache))
    assert "is damaged" in ended.stderr
    assert r"cache\x1b[31m\u202e" in ended.stderr
    assert hidden(ended.stderr) == set()


def content_policy_of(page: str) -> str:
    match = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert match is not None
    return match[1]


@pytest.mark.slow
def test_a_browser_runs_the_script_of_a_report_and_no_other(outputs: Outputs, tmp_path: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("needs Chromium")
    page = outputs.of("index.html")
    planted = "<script>document.title = 'attacked'</script><img src=x onerror=\"document.title = 'attacked'\">"
    texts = {
        "plain": page,
        "attacked": page.replace("<main>", f"<main>{planted}"),
        "open": page.replace(content_policy_of(page), "default-src * 'unsafe-inline'").replace(
            "<main>", f"<main>{planted}"
        ),
    }
    found = {}
    for name, text in texts.items():
        (tmp_path / f"{name}.html").write_text(text, encoding="utf-8")
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile"]
        command += ["--virtual-time-budget=3000", "--dump-dom", f"file://{tmp_path}/{name}.html"]
        found[name] = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert "<select>" in found["plain"], "the page's own script fills the menus"
    assert "<title>attacked</title>" not in found["attacked"]
    assert "<select>" in found["attacked"]
    assert "<title>attacked</title>" in found["open"], "the attack itself must work"
