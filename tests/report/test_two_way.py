"""Two crossed axes give a table with the means of the runs."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from headtohead.analysis.study import analyse
from headtohead.analysis.two_way import find_two_way_table, variance_parts
from headtohead.report.two_way import two_way_table
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


def test_variance_fractions_equal_sums_of_squares_of_a_plain_loop(crossed: Path) -> None:
    frames = load_frames(crossed)
    analysis = analyse(frames)
    grid = find_two_way_table(analysis)
    assert grid is not None
    found = variance_parts(grid, frames, analysis.metric)
    assert found is not None
    rows = [name for name in POSITIONAL if name != "rotary"]
    scores = {
        (a, b, seed): frames.scores(grid.cells[a, b], analysis.metric)[seed]
        for a, b, seed in product(rows, ATTENTION, range(1, 7))
    }

    def mean(row: str | None = None, column: str | None = None) -> float:
        selected = [value for (a, b, _), value in scores.items() if row in (None, a) and column in (None, b)]
        return sum(selected) / len(selected)

    total = sum((value - mean()) ** 2 for value in scores.values())
    of_rows = sum((mean(a) - mean()) ** 2 for a, _, _ in scores) / total
    of_columns = sum((mean(column=b) - mean()) ** 2 for _, b, _ in scores) / total
    of_seeds = sum((value - mean(a, b)) ** 2 for (a, b, _), value in scores.items()) / total
    assert found.rows == pytest.approx(of_rows)
    assert found.columns == pytest.approx(of_columns)
    assert found.seeds == pytest.approx(of_seeds)
    assert found.rows + found.columns + found.interaction + found.seeds == pytest.approx(1)


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
    assert "This covers the 3 complete rows." in text


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
