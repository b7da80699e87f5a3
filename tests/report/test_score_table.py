"""``h2h report --format`` prints the table of variants; bold follows the tests."""

import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from headtohead.analysis.study import Analysis
from headtohead.escaping import latex_escape
from headtohead.report.content import Report
from headtohead.report.score_table import score_table
from headtohead.storage.frames import load_frames
from made import case_table
from made.fake_study import Study, write_study

Command = Callable[..., "subprocess.CompletedProcess[str]"]
NASTY = (
    r"50% of $x_1$ & {a} #3 ~ ^2 \input{/etc/passwd} [b] * | <tag> `c` \\* --lr 'd' “é” − → “"
    + '"e"'
)
NOISE = [0.001, -0.002, 0.003, -0.001, 0.002, -0.003]


@pytest.fixture
def study(analysed: Callable[..., Analysis]) -> Callable[..., Report]:
    """Return the content of a study with an axis whose values have the means; the first value is the baseline."""

    def content(means: Mapping[str, float], **options: Any) -> Report:
        def score(axes: Mapping[str, Any], seed: int) -> float:
            name = str(axes["positional"])
            return means[name] + NOISE[(seed + len(name)) % 6]

        return Report(analysed(axes={"positional": list(means)}, score=score, **options))

    return content


@case_table(
    ("means", "margin", "bold"),
    [
        ({"sinusoidal": 0.8, "rotary": 0.9}, None, {"rotary"}),
        ({"sinusoidal": 0.9, "rotary": 0.8}, None, {"sinusoidal"}),
        ({"sinusoidal": 0.9, "rotary": 0.9005}, None, set()),
        ({"sinusoidal": 0.9, "rotary": 0.9005}, 0.02, {"sinusoidal", "rotary"}),
        ({"sinusoidal": 0.8, "rotary": 0.9, "none": 0.9005}, None, set()),
        ({"sinusoidal": 0.8, "rotary": 0.9, "alibi": 0.9005}, 0.02, {"rotary", "ALiBi"}),
        ({"sinusoidal": 0.8, "rotary": 0.9, "none": 0.3}, None, {"rotary"}),
    ],
    default=3,
)
def test_scores_are_bold_only_where_the_tests_decide(
    study: Callable[..., Report], means: dict[str, float], margin: float | None, bold: set[str]
) -> None:
    latex = score_table(study(means, margin=margin))
    rows = re.findall(r"^([\w ]+) & 6 & (\\textbf)?", latex, re.MULTILINE)
    assert {name for name, mark in rows if mark} == bold
    assert " & difference & adjusted p & verdict & " in latex
    assert len(rows) == len(means)
    assert ("No score is bold" in latex) == (not bold)


def test_verdicts_of_another_family_are_stated(study: Callable[..., Report]) -> None:
    declared = [{"name": "c", "variant": "rotary", "against": "sinusoidal"}]
    # Both families have the difference.
    for family, own in (("changes", []), ("contrasts that the file declares", declared)):
        report = study({"sinusoidal": 0.8, "rotary": 0.81}, declared=own)
        note = f"A difference that is also one of the {family} has the same interval and verdict in"
        assert note in score_table(report)


def test_an_incomplete_study_has_no_bold_score(messy: Path) -> None:
    latex = score_table(Report(Analysis(load_frames(messy))))
    assert r"\textbf" not in latex
    for note in (
        "No score is bold, because variants are incomplete.",
        "not ranked: 1 diverged of 6 seeds.",
        "Set-up: ",
    ):
        assert note in latex


@pytest.mark.slow
def test_latex_with_special_characters_compiles(
    study: Callable[..., Report], tmp_path: Path
) -> None:
    if not shutil.which("pdflatex"):
        pytest.skip(
            "requires pdflatex with booktabs (Debian: texlive-latex-base, texlive-latex-recommended)"
        )
    latex = score_table(study({NASTY: 0.8, "[*rotary]": 0.9}, question=NASTY))
    preamble = "\\documentclass{article}\n\\usepackage{booktabs}\n\\begin{document}\n"
    (tmp_path / "table.tex").write_text(
        f"{preamble}{latex}\nDone.\\end{{document}}\n", encoding="utf-8"
    )
    command = [
        "pdflatex",
        "-no-shell-escape",
        "-interaction=nonstopmode",
        "-halt-on-error",
        "table.tex",
    ]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert (tmp_path / "table.pdf").stat().st_size > 10_000


def test_no_special_character_of_a_name_reaches_latex(study: Callable[..., Report]) -> None:
    latex = score_table(study({NASTY: 0.8, "[*rotary]": 0.9}, question=NASTY))
    assert all(
        latex_escape(character) not in (character, "") for character in '\\{}$&#_%~^<>|`[]*"'
    )
    assert "\\input" not in latex
    assert "--lr" not in latex
    caption = next(line for line in latex.splitlines() if r"\caption" in line)
    assert caption == rf"\caption{{{latex_escape(NASTY)}}}"
    rows = [line for line in latex.splitlines() if " & 6 & " in line]
    assert len(rows) == 2
    assert all(len(re.findall(r"(?<!\\)&", row)) == 6 for row in rows)
    assert not any(row.strip().startswith(("[", "*")) for row in rows)


def test_the_command_prints_the_table_without_figures(
    quickstart: Path, tmp_path: Path, h2h_here: Command
) -> None:
    printed = h2h_here(tmp_path, "report", str(quickstart), "--format", "latex")
    assert (printed.returncode, printed.stdout[:10]) == (0, "% Requires")
    assert not (quickstart.parent / "reports").exists()
    done = h2h_here(tmp_path, "report", str(quickstart), "--format", "latex", "--figures", "pdf")
    assert (
        done.returncode,
        "--figures writes the report; leave out --format latex" in done.stderr,
    ) == (2, True)


@pytest.mark.slow
def test_figures_are_written_as_pdf_and_svg(tmp_path: Path, h2h_here: Command) -> None:
    two = Study(axes={"positional": ["sinusoidal", "rotary"]}, maps=False)
    write_study(tmp_path / "runs", two)
    figures = tmp_path / "reports" / "quickstart" / "figures"
    figures.mkdir(parents=True)
    (figures / "old.pdf").write_bytes(b"%PDF-")
    done = h2h_here(tmp_path, "report", "quickstart", "--figures", "pdf", "--figures", "svg")
    assert done.returncode == 0
    assert "figures:  reports/quickstart/figures" in done.stdout.replace(f"{tmp_path}/", "")
    names = {path.stem for path in figures.glob("*.svg")}
    assert {"contrasts", "scores", "curves"} <= names
    # A file that the report did not write stays.
    assert {path.stem for path in figures.glob("*.pdf")} == {*names, "old"}
    assert all(path.read_bytes().startswith(b"%PDF-") for path in figures.glob("*.pdf"))
