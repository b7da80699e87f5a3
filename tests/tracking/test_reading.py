"""A real MLflow server, and scores of any code for ``h2h judge``."""

import shutil
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from mlflow import MlflowClient

from headtohead.cli import main
from headtohead.errors import HeadToHeadError
from headtohead.tracking.reading import experiment_table
from headtohead.tracking.serving import server, study_links
from headtohead.tracking.shipping import ship
from headtohead.tracking.store import open_store
from made import free_port

MakeExperiment = Callable[..., Path]
SCORES = {"base": [0.80, 0.82, 0.81, 0.79], "new": [0.85, 0.86, 0.855, 0.84]}


@pytest.mark.slow
def test_a_study_is_shipped_to_a_server(make_experiment: MakeExperiment, tmp_path: Path, store_uri: str) -> None:
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    folder = make_experiment(axes={"positional": ["rotary"]})
    # As on a remote server, artifacts are uploaded to the server instead of written directly.
    with server(store_uri, port, "--artifacts-destination"):
        assert ship(folder, address).shipped == 1
        assert ship(folder, address).unchanged == 1
        client = MlflowClient(address)
        experiment = client.get_experiment_by_name("quickstart")
        assert experiment.artifact_location.startswith("mlflow-artifacts:")
        (run,) = client.search_runs([experiment.experiment_id])
        assert len(client.list_artifacts(run.info.run_id, "images")) == 2 * 3 * 2
        (directory,) = (path.parent for path in folder.glob("*/run.json"))
        back = Path(client.download_artifacts(run.info.run_id, "run", dst_path=str(tmp_path)))
        for file in ("run.json", "metrics.jsonl", "attention/maps.safetensors", "translations.tsv"):
            assert (back / file).read_bytes() == (directory / file).read_bytes()
        link = study_links(address)["quickstart"]
        assert link.startswith(f"{address}/#/experiments/{experiment.experiment_id}/runs?")
        with urllib.request.urlopen(address, timeout=20) as page:
            assert b"<title>MLflow</title>" in page.read()
        with pytest.raises(HeadToHeadError, match="is in use; choose another with --port"), server(store_uri, port):
            pass


@pytest.fixture(scope="module")
def foreign_store(tmp_path_factory: pytest.TempPathFactory, store_template: Path) -> str:
    """The URI of a store with an experiment that other code has logged, with curves of the metric."""
    uri = f"sqlite:///{shutil.copy(store_template, tmp_path_factory.mktemp('other') / 'other.db')}"
    client = open_store(uri, create=False).client
    experiment = client.create_experiment("sweep")
    for variant, scores in SCORES.items():
        for seed, score in enumerate(scores):
            run = client.create_run(experiment, run_name=f"{variant}-{seed}").info.run_id
            client.log_param(run, "arch", variant)
            client.log_param(run, "seed", seed)
            for step in (1, 2):
                client.log_metric(run, "val/accuracy", score * step / 2, step=step)
            client.set_terminated(run)
    crashed = client.create_run(experiment, run_name="crashed").info.run_id
    client.log_param(crashed, "arch", "new")
    client.log_param(crashed, "seed", 9)
    client.set_terminated(crashed, status="FAILED")
    return uri


def _judge(*arguments: str) -> Any:
    return CliRunner().invoke(main, ["judge", *arguments])


def test_runs_of_other_code_are_judged_by_the_last_step(foreign_store: str) -> None:
    arguments = ("--experiment", "sweep", "--baseline", "base", "--variant", "arch", "--metric", "val/accuracy")
    result = _judge(foreign_store, *arguments)
    assert result.exit_code == 0, result.output
    assert "baseline base: 0.8050" in result.output
    assert "row 1 (FAILED)" in result.output


def test_bad_stores_and_experiments_are_one_line(foreign_store: str, tmp_path: Path) -> None:
    for store, *experiment in (
        (foreign_store, "--experiment", "swep"),
        (foreign_store,),
        (f"sqlite:///{tmp_path / 'none.db'}", "--experiment", "sweep"),
    ):
        result = _judge(store, *experiment, "--baseline", "base")
        assert (result.exit_code, len(result.output.splitlines())) == (2, 1)


@pytest.mark.slow
def test_runs_of_headtohead_are_judged_like_their_report(make_experiment: MakeExperiment, store_uri: str) -> None:
    ship(make_experiment(seeds=(1, 2, 3, 4), axes={"positional": ["sinusoidal", "none"]}), store_uri)
    assert sorted(experiment_table(store_uri, "quickstart", None)["variant"].unique()) == ["none", "sinusoidal"]
    result = _judge(store_uri, "--experiment", "quickstart", "--baseline", "sinusoidal", "--metric", "test/exact_match")
    assert result.exit_code == 1, result.output
    assert result.output.splitlines()[-1].split()[-2:] == ["worse", "1"]
