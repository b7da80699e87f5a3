"""Studies written without training, and stores for them."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from made.fake_study import Study, write_study


@pytest.fixture
def make_experiment(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a study of one seed below ``tmp_path / "runs"``; arguments as of `Study`.

    Attention maps, of which MLflow gets images and pages, are only in studies with ``maps=True``.
    """

    def make(**changes: Any) -> Path:
        defaults = {"seeds": (1,), "weights": True, "maps": False}
        return write_study(tmp_path / "runs", Study(**(defaults | changes)))

    return make


@pytest.fixture
def store_uri(tmp_path: Path, store_template: Path) -> str:
    """The URI of an empty store beside ``tmp_path / "runs"``."""
    return f"sqlite:///{shutil.copyfile(store_template, tmp_path / 'mlflow.db')}"


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep a tracking URI of the developer's shell away from the tests."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
