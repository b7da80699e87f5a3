"""Studies of some hundred runs, made by the generator of the benchmarks."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

MakeStudy = Callable[..., Path]

# MLflow's own use of its libraries, as in tests/tracking.
MLFLOWS_OWN = ("ignore:The ``noload`` loader strategy",)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Warnings are errors, except those that MLflow causes by itself."""
    if Path(__file__).parent in item.path.parents:
        for warning in MLFLOWS_OWN:
            item.add_marker(pytest.mark.filterwarnings(warning))


@pytest.fixture(scope="session")
def benchmark() -> Iterator[Callable[[str], ModuleType]]:
    """Return a function that loads a script of ``benchmarks/``, which finds its neighbours."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
        yield importlib.import_module


@pytest.fixture(scope="session")
def many_runs() -> ModuleType:
    """The module ``benchmarks/many_runs.py``, which is part of no package."""
    path = Path(__file__).parents[2] / "benchmarks" / "many_runs.py"
    spec = importlib.util.spec_from_file_location("many_runs", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session", autouse=True)
def own_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("H2H_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        yield


@pytest.fixture(scope="session")
def make_study(many_runs: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> MakeStudy:
    """Return a function that writes a study of two models, its learning rates and its seeds."""
    few = many_runs.Shape({"positional": ["sinusoidal", "rotary"]}, seeds=2, steps=20)
    trained = many_runs.train(tmp_path_factory.mktemp("trained"), few)

    def make(folder: Path, rates: int, seeds: int, watcher: Any = None, workers: int | None = None) -> Path:
        lr = [0.001 * (1 + n) for n in range(rates)]
        shape = many_runs.Shape(few.axes | {"train.lr": lr}, seeds, steps=20)
        return many_runs.make_study(folder, shape, trained, watcher, workers)

    return make
