"""The best run's model in MLflow's registry translates like the run."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlflow
import pytest
from mlflow import MlflowClient

import headtohead as h2h
from made.study import Study

pytestmark = pytest.mark.slow


def test_the_best_run_is_registered_and_translates_like_the_run(
    undisturbed: Study,
    h2h_here: Callable[..., Any],
    tmp_path: Path,
    store_template: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("H2H_CACHE", str(undisturbed.cache))
    uri = f"sqlite:///{shutil.copyfile(store_template, tmp_path / 'mlflow.db')}"
    options = ("--runs", str(shutil.copytree(undisturbed.runs, tmp_path / "runs")), "--register", "toy")
    for version, command in enumerate(("run", "run"), 1):
        done = h2h_here(
            *(tmp_path, command, str(undisturbed.file), *options),
            H2H_CACHE=str(undisturbed.cache),
            MLFLOW_TRACKING_URI=uri,
        )
        assert f"registered: models:/toy/{version}\n" in done.stdout, done.stderr
    done = h2h_here(tmp_path, "run", str(undisturbed.file), *options, "--no-tracking")
    assert done.stderr == "h2h: --register requires MLflow; leave out --no-tracking\n"
    mlflow.set_tracking_uri(uri)
    mlflow.set_registry_uri(uri)
    model = mlflow.pyfunc.load_model("models:/toy/1")
    registered = MlflowClient(uri).get_model_version("toy", "1")
    best = min(undisturbed.directories(), key=lambda run: undisturbed.scores()[run.name]["valid/loss"])
    assert MlflowClient(uri).get_run(registered.run_id).data.tags["h2h.directory"] == best.name
    sentences = ["the cat sees a dog", "you do not read the old book"]
    assert model.predict(sentences) == h2h.load(best).translate(sentences)
    assert str(model.metadata.signature.inputs) == "[string (required)]"
    assert len(model.input_example) == 2
