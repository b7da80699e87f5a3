"""The simulation of studies with several looks, and its tables in the page on ``h2h judge``."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from headtohead.statistics.looks import Looks

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "judge.md"


@pytest.fixture(scope="module")
def looks(benchmark: Callable[[str], ModuleType]) -> ModuleType:
    return benchmark("looks")


def test_the_page_has_few_false_verdicts_and_designs_with_enough_power(looks: ModuleType) -> None:
    table = PAGE.read_text(encoding="utf-8").partition(looks.BEGIN)[2].partition(looks.END)[0]
    false = re.findall(r"^\| \d+ \| [\d, ]+ \| ([\d.]+) % \| ([\d.]+) % \| ([\d.]+) % \|$", table, re.MULTILINE)
    saved = re.findall(r"^\| [\d.]+ \| [\d, ]+ \| ([\d.]+) % \| ([\d.]+) \| (\d+) \| (\d+) % \|$", table, re.MULTILINE)
    assert len(false) == len(looks.NULL)
    assert len(saved) == 6
    assert all(float(rate) <= 5.5 for rates in false for rate in rates)
    for power, mean, fixed, fewer in saved:
        assert float(power) >= 80
        assert round(100 * (1 - float(mean) / int(fixed))) == pytest.approx(int(fewer), abs=1)


@pytest.mark.slow
def test_looks_without_the_correction_find_false_differences(looks: ModuleType) -> None:
    def rate(plan: Looks | None) -> float:
        return float(
            looks.simulate(np.random.default_rng(0), 600, plan, contrasts=1, effect=0.0, correlation=0.5).found.mean()
        )

    class Uncorrected(Looks):
        adjusted = staticmethod(lambda p, sides=2: p)  # type: ignore[assignment]
        level = staticmethod(lambda alpha, sides=2: alpha)  # type: ignore[assignment]

    assert rate(Looks.planned(4, 16)) < 0.075
    assert rate(Uncorrected((4, 8, 12, 16))) > 0.09
