"""Two crossed axes give a table with the means of the runs."""

from __future__ import annotations

import json
import math
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
from headtohead.report.blocks import DataTable, Details

from headtohead.analysis.study import analyse
from headtohead.analysis.two_way import TwoWayResult, find_two_way_table, two_way_result, variance_shares
from headtohead.report.answer import answer
from headtohead.report.two_way import two_way_answer, two_way_blocks, two_way_table
from headtohead.report.writing import write_report
from headtohead.storage.frames import load_frames

POSITIONAL = ["sinusoidal", "rotary", "none", "alibi"]
ATTENTION = ["split-heads", "linear", "uniform"]
EXCLUDED = {"positional": "rotary", "attention": "uniform"}


def score(axes: Any, seed: int) -> float:
    row, column = POSITIONAL.index(axes["positional"]), ATTENTION.index(axes["attention"])
    return 0.2 + 0.1 * row + 0.03 * column + 0.02 * (row == column) + 0.001 * seed


def table(made: ModuleType, folder: Path, **changes: Any) -> Path:
    study = made.Study(
        axes={"positional": POSITIONAL, "attention": ATTENTION},
        maps=False,
        score=score,
        excluded=[{"axes": EXCLUDED, "reason": "uniform attention has no queries", "source": "incompatible"}],
        **changes,
    )
    return made.write_study(folder, study)


@pytest.fixture(scope="module")
def crossed(made: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return table(made, tmp_path_factory.mktemp("runs"))


def test_every_cell_has_the_mean_of_its_runs_and_the_best_rows_are_first(crossed: Path) -> None:
    grid = find_two_way_table(analyse(load_frames(crossed)))
    assert grid is not None
    assert grid.axes == ("positional", "attention")
    assert grid.rows == ("alibi", "none", "rotary", "sinusoidal")
    assert grid.columns == ("uniform", "linear", "split-heads")
    for row, column in product(POSITIONAL, ATTENTION):
        axes = {"positional": row, "attention": column}
        found = grid.summary(row, column)
        if axes == EXCLUDED:
            assert found is None
            assert grid.reasons == {(row, column): "uniform attention has no queries"}
            continue
        assert found is not None
        mean = sum(score(axes, seed) for seed in range(1, 7)) / 6
        assert found.mean == pytest.approx(mean, abs=1e-6)


def noisy(row: str, column: str, seed: int) -> float:
    i, j = POSITIONAL.index(row), ATTENTION.index(column)
    return (
        math.sin(3 * i + 1) + 0.4 * math.cos(5 * j) + 0.3 * math.sin(7 * i * j) + 0.1 * math.sin(11 * i + 13 * j + seed)
    )


def test_variance_fractions_equal_sums_of_squares_of_a_plain_loop() -> None:
    cells = list(product(POSITIONAL, ATTENTION))
    scores = {(a, b, seed): noisy(a, b, seed) for (a, b), seed in product(cells, range(1, 7))}
    found = variance_shares({cell: {seed: scores[*cell, seed] for seed in range(1, 7)} for cell in cells})
    assert found is not None

    def mean(row: str | None = None, column: str | None = None) -> float:
        selected = [value for (a, b, _), value in scores.items() if row in (None, a) and column in (None, b)]
        return sum(selected) / len(selected)

    total = sum((value - mean()) ** 2 for value in scores.values())
    of_rows = sum((mean(a) - mean()) ** 2 for a, _, _ in scores) / total
    of_columns = sum((mean(column=b) - mean()) ** 2 for _, b, _ in scores) / total
    of_seeds = sum((value - mean(a, b)) ** 2 for (a, b, _), value in scores.items()) / total
    assert found.cells == 12
    assert found.rows == pytest.approx(of_rows)
    assert found.columns == pytest.approx(of_columns)
    assert found.seeds == pytest.approx(of_seeds)
    assert found.rows + found.columns + found.interaction + found.seeds == pytest.approx(1)


def test_with_gaps_the_fraction_of_an_axis_is_its_mean_before_and_after_the_other_axis() -> None:
    cells = [cell for cell in product(POSITIONAL, ATTENTION) if cell not in {("none", "linear"), ("alibi", "uniform")}]
    scores = {cell: {seed: noisy(*cell, seed) for seed in (1, 2, 3)} for cell in cells}
    found = variance_shares(scores)
    assert found is not None
    flat = [(a, b, value) for (a, b), by_seed in scores.items() for value in by_seed.values()]
    data = pd.DataFrame(flat, columns=["row", "column", "score"])

    def unexplained(*columns: str) -> float:
        design = pd.get_dummies(data[list(columns)], dtype=float).assign(constant=1.0).to_numpy()
        residuals = data["score"] - design @ np.linalg.pinv(design) @ data["score"]
        return float((residuals**2).sum())

    total = float(((data["score"] - data["score"].mean()) ** 2).sum())
    rows, columns, both = unexplained("row"), unexplained("column"), unexplained("row", "column")
    assert found.rows == pytest.approx(((total - rows) + (columns - both)) / 2 / total)
    assert found.columns == pytest.approx(((total - columns) + (rows - both)) / 2 / total)
    within = data.groupby(["row", "column"])["score"].transform("mean")
    assert found.seeds == pytest.approx(float(((data["score"] - within) ** 2).sum()) / total)
    assert found.rows + found.columns + found.interaction + found.seeds == pytest.approx(1)


def broken(axes: Any, seed: int) -> float:
    """Return good scores, but for positional none and for alibi with linear."""
    row, column = POSITIONAL.index(axes["positional"]), ATTENTION.index(axes["attention"])
    if axes["positional"] == "none" or (axes["positional"], axes["attention"]) == ("alibi", "linear"):
        return 0.3 + 0.01 * column + 0.002 * math.sin(seed + row)
    return 0.9 + 0.02 * row + 0.01 * column + 0.002 * math.sin(7 * seed + 3 * row + 5 * column)


def result_of(made: ModuleType, folder: Path, margin: float | None = None) -> tuple[Any, TwoWayResult]:
    made_study = made.Study(axes={"positional": POSITIONAL, "attention": ATTENTION}, maps=False, score=broken)
    written = made.write_study(folder, made_study)
    if margin:
        path = written / "experiment.json"
        record = json.loads(path.read_text("utf-8"))
        record["margins"] = {"test/exact_match": {"value": margin, "since": "2026-01-01T00:00:00Z"}}
        path.write_text(json.dumps(record), encoding="utf-8")
    analysis = analyse(load_frames(written))
    grid = find_two_way_table(analysis)
    assert grid is not None
    result = two_way_result(analysis, grid)
    assert result is not None
    return analysis, result


def test_combinations_above_half_way_between_chance_and_the_best_work(made: ModuleType, tmp_path: Path) -> None:
    analysis, result = result_of(made, tmp_path)
    assert result.ranking[0].name == "alibi with uniform"
    assert result.chance == made.CEILING
    assert result.threshold == pytest.approx((made.CEILING + result.ranking[0].summary.mean) / 2)
    assert result.working == 8
    assert {scope: shares.cells for scope, shares in result.shares.items()} == {"all": 12, "values": 9, "working": 8}
    assert result.shares["all"].rows > 0.5
    assert result.shares["values"].interaction > 0.5
    assert result.shares["working"].interaction < 0.1
    text = answer(analysis)
    assert text == two_way_answer(analysis)
    assert text.startswith(
        "Of 12 combinations of positional and attention, these have the highest exact match: alibi with uniform, 0.9"
    )
    assert "without a margin, this does not show equality" in text
    assert "8 of the 12 combinations work, with more than 0.75" in text


def test_with_a_margin_the_combinations_equivalent_to_the_best_are_counted(made: ModuleType, tmp_path: Path) -> None:
    analysis, result = result_of(made, tmp_path, margin=0.035)
    equivalent = [row.name for row in result.ranking[1:] if row.comparison and row.comparison.is_equivalent]
    assert len(equivalent) == 1
    worse = sum(
        row.comparison.is_worse and not row.comparison.is_equivalent for row in result.ranking[1:] if row.comparison
    )
    expected = (
        f"Of the other 11, 1 is equivalent to the best within 0.035, {worse} are worse and "
        f"{10 - worse} are inconclusive."
    )
    assert expected in answer(analysis)
    table = next(block for block in two_way_blocks(analysis) if isinstance(block, DataTable))
    assert [column.heading for column in table.columns][-1] == "equivalent: p"
    assert len(table.rows) == 10


@pytest.mark.usefixtures("without_figures")
def test_the_report_shows_the_table_and_what_is_left_out(crossed: Path, tmp_path: Path) -> None:
    written = write_report(crossed, tmp_path)
    page = written.html.read_text("utf-8")
    text = (written.html.parent / "report.md").read_text("utf-8")
    assert '<table class="grid">' in page
    assert 'style="--shade: 62%"' in page
    assert "## Every pair" in text
    assert "| | uniform | linear | split-heads |" in text
    assert "| **rotary** | – | 0." in text
    assert "1 pair of 4 × 3 is excluded" in text
    assert "| all combinations | 11 |" in text
    assert "The best combination is selected by these scores" in text


def test_a_lower_loss_is_darker(made: ModuleType, tmp_path: Path) -> None:
    analysis = analyse(load_frames(table(made, tmp_path, primary="test/loss")))
    grid = find_two_way_table(analysis)
    assert grid is not None
    shades = {}
    for row, cells in zip(grid.rows, two_way_table(analysis, grid).rows, strict=True):
        for column, cell in zip(grid.columns, cells.cells[1:], strict=True):
            if summary := grid.summary(row, column):
                shades[summary.mean] = cell.shade
    assert (shades[min(shades)], shades[max(shades)]) == (62, 0)


@pytest.mark.default_cases(1)
@pytest.mark.parametrize(
    "changes",
    [
        {"axes": {"positional": POSITIONAL, "attention": ATTENTION[:2]}},
        {"axes": {"positional": POSITIONAL, "attention": ATTENTION, "masking": ["causal", "none"]}},
        {"axes": {"positional": POSITIONAL, "attention": ATTENTION}, "one_at_a_time": True},
    ],
)
def test_stars_three_axes_and_two_values_give_no_table(
    made: ModuleType, tmp_path: Path, changes: dict[str, Any]
) -> None:
    folder = made.write_study(tmp_path, made.Study(maps=False, seeds=(1, 2), **changes))
    assert find_two_way_table(analyse(load_frames(folder))) is None


def without_variance(axes: Any, seed: int) -> float:
    """Return 1.0 for the combinations that work, which are some of every positional encoding and attention style."""
    broken = {("none", "linear"), ("none", "uniform"), ("alibi", "uniform")}
    return 0.2 + 0.01 * seed if (axes["positional"], axes["attention"]) in broken else 1.0


def test_without_variance_among_the_working_combinations_the_answer_has_all_combinations_only(
    made: ModuleType, tmp_path: Path
) -> None:
    study = made.Study(axes={"positional": POSITIONAL, "attention": ATTENTION}, maps=False, score=without_variance)
    analysis = analyse(load_frames(made.write_study(tmp_path, study)))
    text = answer(analysis)
    assert "Of the variance of the scores, attention explains" in text
    assert "combinations work" not in text


SQUARE = [f"a{number}" for number in range(4)]


def noisy_after_rank_six(axes: Any, seed: int) -> float:
    """Return precise scores for the best six combinations and noisy scores for the others."""
    rank = 4 * POSITIONAL.index(axes["positional"]) + SQUARE.index(axes["attention"])
    wobble = math.sin(1.7 * seed * (rank + 2))
    if rank == 0:
        return 0.80 + 0.0005 * wobble
    return 0.78 - 0.001 * rank + 0.0005 * wobble if rank < 6 else 0.74 - 0.002 * rank + 0.12 * wobble


def test_all_combinations_that_are_not_significantly_worse_are_listed(made: ModuleType, tmp_path: Path) -> None:
    study = made.Study(axes={"positional": POSITIONAL, "attention": SQUARE}, maps=False, score=noisy_after_rank_six)
    analysis = analyse(load_frames(made.write_study(tmp_path, study)))
    table = find_two_way_table(analysis)
    result = two_way_result(analysis, table) if table else None
    assert result is not None
    worse = [row.comparison is not None and row.comparison.is_worse for row in result.ranking]
    assert any(worse[:10])
    assert not all(worse[10:])
    blocks = two_way_blocks(analysis)
    first = next(block for block in blocks if isinstance(block, DataTable))
    (folded,) = (block for block in blocks if isinstance(block, Details))
    (second,) = (block for block in folded.blocks if isinstance(block, DataTable))
    names = [row.cells[0].text for row in (*first.rows, *second.rows)]
    assert names == [row.name for number, row in enumerate(result.ranking) if number < 10 or not worse[number]]
    assert folded.summary.startswith(f"{len(second.rows)} more combinations that are not significantly worse")
