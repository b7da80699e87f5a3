"""A round trip over HTTP: a real MLflow server on this machine that also stores the artifacts."""

from __future__ import annotations

import json
import socket
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient

from headtohead.errors import HeadToHeadError
from headtohead.tracking import serving
from headtohead.tracking.retrieval import materialise
from headtohead.tracking.serving import Server, study_links
from headtohead.tracking.shipping import ship

pytestmark = pytest.mark.slow

MakeExperiment = Callable[..., Path]


@pytest.fixture
def server(store_uri: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    # As on a remote server, artifacts are uploaded to the server instead of written directly.
    plain = serving._command
    monkeypatch.setattr(
        serving,
        "_command",
        lambda uri, port: [
            part.replace("--default-artifact-root", "--artifacts-destination") for part in plain(uri, port)
        ],
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with Server(store_uri, port) as running:
        yield running


def test_a_study_is_shipped_to_a_server_and_restored(
    make_experiment: MakeExperiment, tmp_path: Path, server: Server
) -> None:
    folder = make_experiment(seeds=1, axes={"positional": ["rotary"]})
    assert ship(folder, server.address).shipped == 1
    assert ship(folder, server.address).unchanged == 1

    client = MlflowClient(server.address)
    experiment = client.get_experiment_by_name("quickstart")
    assert experiment.artifact_location.startswith("mlflow-artifacts:")
    (run,) = client.search_runs([experiment.experiment_id])
    assert len(client.list_artifacts(run.info.run_id, "images")) == 2 * 3 * 2
    (output,) = run.outputs.model_outputs
    assert client.get_logged_model(output.model_id).status == "READY"

    back = materialise(server.address, "quickstart", tmp_path / "back")
    name = json.loads((folder / "experiment.json").read_text())["runs"][0]["directory"]
    for file in ("run.json", "metrics.jsonl", "attention/maps.safetensors", "translations.tsv"):
        assert (back / name / file).read_bytes() == (folder / name / file).read_bytes()

    (link,) = study_links(server.address, server.address).values()
    assert link.startswith(f"{server.address}/#/experiments/{experiment.experiment_id}/runs?")
    with urllib.request.urlopen(server.address, timeout=20) as page:
        assert b"<title>MLflow</title>" in page.read()

    with pytest.raises(HeadToHeadError, match="is in use; choose another with --port"):
        Server(server.uri, server.port).__enter__()
