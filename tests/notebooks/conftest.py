from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from headtohead.plugins.registry import current
from headtohead.schema.run_config import RunConfig
from headtohead_notebooks.page.descriptions import NOTEBOOKS, Notebook
from headtohead_notebooks.page.measured_pitfalls import MeasuredPitfall, measure_notebook


def _load(stem: str) -> ModuleType:
    name = f"headtohead_test_{stem}"
    if name not in sys.modules:
        file = Path(__file__).parents[1] / "report" / f"{stem}.py"
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


@pytest.fixture(scope="session")
def made() -> ModuleType:
    """The module that writes invented studies."""
    return _load("study")


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
