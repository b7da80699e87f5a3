"""The table of claims in reports/README.md, compared with the reports and the experiment files."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
REPORTS = ROOT / "reports"
COMMITTED = re.findall(r"^!/reports/([\w-]+)/$", (ROOT / ".gitignore").read_text(encoding="utf-8"), re.MULTILINE)
"""Folders of committed reports; the other folders are reports of the reader's own runs."""
WITH_ANSWER = sorted(
    str(path.parent.relative_to(REPORTS)) for folder in COMMITTED for path in (REPORTS / folder).rglob("answer.json")
)


def claims() -> dict[str, tuple[str, str]]:
    """Return the claim and the lines of the design by report."""
    text = (REPORTS / "README.md").read_text(encoding="utf-8")
    section = text.partition("## What each report claims")[2]
    rows = re.findall(r"^\| ([\w/-]+) \| (.+?) \| `([^|]+)` \|$", section, re.MULTILINE)
    return {name: (claim, design) for name, claim, design in rows}


def test_every_report_with_an_answer_has_a_row() -> None:
    assert sorted(claims()) == WITH_ANSWER


@pytest.mark.parametrize("name", WITH_ANSWER)
def test_a_claim_is_the_first_sentence_of_the_report(name: str) -> None:
    answer = json.loads((REPORTS / name / "answer.json").read_text(encoding="utf-8"))["answer"]
    assert claims()[name][0] == re.split(r"(?<=\.) ", answer)[0]


@pytest.mark.parametrize("name", WITH_ANSWER)
def test_the_lines_of_the_design_are_in_the_experiment_file(name: str) -> None:
    report = (REPORTS / name / "report.md").read_text(encoding="utf-8")
    (file,) = re.findall(r"^### (experiments/\S+\.yaml)$", report, re.MULTILINE)
    lines = [
        " ".join(line.partition(" #")[0].split()) for line in (ROOT / file).read_text(encoding="utf-8").splitlines()
    ]
    for line in claims()[name][1].split("; "):
        assert line in lines
