from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headtohead.plugins.registry import current
from headtohead.schema.run_config import RunConfig
from headtohead_notebooks.page.descriptions import NOTEBOOKS, Notebook
from headtohead_notebooks.page.measured_pitfalls import MeasuredPitfall, measure_notebook


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder without files of sentence pairs."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def measurements(cache: Path) -> Callable[[Notebook], tuple[RunConfig, tuple[MeasuredPitfall, ...]]]:
    """Return the function that measures a notebook without the file of notebook 3, once per session."""
    return functools.cache(lambda notebook: measure_notebook(notebook, current(), cache, None))


@pytest.fixture(scope="session")
def measured(measurements: Callable[..., Any]) -> Callable[[str], dict[str, MeasuredPitfall]]:
    """Return the function from a recipe to its measured pitfalls by name."""

    def by_name(recipe: str) -> dict[str, MeasuredPitfall]:
        notebook = next(notebook for notebook in NOTEBOOKS if notebook.recipe == recipe)
        _, pitfalls = measurements(notebook)
        return {measured.pitfall.name: measured for measured in pitfalls}

    return by_name
