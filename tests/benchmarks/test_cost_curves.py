"""Cost curves: the fit, the measurement, and the table of large studies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

LARGE_STUDY = Path(__file__).parents[2] / "benchmarks" / "results" / "large_study.md"
TABLE = """
| command | runs | wall, s | processor, s | memory, MiB | growth |
|---|---:|---:|---:|---:|---:|
| plan | 100 | 4.0 | 2.0 | 276 | – |
| plan | 10,000 | 9.0 | 8.0 | 473 | 0.25 |
| plan, nothing run yet | 100 | 3.6 | 1.8 | 275 | – |
| status | 100 | 0.5 | 0.2 | 33 | – |
| status | 1,000 | 0.8 | 0.2 | 35 | 0.09 |
"""


@pytest.fixture(scope="module")
def growth(benchmark: Callable[[str], ModuleType]) -> ModuleType:
    return benchmark("growth")


def test_the_fit_returns_the_exponent_of_a_power_and_that_of_the_last_points(growth: ModuleType) -> None:
    square = growth.Growth.fit([2, 4, 8, 16], [3 * n**2 for n in (2, 4, 8, 16)])
    assert (square.exponent, square.error) == pytest.approx((2, 0), abs=1e-6)
    not_a_power = growth.Growth.fit([1, 10, 100], [10 + n for n in (1, 10, 100)])
    assert not_a_power.error > 0.1
    assert not_a_power.last > not_a_power.exponent


def test_the_cost_of_commands_comes_from_the_results_of_large_studies(growth: ModuleType) -> None:
    plan, status = growth.commands(TABLE)
    assert (plan.name, list(plan.numbers), list(plan.processor), list(plan.wall)) == (
        "h2h plan",
        [100, 10_000],
        [2, 8],
        [4, 9],
    )
    assert list(status.numbers) == [100, 1000]
    curves = growth.commands(LARGE_STUDY.read_text(encoding="utf-8"))
    assert [curve.name for curve in curves] == ["h2h plan", "h2h status", "h2h report"]
    assert all(list(curve.numbers) == [100, 1000, 10_000] for curve in curves)
    with pytest.raises(SystemExit, match="no table"):
        growth.commands("nothing here")


@pytest.mark.slow
def test_the_time_of_a_step_grows_with_members_and_length(growth: ModuleType) -> None:
    size = growth.SIZES[0]
    members = growth.curve("members", size.name, {n: (size, n) for n in (1, 16)}, rounds=5)
    assert list(members.numbers) == [1, 16]
    # Less than in proportion, which is the purpose of stacks.
    assert members.processor[0] < members.processor[1] < 12 * members.processor[0]
    (length,) = (curve for curve in growth.steps(5, 32, {}) if curve.panel == "length")
    assert list(length.numbers) == [4, 8, 16, 32]
    assert length.processor[-1] > 1.5 * length.processor[0]


def test_preparation_never_uses_a_cache(growth: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare, cached = growth.prepare, []

    def recorded(config: Any, cache: Path) -> Any:
        cached.append(cache.exists())
        return prepare(config, cache)

    monkeypatch.setattr(growth, "prepare", recorded)
    file = tmp_path / "pairs.tsv"
    # Letters instead of digits, so that no two normalised sentences are equal.
    words = ["".join(chr(97 + int(digit)) for digit in f"{n:05}") for n in range(3000)]
    file.write_text("".join(f"a {word} b\tc {word} d\n" for word in words))
    curve = growth.preparing(file, [300, 3000])
    assert list(curve.numbers) == [300, 3000]
    assert curve.processor[1] > 2 * curve.processor[0]
    assert cached == [False] * 5
    with pytest.raises(SystemExit, match="has 3,000 pairs; --largest 3000"):
        growth.preparing(file, [4000])


def test_every_panel_is_drawn_with_its_exponents(growth: ModuleType) -> None:
    curves = [
        growth.Curve("members", "small", [1, 2, 4], [1, 2, 4], [1, 2, 4]),
        growth.Curve("members", "large", [1, 2], [5, 10], [5, 10]),
        growth.Curve("runs", "h2h plan", [1, 10], [1, 1], [1, 1]),
    ]
    members, runs = growth.growth_figure(curves).axes
    assert [members.get_title(loc="left"), runs.get_title(loc="left")] == [
        growth.PANELS["members"],
        growth.PANELS["runs"],
    ]
    words = [text.get_text() for text in members.get_legend().get_texts()]
    assert words == ["small\nexponent 1.00 ± 0.00", "large\nexponent 1.00 ± 0.00"]
    assert (members.get_xscale(), members.get_yscale()) == ("log", "log")
