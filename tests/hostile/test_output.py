"""Texts of files, data and servers are escaped in every output of the commands.

The texts are planted into a made-up study, a plugin and a server; the real command makes each output once.
"""

import csv
import io
import json
import re
import shutil
import subprocess
import unicodedata
import xml.dom.minidom
from collections.abc import Callable, Iterator
from functools import cache, partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import yaml
from markdown_it import MarkdownIt

import headtohead as h2h
from headtohead.escaping import is_safe_link, safe_markdown, spreadsheet_text
from made import error_line, fake_study, serving
from made.page import Page
from made.study import TINY, Study

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


def hidden(text: str) -> set[str]:
    """Return the characters that control a terminal or hide text, by their Unicode categories."""
    unsafe = {
        letter for letter in text if unicodedata.category(letter) in {"Cc", "Cf", "Cs", "Zl", "Zp"}
    }
    return unsafe - {"\n", "\t", "\u200c", "\u200d"}


def check_terminal(text: str, marker: str) -> None:
    assert hidden(text) == set()
    assert marker in text
    assert r"\x1b[31m\x07\x08\x9b2J\x7f" in text


ARTIFACT = re.compile(r"get-artifact\?path=(figures/\w+\.svg|images/[\w~%-]+\.png)&run_uuid=\w+")


def check_page(page: str, marker: str, scripts: int = 0) -> None:
    """Check that HTML executes no planted script, loads nothing, has no unsafe link and shows the text."""
    found = Page(page)
    assert hidden(page) == set()
    assert marker in found.text
    assert ORDINARY in found.text
    executed = [
        tag
        for tag, values in found.elements
        if tag == "script" and values.get("type") != "application/json"
    ]
    assert len(executed) == scripts
    for tag, values in found.elements:
        if tag == "img" and ARTIFACT.fullmatch(values.get("src") or ""):
            continue  # a figure of the study or a map of the run in MLflow's note
        assert tag not in {"img", "iframe", "object", "embed", "base", "form"}, values
        assert not [name for name in values if name.startswith("on")], values
        assert not values.get("src"), values
        for name in ("href", "xlink:href"):
            target = values.get(name) or ""
            if tag == "image" and target.startswith("data:image/png;base64,"):
                continue  # a heat map
            assert is_safe_link(target) or (tag, target) == ("link", "data:,"), values
            assert tag == "a" or not target.startswith("http"), values
            assert not re.match(
                r"\s*(javascript|vbscript|file|data:[^,])", target, re.IGNORECASE
            ), values
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
            assert not cell.startswith(tuple("=+-@\t\r")) or re.fullmatch(
                r"-?[\d.]+(e[+-]?\d+)?", cell
            ), cell
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
    assert json.loads(text)["question"] == hostile(marker)


# The outputs.


class Outputs:
    """A study in which every text is hostile, and the outputs of commands on it, each made once."""

    def __init__(self, folder: Path, h2h: Command, store: Path) -> None:
        self.folder, self.h2h, self.store = folder, h2h, store
        self.of = cache(self._of)

    def _of(self, sink: str) -> str:
        if sink in COMMANDS:
            return str(self.call(*COMMANDS[sink].split()).stdout)
        if hasattr(self, sink):
            return str(getattr(self, sink)())
        self.of("report")
        texts = [
            path.read_text("utf-8") for path in sorted((self.folder / "reports/study").glob(sink))
        ]
        if sink.endswith(".svg"):
            assert all(map(xml.dom.minidom.parseString, texts))
        return "".join(texts)

    def call(self, *arguments: str, code: int = 0, **environment: str) -> Any:
        ended = self.h2h(self.folder, *arguments, **environment)
        assert ended.returncode == code, ended.stdout + ended.stderr
        return ended

    def line(self, *arguments: str, **environment: str) -> str:
        return error_line(self.call(*arguments, code=2, **environment))

    def notebook(self) -> str:
        return str(h2h.results("study", runs=self.folder / "runs")._repr_html_())  # type: ignore[operator]

    def mlflow(self) -> str:
        """Return the descriptions in MLflow, which MLflow renders as Markdown."""
        from mlflow import MlflowClient

        self.of("report")
        shutil.copy(self.store, self.folder / "mlflow.db")
        uri = f"sqlite:///{self.folder}/mlflow.db"
        self.call("sync", "study", MLFLOW_TRACKING_URI=uri)
        client = MlflowClient(uri)
        notes = []
        for experiment in client.search_experiments():
            notes.append(experiment.tags.get("mlflow.note.content", ""))
            for run in client.search_runs([experiment.experiment_id]):
                notes.append(run.data.tags["mlflow.note.content"])
        return "\n\n---\n\n".join(notes)

    def errors(self) -> str:
        """Return error lines that quote a file, a field and an argument."""
        wrong = {"question": "x", "base": {"positional": hostile("FIELD")}}
        (self.folder / "wrong.yaml").write_text(
            yaml.safe_dump(wrong, allow_unicode=True), encoding="utf-8"
        )
        (self.folder / "lines.yaml").write_text(
            'question: "x"\n"z\\nh2h: done": 1\n', encoding="utf-8"
        )
        file = hostile("FILE-NAME").replace("/", "").replace("\0", "") + ".yaml"
        names = ("wrong.yaml", file, "lines.yaml")
        return "".join(
            [
                *(self.line("plan", name) for name in names),
                self.line("status", "study", hostile("ARGUMENT")),
            ]
        )

    def mlflow_server(self) -> str:
        """Return the error output of a command whose MLflow server replies with control characters."""
        reply = json.dumps({"error_code": "INVALID_PARAMETER_VALUE", "message": hostile("MLFLOW")})

        def answer(handler: BaseHTTPRequestHandler) -> None:
            """Send the reply also as the reason of the status."""
            handler.send_response_only(
                400, "".join(letter for letter in reply if ord(letter) < 256)
            )
            handler.send_header("Content-Type", "application/json")
            handler.send_header("Content-Length", str(len(reply.encode())))
            handler.end_headers()
            handler.wfile.write(reply.encode())

        with serving(answer) as address:
            return self.line("judge", address, "--experiment", "study", "--baseline", "a")


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
    tmp_path_factory: pytest.TempPathFactory, h2h_here: Command, store_template: Path
) -> Iterator[Outputs]:
    folder = tmp_path_factory.mktemp("output")
    write_study(folder / "runs")
    (folder / "plugin.py").write_text(
        PLUGIN.format(
            docstring=hostile("DOCSTRING"), summary=hostile("SUMMARY"), option=hostile("OPTION")
        ),
        encoding="utf-8",
    )
    experiment = TINY | {
        "question": hostile("QUESTION"),
        "design": [{"one_at_a_time": {"positional": ["none", "rotary"]}}],
        "exclude": [{"when": {"positional": "rotary"}, "reason": hostile("EXCLUDED")}],
    }
    (folder / "file.yaml").write_text(yaml.safe_dump(experiment), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("H2H_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("no_proxy", "127.0.0.1")
        yield Outputs(folder, h2h_here, store_template)


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
            data={
                "licence": hostile("LICENCE"),
                "citation": hostile("CITATION"),
                "notes": [hostile("DATA-NOTE")],
            },
            score=lambda axes, seed: 0.5,
            config=lambda axes: {
                family: {
                    role: {"name": "x", "options": {}} for role in ("encoder", "decoder", "cross")
                }
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
            if "phrases" in variant:
                variant["phrases"]["positional"] += hostile("PHRASE")
            variant["pitfalls"] = [
                {
                    "name": hostile("PITFALL"),
                    "field": hostile("FIELD"),
                    "consequence": hostile("CONSEQUENCE"),
                }
            ]
    if record.get("state") == "FAILED":
        record["reason"] = hostile("REASON")
    if "metrics" in record and "buckets" in record:
        record["notes"] = [hostile("RESULT-NOTE")]
    if "command" in record:
        record["command"] = hostile("COMMAND")
    for contrast in record.get("contrasts", ()):
        contrast["name"] += hostile("CONTRAST")


COMMANDS = {
    "status": "status study",
    "report": "report study --allow-partial",
    "latex": "report study --format latex",
    "plan": "plan file.yaml",
    "plugins": "plugins --plugin plugin.py",
    "plugin": "plugins evil --plugin plugin.py",
}

REPORT = "QUESTION DESCRIPTION TITLE CONTRAST SENTENCE REFERENCE REASON LICENCE CITATION DATA-NOTE PITFALL CONSEQUENCE"


@pytest.mark.parametrize(
    ("sink", "check", "markers"),
    [
        ("status", check_terminal, "QUESTION REASON"),
        ("report", check_terminal, "CONTRAST"),
        ("plan", check_terminal, "EXCLUDED"),
        ("plugins", check_terminal, "SUMMARY"),
        ("plugin", check_terminal, "DOCSTRING OPTION"),
        ("errors", check_terminal, r"FIELD FILE-NAME ARGUMENT z\nh2h:"),
        ("mlflow_server", check_terminal, "MLFLOW"),
        ("index.html", partial(check_page, scripts=1), REPORT),
        ("report.md", check_markdown, REPORT),
        ("answer.json", check_json, "QUESTION"),
        ("results.csv", check_table, "REASON"),
        ("latex", check_latex, "QUESTION TITLE"),
        ("figures/*.svg", check_page, "PHRASE"),
        ("notebook", check_page, "TITLE REASON PITFALL"),
        ("mlflow", check_markdown, "QUESTION DESCRIPTION TITLE PITFALL CONSEQUENCE REASON"),
    ],
)
def test_hostile_text_is_escaped(
    sink: str, check: Callable[[str, str], None], markers: str, outputs: Outputs
) -> None:
    for marker in markers.split():
        check(outputs.of(sink), marker)


# The functions themselves.


def test_links_are_relative_or_of_three_schemes() -> None:
    safe = ["https://a.org/x:y", "mailto:a@b.org", "../a/b?c=d:e", "#part"]
    scripts = ["javascript:alert(1)", " java\tscript:alert(1)", "data:text/html,x"]
    assert [target for target in safe if not is_safe_link(target)] == []
    assert [
        target
        for target in (*scripts, "//far.away/x", "\\\\far.away\\x", "/\\far.away")
        if is_safe_link(target)
    ] == []


def test_markdown_without_unsafe_parts_is_unchanged() -> None:
    text = "# Why\n\n*order* **matters**: [a](https://a.org) [b](c.html), `x[0]` and `![y](z)`\n\n- one"
    assert safe_markdown(text) == text
    assert safe_markdown("![p](p.png) [a](https://a.org)") == "!&#91;p](p.png) [a](https://a.org)"


@pytest.mark.parametrize(
    ("text", "cell"), [("=1+1", "'=1+1"), ("-x", "'-x"), ("-1.5e-3", "-1.5e-3"), ("a=b", "a=b")]
)
def test_only_formulas_get_an_apostrophe(text: str, cell: str) -> None:
    assert spreadsheet_text(text) == cell


@pytest.mark.slow
def test_words_of_a_model_are_escaped(
    tmp_path: Path, h2h_here: Command, without_figures: None
) -> None:
    words = [f"w{letter}\x1b[31m\u202e" for letter in "abcdef"]
    pairs = [f"{a} {b}\t{b} {a}" for a in words for b in words if a != b]
    (tmp_path / "pairs.tsv").write_text("\n".join(pairs) + "\n", encoding="utf-8")
    study = Study(tmp_path, tmp_path / "cache", h2h_here)
    data = {"dataset": "tatoeba", "pair": "eng-fra", "file": "pairs.tsv", "normalise": "none"}
    train = {"steps": 30, "batch_tokens": 64, "lr": 0.02, "evaluate_every": 30}
    study.file.write_text(
        yaml.safe_dump(TINY | {"base": TINY["base"] | {"data": data, "train": train}, "seeds": 1})
    )
    study.run()
    (run,) = study.directories()
    for command, *more in (["generate"], ["trace"], ["trace", "--format", "html"]):
        ended = study.h2h(command, run.name, f"{words[0]} {words[1]}", *more)
        assert hidden(ended.stdout + ended.stderr) == set()
        assert r"\x1b[31m\u202e" in ended.stdout


@pytest.mark.slow
def test_logged_warnings_are_escaped(
    h2h_here: Command, h2h_process: Command, tmp_path: Path
) -> None:
    folder = tmp_path / "cache\x1b[31m\u202e"
    arguments = ("data", "stats", "toy-grammar", "--set", "size=100")
    assert h2h_here(tmp_path, *arguments, H2H_CACHE=str(folder)).returncode == 0
    for path in folder.rglob("*.npz"):
        path.write_bytes(b"damaged")
    ended = h2h_process(tmp_path, *arguments, H2H_CACHE=str(folder))
    assert "is damaged" in ended.stderr
    assert r"cache\x1b[31m\u202e" in ended.stderr
    assert hidden(ended.stderr) == set()


@pytest.mark.slow
def test_a_browser_runs_the_script_of_a_report_and_no_other(
    outputs: Outputs, tmp_path: Path
) -> None:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("needs Chromium")
    page = outputs.of("index.html")
    planted = "<script>document.title = 'attacked'</script><img src=x onerror=\"document.title = 'attacked'\">"
    attacked = page.replace("<main>", f"<main>{planted}")
    policy = re.compile(r'(?<=Content-Security-Policy" content=")[^"]*')
    texts = {
        "plain": page,
        "attacked": attacked,
        "open": policy.sub("default-src * 'unsafe-inline'", attacked),
    }
    found = {}
    for name, text in texts.items():
        (tmp_path / f"{name}.html").write_text(text, encoding="utf-8")
        command = [
            browser,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={tmp_path}/profile",
        ]
        command += ["--virtual-time-budget=3000", "--dump-dom", f"file://{tmp_path}/{name}.html"]
        found[name] = subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=True
        ).stdout
    assert "<select>" in found["plain"], "the page's own script fills the menus"
    assert "<title>attacked</title>" not in found["attacked"]
    assert "<select>" in found["attacked"]
    assert "<title>attacked</title>" in found["open"], "the attack itself must work"
