"""Measure a pitfall of a recipe or of a small configuration."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headtohead.config.builder import resolve
from headtohead.plugins.registry import current
from headtohead.testing.checks.entries import recipe_config
from headtohead_notebooks.pitfalls import MEASUREMENTS
from headtohead_notebooks.pitfalls.case import Case

SPANISH = "eng-spa.manythings-2019-07-21.2col.tsv.xz"

Measure = Callable[..., dict[str, float]]


@pytest.fixture(scope="session")
def recipe(cache: Path) -> Measure:
    """Return a function that measures a pitfall of a recipe."""

    def measure(pitfall: str, name: str, *overrides: str) -> dict[str, float]:
        return MEASUREMENTS[pitfall](Case(recipe_config(name, current(), overrides), current(), cache))

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
        return MEASUREMENTS[pitfall](Case(resolve(raw | sections, current()), current(), cache))

    return measure


@pytest.fixture(scope="session")
def spanish() -> Path:
    """Return the real file of English and Spanish pairs, or skip."""
    beside = Path(__file__).resolve().parents[3] / "shared" / "data"
    path = Path(os.environ.get("H2H_TEST_DATA", beside)) / SPANISH
    if not path.is_file():
        pytest.skip(f"needs {SPANISH}: set H2H_TEST_DATA to the folder that holds it")
    return path
