"""Recipes and small configurations as cases, with a cache for the session."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headtohead.config.builder import resolve
from headtohead.plugins.registry import current
from headtohead.testing.checks.entries import recipe_config
from headtohead_notebooks.pitfalls.case import Case
from headtohead_notebooks.pitfalls.facts import Fact
from headtohead_notebooks.pitfalls.measurements import measure_pitfall

SPANISH = "eng-spa.manythings-2019-07-21.2col.tsv.xz"


@pytest.fixture(scope="session")
def recipe(cache: Path) -> Callable[..., Case]:
    """Return a function that makes the case of a recipe, with overrides."""

    def make(name: str, *overrides: str) -> Case:
        return Case(recipe_config(name, current(), overrides), current(), cache)

    return make


@pytest.fixture(scope="session")
def variant(cache: Path) -> Callable[..., Case]:
    """Return a function that makes the case of a small configuration, given as in an experiment file."""

    def make(**sections: Any) -> Case:
        raw = {
            "data": {"dataset": "notebook-en-de", "normalise": "none"},
            "model": {"d_model": 16, "heads": 2, "layers": 1, "d_ff": 32},
            "train": {"epochs": 1},
        }
        for name, section in sections.items():
            raw[name] = {**raw.get(name, {}), **section} if isinstance(section, dict) else section
        return Case(resolve(raw, current()), current(), cache)

    return make


@pytest.fixture(scope="session")
def facts() -> Callable[[str, Case], list[Fact]]:
    """Return the function that measures one pitfall."""
    return measure_pitfall


@pytest.fixture(scope="session")
def spanish() -> Path:
    """Return the real file of English and Spanish pairs, or skip."""
    beside = Path(__file__).resolve().parents[3] / "shared" / "data"
    path = Path(os.environ.get("H2H_TEST_DATA", beside)) / SPANISH
    if not path.is_file():
        pytest.skip(f"needs {SPANISH}: set H2H_TEST_DATA to the folder that holds it")
    return path
