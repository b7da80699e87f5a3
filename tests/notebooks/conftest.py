from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from headtohead.plugins.registry import current
from headtohead.tools.notebooks.known import NOTEBOOKS
from headtohead.tools.notebooks.measured import Measured, measure


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
    """The module that writes made-up studies."""
    return _load("study")


@pytest.fixture(scope="session")
def paths() -> ModuleType:
    """The module that writes made-up path experiments."""
    return _load("path_study")


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where evidence is kept, so that a session measures it once."""
    return tmp_path_factory.mktemp("evidence")


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache without any file of sentence pairs."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def measured(kept: Path, cache: Path) -> Callable[[str], dict[str, Measured]]:
    """Return a notebook's pitfalls by name, measured without the file of notebook 3."""

    def of(recipe: str) -> dict[str, Measured]:
        notebook = next(one for one in NOTEBOOKS if one.recipe == recipe)
        _, found = measure(notebook, current(), cache, kept, None)
        return {one.pitfall.name: one for one in found}

    return of
