"""Two crossed axes give a table with the means of the runs."""

import math
import re
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from headtohead.analysis.study import Analysis
from headtohead.report.answer import answer
from headtohead.report.content import Report
from headtohead.report.contrasts import two_way_section
from headtohead.report.writing import write_files
from made import case_table
from made.fake_study import phrases_of

Analysed = Callable[..., Analysis]
POSITIONAL = ["sinusoidal", "rotary", "none", "alibi"]
ATTENTION = ["split-heads", "linear", "uniform"]
EXCLUDED = {"positional": "rotary", "attention": "uniform"}


def score(axes: Any, seed: int) -> float:
    row, column = POSITIONAL.index(axes["positional"]), ATTENTION.index(axes["attention"])
    return 0.2 + 0.1 * row + 0.03 * column + 0.02 * (row == column) + 0.001 * seed


AXES = {"positional": POSITIONAL, "attention": ATTENTION}
STUDY = {
    "axes": AXES,
    "score": score,
    "excluded": [
        {"axes": EXCLUDED, "reason": "uniform attention has no queries", "source": "incompatible"}
    ],
}


def test_every_cell_has_the_mean_of_its_runs_and_the_best_rows_are_first(
    analysed: Analysed,
) -> None:
    grid = analysed(**STUDY).two_way
    assert grid.axes == ("positional", "attention")
    assert grid.rows == ("ALiBi", "without positions", "rotary", "sinusoidal")
    assert grid.columns == ("uniform attention", "linear attention", "split heads")
    for row, column in product(POSITIONAL, ATTENTION):
        axes = {"positional": row, "attention": column}
        phrases = phrases_of(axes)
        found = grid.cells.get((phrases["positional"], phrases["attention"]))
        if axes == EXCLUDED:
            assert found is None
            continue
        assert found is not None
        mean = sum(score(axes, seed) for seed in range(1, 7)) / 6
        assert found.mean == pytest.approx(mean, abs=1e-6)


def broken(axes: Any, seed: int) -> float:
    """Return good scores, but for positional none and for alibi with linear."""
    row, column = POSITIONAL.index(axes["positional"]), ATTENTION.index(axes["attention"])
    if axes["positional"] == "none" or (axes["positional"], axes["attention"]) == (
        "alibi",
        "linear",
    ):
        return 0.3 + 0.01 * column + 0.002 * math.sin(seed + row)
    return 0.8 + 0.02 * row + 0.01 * column + 0.002 * math.sin(7 * seed + 3 * row + 5 * column)


def test_with_a_margin_the_combinations_equivalent_to_the_best_are_counted(
    analysed: Analysed,
) -> None:
    analysis = analysed(axes=AXES, score=broken, margin=0.035)
    result = analysis.two_way
    assert result.ranking[0].name == "ALiBi with uniform attention"
    assert answer(analysis)[0].startswith(
        "Of 12 ranked combinations of positional encoding and attention style, ALiBi with uniform attention has"
    )
    others = [row.comparison for row in result.ranking[1:] if row.comparison]
    assert sum(found.is_equivalent for found in others) == 1
    worse = sum(found.is_worse and not found.is_equivalent for found in others)
    counts = f"1 equivalent to the best within 0.035, {worse} worse than another combination, {10 - worse} undecided"
    assert f"Of the other 11: {counts}." in answer(analysis)[1]
    ranking = two_way_section(Report(analysis)).parts[0].frame
    deficits = [row.comparison.largest_deficit for row in result.ranking if row.comparison]
    assert list(ranking["worse by at most"]) == [
        f"{deficit:.3f}" if math.isfinite(deficit) else "–" for deficit in deficits
    ]
    assert [deficit < 0.035 for deficit in deficits] == [True, True, *[False] * 10]
    assert list(ranking["combination"]) == [row.name for row in result.ranking]


def test_combinations_with_the_scores_of_the_best_share_the_highest(analysed: Analysed) -> None:
    analysis = analysed(
        axes=AXES, score=lambda axes, seed: score(axes | {"attention": "linear"}, seed)
    )
    names = "ALiBi with split heads, ALiBi with linear attention and ALiBi with uniform attention"
    assert re.search(
        rf", {names} share the highest exact match, .* Of the other 9: ", " ".join(answer(analysis))
    )
    ranking = two_way_section(Report(analysis)).parts[0].frame
    assert list(ranking["verdict"])[:4] == ["best", "equal", "equal", "undecided"]


@pytest.mark.usefixtures("without_figures")
def test_the_report_has_the_shaded_table(analysed: Analysed, tmp_path: Path) -> None:
    written = write_files(Report(analysed(**STUDY)), tmp_path)
    page, text = written.html.read_text("utf-8"), written.markdown.read_text("utf-8")
    assert '<table class="grid">' in page
    assert 'style="--shade: 62%"' in page
    assert re.search(r"\| rotary \| – \| 0\.\d+ \(0\.\d+ to 0", text)
    assert "uniform attention has no queries" in text


@case_table(
    "changes",
    [
        {"axes": {"positional": POSITIONAL, "attention": ATTENTION[:2]}},
        {"axes": AXES | {"masking": ["causal", "none"]}},
        {"axes": AXES, "one_at_a_time": True},
    ],
    default=1,
)
def test_stars_three_axes_and_two_values_give_no_table(
    analysed: Analysed, changes: dict[str, Any]
) -> None:
    assert analysed(seeds=(1, 2), **changes).two_way is None
