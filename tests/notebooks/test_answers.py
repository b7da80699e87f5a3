"""The answers of the page are the main contrasts of the experiments."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from scipy import stats

from headtohead_notebooks.page import editions
from headtohead_notebooks.page.content import ExperimentResult, difference_text, read_result

SEEDS = (1, 2, 3, 4)
NAME = "positions-fixed-or-learned"
POSITIONALS = ["sinusoidal", "learned(std=1)", "learned(std=0.1)", "none"]


def score(axes: Mapping[str, Any], seed: int) -> float:
    return 0.5 + 0.2 * (axes["positional"] == "none") + 0.01 * math.sin(7 * seed + len(str(axes["positional"])))


def read(made: ModuleType, folder: Path, **study: Any) -> ExperimentResult:
    made.write_study(
        folder, made.Study(name=NAME, axes={"positional": POSITIONALS}, seeds=SEEDS, maps=False, score=score, **study)
    )
    (edition,) = (edition for edition in editions(quick=False) if edition.name == NAME)
    return read_result(edition, folder, folder / "reports")


def test_an_answer_names_differences_with_intervals_computed_by_hand(made: ModuleType, tmp_path: Path) -> None:
    result = read(made, tmp_path)
    (contrast,) = (contrast for contrast in result.contrasts if contrast.left == "none")
    differences = [score({"positional": "none"}, seed) - score({"positional": "sinusoidal"}, seed) for seed in SEEDS]
    low, high = stats.t.interval(0.95, len(SEEDS) - 1, sum(differences) / len(SEEDS), stats.sem(differences))
    assert contrast.paired is not None
    assert (contrast.paired.low, contrast.paired.high) == pytest.approx((low, high))
    assert difference_text(contrast).endswith("better")
    assert result.answer.count("; ") == 2
    assert max(result.axis_ends) == -min(result.axis_ends) >= contrast.paired.high


def test_missing_runs_are_not_compared(made: ModuleType, tmp_path: Path) -> None:
    result = read(made, tmp_path, states={("none", seed): "PLANNED" for seed in SEEDS})
    (contrast,) = (contrast for contrast in result.contrasts if contrast.left == "none")
    assert contrast.paired is None
    assert difference_text(contrast)
