"""A study in MLflow: its runs flat in one experiment, its own run in the index."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from mlflow import MlflowClient

from headtohead.tracking.shipping import ship
from headtohead.tracking.view import TAG

MakeExperiment = Callable[..., Path]
AXES = {"positional": ["rotary", "none"]}


@pytest.fixture
def study(make_experiment: MakeExperiment, store_uri: str) -> MlflowClient:
    folder = make_experiment(seeds=2, axes=AXES, states={(1, 2): "DIVERGED"})
    report = folder.parent.parent / "reports/quickstart"
    (report / "figures").mkdir(parents=True)
    (report / "report.md").write_text("Rotary is better.")
    (report / "index.html").write_text("<p>Rotary is better.</p>")
    (report / "figures/forest.svg").write_text("<svg/>")
    ship(folder, store_uri)
    return MlflowClient(store_uri)


def test_runs_are_flat_and_point_to_the_study_in_the_index(study: MlflowClient) -> None:
    experiment = study.get_experiment_by_name("quickstart")
    index = study.get_experiment_by_name("headtohead studies")
    (own,) = study.search_runs([index.experiment_id])
    runs = study.search_runs([experiment.experiment_id])
    assert len(runs) == 4
    assert {run.data.tags["mlflow.parentRunId"] for run in runs} == {own.info.run_id}


def test_the_experiment_opens_with_the_question_and_its_views(study: MlflowClient) -> None:
    tags = study.get_experiment_by_name("quickstart").tags
    assert tags["mlflow.note.content"].startswith("**Which positional encoding")
    assert f"{TAG}study" in tags
    assert tags["mlflow.experiment.primaryMetric.name"] == "test/exact_match"


def test_the_study_tells_its_states_its_answer_and_carries_plan_and_report(
    study: MlflowClient,
) -> None:
    index = study.get_experiment_by_name("headtohead studies")
    (own,) = study.search_runs([index.experiment_id])
    assert (own.info.run_name, own.info.status) == ("quickstart", "FINISHED")
    assert own.data.tags["h2h.states"] == "3 DONE, 1 DIVERGED"
    note = own.data.tags["mlflow.note.content"]
    assert "Rotary is better." in note
    assert "`no-mask` (the decoder would see the target)" in note
    names = {file.path for file in study.list_artifacts(own.info.run_id)}
    assert names == {"experiment.json", "report", "figures"}


def test_an_unfinished_study_is_running_until_the_rest_is_shipped(
    make_experiment: MakeExperiment, store_uri: str
) -> None:
    folder = make_experiment(seeds=2, axes=AXES, unwritten=1)
    report = ship(folder, store_uri)
    assert (report.shipped, report.waiting) == (3, 1)
    client = MlflowClient(store_uri)
    index = client.get_experiment_by_name("headtohead studies")
    (own,) = client.search_runs([index.experiment_id])
    assert own.info.status == "RUNNING"


def test_two_studies_in_one_store_stay_apart(
    make_experiment: MakeExperiment, store_uri: str
) -> None:
    for name in ("one", "two"):
        ship(make_experiment(name=name, seeds=1, axes=AXES), store_uri)
    client = MlflowClient(store_uri)
    index = client.get_experiment_by_name("headtohead studies")
    names = {run.info.run_name for run in client.search_runs([index.experiment_id])}
    assert names == {"one", "two"}
