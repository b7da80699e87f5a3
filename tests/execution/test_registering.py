"""The best run's model in MLflow's registry translates like the run."""

import shutil
from pathlib import Path

import mlflow
import pytest
from mlflow import MlflowClient

import headtohead as h2h
from made import error_line
from made.study import Study

pytestmark = pytest.mark.slow


def test_the_best_run_is_registered_and_translates_like_the_run(
    finished: Study, tmp_path: Path, store_template: Path
) -> None:
    uri = f"sqlite:///{shutil.copyfile(store_template, tmp_path / 'mlflow.db')}"
    options = ("tiny.yaml", "--register", "toy")
    for version in (1, 2):
        assert f"registered: models:/toy/{version}\n" in finished.h2h("run", *options).stdout
    refused = error_line(finished.h2h("run", *options, "--no-tracking", code=2))
    assert refused == "--register requires MLflow; leave out --no-tracking"
    mlflow.set_tracking_uri(uri)
    mlflow.set_registry_uri(uri)
    model = mlflow.pyfunc.load_model("models:/toy/1")
    registered = MlflowClient(uri).get_model_version("toy", "1")
    best = min(finished.directories(), key=lambda run: finished.scores()[run.name]["valid/loss"])
    assert MlflowClient(uri).get_run(registered.run_id).data.tags["h2h.directory"] == best.name
    sentences = ["the cat sees a dog", "you do not read the old book"]
    assert model.predict(sentences) == h2h.load(best).translate(sentences)
    assert str(model.metadata.signature.inputs) == "[string (required)]"
    assert len(model.input_example) == 2
