"""The model of the best run in MLflow, which ``mlflow.pyfunc.load_model`` loads from a file store and from a server."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mlflow
import pytest
from mlflow import MlflowClient
from mlflow.entities import LoggedModel

import headtohead
from headtohead.tracking.shipping import ship
from headtohead_mlflow import model as module
from headtohead_mlflow.serving import server
from made import free_port
from made.study import TINY, Study, own_positional

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
TEXT = {
    "question": "Which positions?",
    "base": {
        "model": {
            "architecture": "decoder-only",
            "d_model": 8,
            "heads": 2,
            "layers": 1,
            "d_ff": 16,
        },
        "train": {"steps": 5, "batch_tokens": 128},
    },
    "baseline": {"positional": "sinusoidal"},
    "seeds": 2,
}
TEXT_DATA = {"dataset": "text", "file": "novel.txt", "block": 8}
SEQUENCES = {"dataset": "mqar", "levels": ["16x2"], "alphabet": 16, "size": 60}
PROMPTS = ["the cat sat", "the dog"]
LOAD = """import json, sys
import mlflow
predictions = []
for uri, model, texts in json.loads(sys.argv[1]):
    mlflow.set_tracking_uri(uri)
    predictions.append(mlflow.pyfunc.load_model(model).predict(texts))
print(json.dumps(predictions))
"""


def _load(folder: Path, *models: tuple[str, str, Sequence[str]]) -> list[Any]:
    """Load models in one process, outside of the project, and return their predictions.

    ``models`` are the URI of the store, the identifier of the model, and the texts.
    """
    away = {name: value for name, value in os.environ.items() if not name.startswith("H2H_")}
    given = [(uri, f"models:/{model_id}", texts) for uri, model_id, texts in models]
    command = [sys.executable, "-c", LOAD, json.dumps(given)]
    environment = {**away, "H2H_CACHE": str(folder)}
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env=environment, timeout=300
    )
    assert done.returncode == 0, done.stderr
    predictions: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return predictions


def _models(uri: str, name: str) -> list[LoggedModel]:
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name(name)
    return list(client.search_logged_models([experiment.experiment_id]))


def _best(study: Study) -> Path:
    """Return the finished run with the lowest validation loss."""

    def loss(run: Path) -> float:
        return float(json.loads((run / "results.json").read_text())["metrics"]["valid/loss"])

    return min((path.parent for path in study.experiment.glob("*/results.json")), key=loss)


@pytest.fixture
def trained(
    tmp_path: Path, cache: Path, h2h_here: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Study]:
    """Return a function that trains a study without logging it."""
    monkeypatch.setenv("H2H_CACHE", str(cache))

    def train(
        content: Any,
        data: Any = None,
        plugin: str | None = None,
        name: str = "tiny",
        **changes: Any,
    ) -> Study:
        (tmp_path / "pyproject.toml").touch()
        (tmp_path / "novel.txt").write_text("the cat sat on the mat and the dog sat. " * 200)
        study = Study(tmp_path, cache, h2h_here, content, name)
        base = {} if data is None else {"data": data}
        study.write(plugin=plugin, base=base, **changes)
        done = h2h_here(tmp_path, "run", str(study.file), "--no-tracking", H2H_CACHE=str(cache))
        assert done.returncode == 0, done.stderr
        return study

    return train


def test_translations_of_the_logged_model_are_those_of_the_run_on_sqlite_and_on_a_server(
    trained: Callable[..., Study],
    tmp_path: Path,
    store_uri: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    study, uri = trained(TINY), store_uri
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)  # for the functions of MLflow without a client
    texts = ["the cat sees a dog", "she eats"]
    expected = headtohead.load(_best(study)).translate(texts)
    other = tmp_path / "other.db"
    shutil.copyfile(tmp_path / "mlflow.db", other)
    assert ship(study.experiment, uri).complete
    (model,) = _models(uri, "tiny")
    client = MlflowClient(uri)
    run = client.get_run(model.source_run_id)
    assert run.data.tags["h2h.directory"] == _best(study).name
    assert f'load_model("models:/{model.model_id}")' in run.data.tags["mlflow.note.content"]
    assert f'load_model("models:/{model.model_id}")' in model.tags["mlflow.note.content"]
    (parent,) = client.search_runs(
        [client.get_experiment_by_name("headtohead studies").experiment_id]
    )
    assert f'load_model("models:/{model.model_id}")' in parent.data.tags["mlflow.note.content"]
    # MLflow does not wrap the lines of a block, so that a narrow window would cut the whole description.
    assert "```" not in parent.data.tags["mlflow.note.content"]
    info = mlflow.models.get_model_info(f"models:/{model.model_id}")
    assert [kind.name for kind in info.signature.inputs.input_types()] == ["string"]
    assert info.saved_input_example_info["artifact_path"] == "input_example.json"
    ship(study.experiment, uri)
    assert [other.model_id for other in _models(uri, "tiny")] == [model.model_id]
    port = free_port()
    with server(f"sqlite:///{other}", port, "--serve-artifacts"):
        address = f"http://127.0.0.1:{port}"
        assert ship(study.experiment, address).complete
        (served,) = _models(address, "tiny")
        logged = (uri, model.model_id, texts), (address, served.model_id, texts)
        assert _load(tmp_path, *logged) == [expected, expected]


def test_models_of_texts_continue_prompts_and_those_of_sequences_return_labels(
    trained: Callable[..., Study], tmp_path: Path, store_uri: str
) -> None:
    novel = trained(TEXT, TEXT_DATA, name="novel")
    sequences = trained(TEXT, SEQUENCES, name="sequences")
    probe = _first_probe(sequences)
    continued = [headtohead.load(_best(novel)).continue_text(text, 40) for text in PROMPTS]
    labels = [headtohead.load(_best(sequences)).label(probe)]
    logged = []
    for study, texts in ((novel, PROMPTS), (sequences, [probe])):
        assert ship(study.experiment, store_uri).complete
        (model,) = _models(store_uri, study.name)
        logged.append((store_uri, model.model_id, texts))
    assert _load(tmp_path, *logged) == [continued, labels]


def _first_probe(study: Study) -> str:
    """Return the first probe of a study, a sequence."""
    probe = json.loads((study.experiment / "experiment.json").read_text())["probes"][0]
    return str(probe["source"] or probe["target"])


def test_a_plugins_entry_and_large_weights_are_explained(
    trained: Callable[..., Study],
    tmp_path: Path,
    store_uri: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    study = trained(TINY, plugin=own_positional("pass"), baseline={"positional": "own"})
    uri = store_uri
    monkeypatch.setattr(module, "MAX_BYTES", 100)
    assert ship(study.experiment, uri).complete
    assert _models(uri, "tiny") == []
    client = MlflowClient(uri)
    (parent,) = client.search_runs(
        [client.get_experiment_by_name("headtohead studies").experiment_id]
    )
    assert "no model in MLflow: its weights have 0 MB" in parent.data.tags["mlflow.note.content"]
    monkeypatch.setattr(module, "MAX_BYTES", 50_000_000)
    ship(study.experiment, uri)
    (model,) = _models(uri, "tiny")
    with pytest.raises(AssertionError, match=r"HeadToHeadError: .*own"):
        _load(tmp_path, (uri, model.model_id, ["she eats"]))


def test_the_model_of_a_retrained_run_replaces_that_of_the_earlier_training(
    trained: Callable[..., Study],
    h2h_here: Callable[..., Any],
    tmp_path: Path,
    cache: Path,
    store_uri: str,
) -> None:
    study, uri = trained(TINY), store_uri
    assert ship(study.experiment, uri).complete
    (earlier,) = _models(uri, "tiny")
    command = ("run", str(study.file), "--no-tracking", "--fresh")
    done = h2h_here(tmp_path, *command, H2H_CACHE=str(cache))
    assert done.returncode == 0, done.stderr
    assert ship(study.experiment, uri).complete
    (model,) = _models(uri, "tiny")
    assert model.source_run_id != earlier.source_run_id
    note = MlflowClient(uri).get_run(model.source_run_id).data.tags["mlflow.note.content"]
    assert f'load_model("models:/{model.model_id}")' in note
