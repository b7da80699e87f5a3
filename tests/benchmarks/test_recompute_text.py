"""Every number of the committed reports has a source, and a changed number, name, sentence or file is found."""

import functools
import json
import random
import re
import shutil
from pathlib import Path

import pytest

from headtohead.report.writing import CHECKSUMS, write_report
from made import case_table
from made.fake_study import Study, write_study

REPORTS = Path(__file__).parents[2] / "reports"
FOLDERS = sorted(file.parent for file in REPORTS.rglob("answer.json"))
CROSSED = {
    "positional": ["sinusoidal", "rotary", "none"],
    "attention": ["split-heads", "independent-heads"],
}
SPLIT = "heads-split-or-independent"
SWAPPED = "heads (single settings range from −0.013 to +0.021) |"
"""The range of another contrast of this report."""
SIDES = {"variant": "rotary-split-heads", "against": "sinusoidal-split-heads"}
STUDIES = {
    "crossed": Study(name="crossed", axes=CROSSED, maps=False, margin=0.03),
    "interactions": Study(
        name="interactions", axes=CROSSED, maps=False, interactions=True, seeds=(1, 2, 3, 4)
    ),
    "sizes": Study(
        name="sizes",
        axes={"positional": ["sinusoidal", "rotary", "none"], "size": ["small", "large"]},
        maps=False,
        seeds=(1, 2, 3, 4, 5),
    ),
    "declared": Study(
        name="declared",
        axes=CROSSED,
        maps=False,
        declared=[
            SIDES | {"name": "Rotary"},
            SIDES | {"name": "Rotary, loss", "metric": "test/loss"},
        ],
    ),
    "single": Study(name="single", axes={"positional": ["sinusoidal"]}, maps=False),
}
"""Studies whose reports have all kinds of tables."""


@pytest.fixture(scope="module")
def written(tmp_path_factory, no_figures):
    """Return a function that returns the folder of the report of a study."""
    root = tmp_path_factory.mktemp("reports")

    @functools.cache
    def write(name: str) -> Path:
        with no_figures():
            return write_report(write_study(root / "runs", STUDIES[name]), root).folder

    return write


@pytest.fixture
def copied(written, tmp_path):
    """Return a function that copies the report of a study, or a committed one, and replaces a text of its page."""

    def copy(name: str, old: str = "", new: str = "") -> Path:
        folder = tmp_path / name
        shutil.copytree(written(name) if name in STUDIES else REPORTS / name, folder)
        text = (folder / "report.md").read_text(encoding="utf-8")
        assert old in text
        (folder / "report.md").write_text(text.replace(old, new, 1), encoding="utf-8")
        return folder

    return copy


@pytest.mark.parametrize("name", STUDIES)
def test_every_number_of_a_written_report_has_a_source(name, written, benchmark, capsys):
    folder = str(written(name))
    assert benchmark("recompute_text").main([folder]) == 0, capsys.readouterr().out
    assert benchmark("recompute").main([folder]) == 0, capsys.readouterr().out


def test_every_number_of_the_committed_reports_has_a_source(benchmark, capsys):
    assert benchmark("recompute_text").main([str(folder) for folder in FOLDERS]) == 0, (
        capsys.readouterr().out
    )


@case_table(
    ("name", "old", "new"),
    [
        ("quickstart", "independent-heads and 2 more", "independent-heads and 3 more"),
        ("quickstart", "heads, rotary + independent-heads and 2", "heads, rotary and 2"),
        (
            "quickstart",
            "Every point is a seed, the tick",
            "Every one of 5 points is a seed, the tick",
        ),
        ("quickstart", "| 3 (−0.004 to +0.018)", "| 2 (−0.004 to +0.018)"),
        (SPLIT, "range from −0.005 to +0.029); model", "range from −0.005 to +0.028); model"),
        (SPLIT, "range from −0.013 to +0.021); the", "range from −0.005 to +0.029); the"),
        (SPLIT, "heads (single settings range from −0.005 to +0.029) |", SWAPPED),
        (SPLIT, "range from −0.013 to +0.021) |", "range from −0.012 to +0.021) |"),
        (SPLIT, "| 2 (−0.013 to +0.021)", "| 2 (−0.013 to +0.022)"),
        (SPLIT, "parameters) (1 of 4 settings", "parameters) (1 of 3 settings"),
        (SPLIT, "worse (1 of 4 settings", "worse (2 of 4 settings"),
        ("sizes", "data and size, it is 0.007.", "data and size, it is 0.009."),
        ("sizes", "| 3 of 3 (100 % to 100 %)", "| 2 of 3 (100 % to 100 %)"),
        ("sizes", "30 runs: 6 variants", "30 runs: 7 variants"),
        ("interactions", "a difference of 0.011 would", "a difference of 0.012 would"),
        ("interactions", "split-heads; could be up to 0.014", "split-heads; could be up to 0.015"),
        ("crossed", "+0.024 (+0.017 to +0.032) | better", "+0.024 (+0.017 to +0.033) | better"),
        ("crossed", "training seed | 0.012", "training seed | 0.013"),
        ("crossed", "| 0.0026 (86 %)", "| 0.0026 (76 %)"),
        ("crossed", "| 40 seeds |", "| 41 seeds |"),
        ("crossed", "is 1.1 times the residual", "is 1.3 times the residual"),
        ("crossed", "over 5 baseline contrasts", "over 6 baseline contrasts"),
        ("crossed", "(+58 % non-embedding", "(+48 % non-embedding"),
    ],
    default=14,
)
def test_a_changed_number_is_found_with_its_line(name, old, new, copied, benchmark):
    folder = copied(name, old, new)
    lines = (folder / "report.md").read_text(encoding="utf-8").splitlines()
    (line,) = (number for number, text in enumerate(lines, start=1) if new in text)
    found = benchmark("recompute_text").Checker(folder).check()
    assert {finding.line for finding in found} == {line}


SECTIONS = (
    "Variants",
    "Further metrics",
    "Training",
    "Axis by axis",
    "Interactions",
    "Variance by source",
    "Other tests",
)


def perturbed(text: str, generator: random.Random) -> tuple[str, set[int]]:
    """Return a report with another digit in every row of the tables of results, and the numbers of these lines."""
    lines, changed = text.splitlines(), set()
    section = ""
    for index, line in enumerate(lines):
        if line.startswith("#"):
            section = line.lstrip("# ")
        if section not in SECTIONS or not line.startswith("|") or "interval" in line:
            continue
        start = line.index("|", 1)  # the name of the row is no number
        digits = [
            start + found.start() for found in re.finditer(r"(?<=\.)\d+(?= |\))", line[start:])
        ]
        if digits:
            place = generator.choice(digits)
            lines[index] = f"{line[:place]}{(int(line[place]) + 5) % 10}{line[place + 1 :]}"
            changed.add(index + 1)
    return "\n".join(lines), changed


@case_table("name", ["quickstart", SPLIT, "sizes", "crossed", "interactions"], default=5)
def test_a_changed_digit_of_every_row_of_results_is_found(name, copied, benchmark):
    checked = benchmark("recompute_text")
    folder = copied(name)
    text = (folder / "report.md").read_text(encoding="utf-8")
    generator = random.Random(4)
    for _ in range(3):
        changed_text, changed = perturbed(text, generator)
        assert len(changed) > 15
        (folder / "report.md").write_text(changed_text, encoding="utf-8")
        found = {finding.line for finding in checked.Checker(folder).check()}
        assert changed - found == set()


def test_every_number_of_the_index_of_reports_is_in_its_report(benchmark):
    """A withdrawn report claims nothing, so the index has no row for it."""
    claims = (
        (REPORTS / "README.md").read_text(encoding="utf-8").split("## What each report claims")[1]
    )
    number = re.compile(r"\d[\d,]*(?:\.\d+)?")
    missing, rows = {}, 0
    for line in claims.splitlines():
        name, _, rest = line.removeprefix("| ").partition(" | ")
        file = REPORTS / name / "report.md"
        if not line.startswith("| ") or not file.is_file():
            continue
        rows += 1
        printed = {text.rstrip(",") for text in number.findall(file.read_text(encoding="utf-8"))}
        claimed = {text.rstrip(",") for text in number.findall(rest.rpartition(" | ")[0])}
        missing[name] = claimed - printed
    assert rows == len(FOLDERS) - len(benchmark("withdrawn").withdrawn())
    assert {name: numbers for name, numbers in missing.items() if numbers} == {}


def test_a_sentence_that_answer_json_has_with_other_words_is_found(copied, benchmark):
    folder = copied("sizes")
    answer = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
    answer["setup"] = answer["setup"].replace("toy-grammar, ", "")
    (folder / "answer.json").write_text(json.dumps(answer), encoding="utf-8")
    checked = benchmark("recompute_text")
    (found,) = checked.sentence_findings(checked.Page(folder))
    assert found.problem.startswith(
        "answer.json has another sentence: Set-up: English to French, 4,500 training"
    )


def test_an_edited_an_added_and_a_missing_file_are_found(copied, benchmark):
    checksum_findings = benchmark("recompute_text").checksum_findings
    folder = copied("sizes")
    assert checksum_findings(folder) == []
    with (folder / "report.md").open("a", encoding="utf-8") as file:
        file.write("A word.\n")
    (folder / "results.csv").unlink()
    (folder / "notes.md").write_text("A word.\n", encoding="utf-8")
    found = [finding.problem.partition(" ")[0] for finding in checksum_findings(folder)]
    assert found == ["notes.md", "report.md", "results.csv"]
    (folder / CHECKSUMS).unlink()
    assert [finding.problem for finding in checksum_findings(folder)] == [
        "SHA256SUMS is missing; h2h report writes it"
    ]


def test_a_written_report_has_the_checksums_of_its_files(quickstart, tmp_path, benchmark):
    folder = write_report(quickstart, tmp_path / "reports").folder
    assert benchmark("recompute_text").checksum_findings(folder) == []
    assert "report.md" in (folder / CHECKSUMS).read_text(encoding="utf-8")
