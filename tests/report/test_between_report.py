"""Reports of studies between two configurations: the answer, the table of changes, the figure and answer.json."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headtohead.analysis.study import Analysis
from headtohead.report.figures.rows import forest_rows
from headtohead.report.writing import ReportPaths, write_report
from headtohead.storage.frames import load_frames
from made.fake_study import Study, write_study

ENDS = {
    "model.norm": ["pre", "post"],
    "model.mask_value": ["-inf", "-1e9"],
    "train.lr": [0.001, 0.002],
}
NAMES = tuple(ENDS)
CLAUSES = {
    "model.norm": "post-norm instead of pre-norm",
    "model.mask_value": "masked scores of −1e9 instead of −∞",
    "train.lr": "learning rate 0.002 instead of 0.001",
}


def score(axes: Mapping[str, Any], seed: int) -> float:
    """The norm and the rate work only together; the mask value changes nothing."""
    applied = {name for name, (start, _) in ENDS.items() if axes[name] != start}
    noise = np.random.default_rng([seed, *sorted(map(len, applied))]).normal(scale=0.004)
    return 0.4 + 0.02 * seed / 6 + 0.3 * ({"model.norm", "train.lr"} <= applied) + float(noise)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_study(
        tmp_path_factory.mktemp("runs"), Study(axes=ENDS, between=True, score=score, maps=False)
    )


@pytest.fixture(scope="module")
def analysis(folder: Path) -> Analysis:
    return Analysis(load_frames(folder))


@pytest.fixture(scope="module")
def written(folder: Path, tmp_path_factory: pytest.TempPathFactory, no_figures: Any) -> ReportPaths:
    with no_figures():
        return write_report(folder, tmp_path_factory.mktemp("reports"))


def test_changes_that_work_only_together_have_no_effect_when_added_and_a_large_effect_when_taken(
    analysis: Analysis,
) -> None:
    verdicts = {
        (contrast.family, contrast.axis): contrast.verdict
        for family in (analysis.families.added, analysis.families.taken)
        for contrast in family.contrasts
    }
    assert {name: verdicts["taken", name] for name in NAMES} == {
        "model.norm": "better",
        "model.mask_value": "no difference shown",
        "train.lr": "better",
    }
    assert {verdicts["added", name] for name in NAMES} == {"no difference shown"}


def test_the_answer_names_the_changes_with_an_effect_and_their_configuration(
    written: ReportPaths,
) -> None:
    for name in ("train.lr", "model.norm"):
        rows = [row for row in written.differences.rows if row[0].startswith(CLAUSES[name])]
        assert any(row[1].startswith("+0.") and row[2] == "better" for row in rows)
        text = rf"With {re.escape(CLAUSES[name])} in the second, exact match improves: \+0\.\d+ \("
        assert re.search(text, written.answer)
    contrasts = json.loads(written.json.read_text(encoding="utf-8"))["contrasts"]
    assert [contrast["family"] for contrast in contrasts] == [
        "variants",
        *["added"] * 3,
        *["taken"] * 3,
    ]


def test_the_table_has_both_differences_of_a_change_below_each_other(
    written: ReportPaths, analysis: Analysis
) -> None:
    page = written.markdown.read_text(encoding="utf-8").replace("\\", "")
    table = page.split("## Details")[0].splitlines()
    rows = [line.split(" | ") for line in table if line.startswith("|") and " in the " in line]
    added, taken = analysis.families.added.contrasts, analysis.families.taken.contrasts
    expected = {contrast.name: contrast.difference_text for contrast in (*added, *taken)}
    shown = {row[0].removeprefix("| ").partition(" (")[0]: row[1].split()[0] for row in rows}
    assert shown == expected
    clauses = [name.partition(" in the ")[0] for name in shown]
    assert clauses[::2] == clauses[1::2]
    assert set(clauses) == set(CLAUSES.values())


def test_both_contrasts_of_a_change_are_neighbours_in_the_figure(analysis: Analysis) -> None:
    names = [row.name.rpartition(" in the ")[0] for row in forest_rows(analysis)][1:]
    assert names == [name for pair in zip(names[::2], names[::2], strict=True) for name in pair]


@pytest.mark.usefixtures("without_figures")
def test_a_change_that_is_incompatible_by_itself_has_no_row(tmp_path: Path) -> None:
    excluded = {name: values[name == "model.norm"] for name, values in ENDS.items()}
    reason = {"axes": excluded, "reason": "these are inseparable", "source": "incompatible"}
    study = Study(axes=ENDS, between=True, score=score, maps=False, excluded=[reason])
    paths = write_report(write_study(tmp_path / "runs", study), tmp_path / "reports")
    page = paths.markdown.read_text(encoding="utf-8")
    rows = [
        line
        for line in page.split("## Details")[0].splitlines()
        if line.replace("\\", "").startswith(f"| {CLAUSES['model.norm']} in the")
    ]
    (row,) = rows
    assert "in the second" in row
    assert "these are inseparable" in page
