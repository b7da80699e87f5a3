"""Measure a pitfall of a recipe or of a small configuration."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headtohead.config.builder import resolve
from headtohead.testing.checks.entries import recipe_config
from headtohead_notebooks.pitfalls import MEASUREMENTS
from headtohead_notebooks.pitfalls.case import Case

Measure = Callable[..., dict[str, float]]


@pytest.fixture(scope="session")
def recipe(cache: Path) -> Measure:
    """Return a function that measures a pitfall of a recipe."""

    def measure(pitfall: str, name: str, *overrides: str) -> dict[str, float]:
        return MEASUREMENTS[pitfall](Case(recipe_config(name, overrides), cache))

    return measure


@pytest.fixture(scope="session")
def variant(cache: Path) -> Measure:
    """Return a function that measures a pitfall of a small configuration, given as in an experiment file."""

    def measure(pitfall: str, **sections: Any) -> dict[str, float]:
        raw = {
            "data": {"dataset": "notebook-en-de", "normalise": "none", **sections.pop("data", {})},
            "model": {"d_model": 16, "heads": 2, "layers": 1, "d_ff": 32},
            "train": {"epochs": 1},
        }
        return MEASUREMENTS[pitfall](Case(resolve(raw | sections), cache))

    return measure


@pytest.fixture(scope="session")
def spanish(real: Callable[[str], Path]) -> Path:
    """Return the real file of English and Spanish pairs, or skip."""
    return real("eng-spa.manythings-2019-07-21.2col.tsv.xz")
