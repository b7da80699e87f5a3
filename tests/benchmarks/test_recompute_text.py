"""Every number of the committed reports has a source, and a changed number, sentence or file is found."""

import json
import random
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest
from scipy import stats

from headtohead.report.writing import CHECKSUMS, write_report
from made import case_table

REPORTS = Path(__file__).parents[2] / "reports"
FOLDERS = sorted(file.parent for file in REPORTS.rglob("answer.json"))
TEXTS = {"sizes": REPORTS / "contested" / "sizes", "quickstart": REPORTS / "quickstart"}


@pytest.fixture
def copied(tmp_path):
    """Return a function that copies a committed report and replaces a text of its ``report.md``."""

    def copy(name: str, old: str = "", new: str = "") -> Path:
        folder = tmp_path / name
        shutil.copytree(TEXTS[name], folder)
        text = (folder / "report.md").read_text(encoding="utf-8")
        assert old in text
        (folder / "report.md").write_text(text.replace(old, new, 1), encoding="utf-8")
        return folder

    return copy


def test_every_number_of_the_committed_reports_has_a_source(benchmark, capsys):
    assert benchmark("recompute_text").main([str(folder) for folder in FOLDERS]) == 0, (
        capsys.readouterr().out
    )


@case_table(
    ("name", "old", "new"),
    [
        ("sizes", "data and size, it is 0.016.", "data and size, it is 0.013."),
        ("sizes", "a difference of 0.057 or more", "a difference of 0.047 or more"),
        ("sizes", "| 25 of 28 (71 % to 100 %)", "| 25 of 28 (75 % to 100 %)"),
        ("sizes", "96 runs: 24 variants", "96 runs: 23 variants"),
        ("sizes", "(99.76 %: 0.126 to 0.212)", "(99.76 %: 0.126 to 0.211)"),
        ("sizes", "training seed | 0.016", "training seed | 0.013"),
        ("sizes", "fell by 1.5 to 2.8 %", "fell by 1.2 to 2.8 %"),
        ("sizes", "Every point is a seed, the tick", "Every one of 5 points is a seed, the tick"),
        ("quickstart", "(+58 % non-embedding", "(+48 % non-embedding"),
        ("sizes", "about 330 steps |", "about 340 steps |"),
        ("sizes", "| beyond (99.52 %: 0.131", "| beyond (99.42 %: 0.131"),
    ],
    default=3,
)
def test_a_changed_number_is_found_with_its_line(name, old, new, copied, benchmark):
    folder = copied(name, old, new)
    lines = (folder / "report.md").read_text(encoding="utf-8").splitlines()
    (line,) = (number for number, text in enumerate(lines, start=1) if new in text)
    found = benchmark("recompute_text").Checker(folder).check()
    assert {finding.line for finding in found} == {line}


SECTIONS = ("Variants", "Tests", "Further metrics", "Training", "Axis by axis", "Interactions")


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


@case_table("name", ["sizes", "quickstart"], default=1)
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


def test_every_number_of_the_index_of_reports_is_in_its_report_or_recomputed():
    """nanogpt-cpu names the mean of test and validation loss, and mqar-layers an accuracy in percent."""
    claims = (
        (REPORTS / "README.md").read_text(encoding="utf-8").split("## What each report claims")[1]
    )
    runs = pd.read_csv(REPORTS / "published" / "nanogpt-cpu" / "results.csv")
    both = (runs["test/loss"] + runs["valid/loss"]) / 2
    half = stats.t.ppf(0.975, len(both) - 1) * both.sem()
    recomputed = {
        f"{value:.3f}" for value in (both.mean(), both.mean() - half, both.mean() + half)
    } | {"17.8"}
    number = re.compile(r"\d[\d,]*(?:\.\d+)?")
    missing, rows = {}, 0
    for line in claims.splitlines():
        name, _, rest = line.removeprefix("| ").partition(" | ")
        file = REPORTS / name / "report.md"
        if not line.startswith("| ") or not file.is_file():
            continue
        rows += 1
        printed = {text.rstrip(",") for text in number.findall(file.read_text(encoding="utf-8"))}
        missing[name] = (
            {text.rstrip(",") for text in number.findall(rest.rpartition(" | ")[0])}
            - printed
            - recomputed
        )
    assert rows == len(FOLDERS)
    assert {name: numbers for name, numbers in missing.items() if numbers} == {}


def test_a_sentence_that_answer_json_has_with_other_words_is_found(copied, benchmark):
    folder = copied("sizes")
    answer = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
    answer["setup"] = answer["setup"].replace("text, tinyshakespeare", "text")
    (folder / "answer.json").write_text(json.dumps(answer), encoding="utf-8")
    checked = benchmark("recompute_text")
    (found,) = checked.sentence_findings(checked.Page(folder))
    assert found.problem.startswith(
        "answer.json has another sentence: Set-up: text, 15,686 training"
    )


def test_an_edited_an_added_and_a_missing_file_are_found(copied, benchmark):
    checksum_findings = benchmark("recompute_text").checksum_findings
    folder = copied("sizes")
    assert checksum_findings(folder) == []
    with (folder / "report.md").open("a", encoding="utf-8") as file:
        file.write("A word.\n")
    (folder / "figures" / "curves.svg").unlink()
    (folder / "notes.md").write_text("A word.\n", encoding="utf-8")
    found = [finding.problem.partition(" ")[0] for finding in checksum_findings(folder)]
    assert found == ["figures/curves.svg", "notes.md", "report.md"]
    (folder / CHECKSUMS).unlink()
    assert [finding.problem for finding in checksum_findings(folder)] == [
        "SHA256SUMS is missing; h2h report writes it"
    ]


def test_a_written_report_has_the_checksums_of_its_files(quickstart, tmp_path, benchmark):
    folder = write_report(quickstart, tmp_path / "reports").folder
    assert benchmark("recompute_text").checksum_findings(folder) == []
    assert "report.md" in (folder / CHECKSUMS).read_text(encoding="utf-8")
