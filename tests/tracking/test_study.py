"""A study in MLflow: its runs flat in one experiment, its own run in the index."""

from __future__ import annotations

import base64
import json
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from mlflow import MlflowClient

from headtohead.tracking.shipping import ship
from headtohead.tracking.view import TAG

MakeExperiment = Callable[..., Path]
AXES = {"positional": ["rotary", "none"]}


@pytest.fixture(scope="module")
def study(made: ModuleType, tmp_path_factory: pytest.TempPathFactory, store_template: Path) -> MlflowClient:
    """A study that was shipped, for tests that change nothing."""
    root = tmp_path_factory.mktemp("study")
    store_uri = f"sqlite:///{shutil.copyfile(store_template, root / 'mlflow.db')}"
    folder = made.write_study(root / "runs", made.Study(seeds=(1, 2), axes=AXES, states={("none", 2): "DIVERGED"}))
    report = folder.parent.parent / "reports/quickstart"
    (report / "figures").mkdir(parents=True)
    (report / "answer.json").write_text(json.dumps({"answer": "Rotary is better."}))
    (report / "report.md").write_text("# Which?\n\n**Rotary is better.**\n\n![seeds](x.svg)\\\nA caption.\n\nA note.")
    (report / "index.html").write_text("<p>Rotary is better.</p>")
    (report / "figures/forest.svg").write_text("<svg/>")
    ship(folder, store_uri)
    return MlflowClient(store_uri)


@pytest.mark.slow
def test_runs_are_flat_and_point_to_the_study_in_the_index(study: MlflowClient) -> None:
    experiment = study.get_experiment_by_name("quickstart")
    index = study.get_experiment_by_name("headtohead studies")
    (own,) = study.search_runs([index.experiment_id])
    runs = study.search_runs([experiment.experiment_id])
    assert len(runs) == 4
    assert {run.data.tags["mlflow.parentRunId"] for run in runs} == {own.info.run_id}


def test_the_experiment_opens_with_the_question_and_its_views(study: MlflowClient) -> None:
    tags = study.get_experiment_by_name("quickstart").tags
    first = tags["mlflow.note.content"].partition("\n")[0]
    assert first == ("**Which positional encoding, which attention style, which mask?** Rotary is better.")
    assert f"{TAG}study" in tags
    assert tags["mlflow.experiment.primaryMetric.name"] == "test/exact_match"


def test_the_study_tells_its_states_its_answer_and_carries_plan_and_report(study: MlflowClient) -> None:
    index = study.get_experiment_by_name("headtohead studies")
    (own,) = study.search_runs([index.experiment_id])
    assert (own.info.run_name, own.info.status) == ("quickstart", "FINISHED")
    assert own.data.tags["h2h.states"] == "3 DONE, 1 DIVERGED"
    assert own.data.tags["h2h.answer"] == "Rotary is better."
    note = own.data.tags["mlflow.note.content"]
    assert "**Rotary is better.**" in note
    assert "x.svg" not in note
    assert "A caption." not in note
    assert "A note." in note
    names = {file.path for file in study.list_artifacts(own.info.run_id)}
    assert names == {"experiment.json", "report", "figures"}


@pytest.mark.slow
def test_an_unfinished_study_is_running_until_the_rest_is_shipped(
    make_experiment: MakeExperiment, store_uri: str
) -> None:
    folder = make_experiment(seeds=(1, 2), axes=AXES, states={("none", 2): "PLANNED"})
    report = ship(folder, store_uri)
    assert (report.shipped, report.waiting) == (3, 1)
    client = MlflowClient(store_uri)
    index = client.get_experiment_by_name("headtohead studies")
    (own,) = client.search_runs([index.experiment_id])
    assert own.info.status == "RUNNING"


@pytest.mark.slow
def test_runs_of_an_earlier_plan_stay_but_no_view_shows_them(make_experiment: MakeExperiment, store_uri: str) -> None:
    folder = make_experiment(axes=AXES)
    ship(folder, store_uri)
    whole = (folder / "experiment.json").read_text()
    narrower = json.loads(whole)
    narrower["runs"].pop()
    for plan, tags in [(json.dumps(narrower), ["no", "yes"]), (whole, ["yes", "yes"])]:
        (folder / "experiment.json").write_text(plan)
        ship(folder, store_uri)
        client = MlflowClient(store_uri)
        experiment = client.get_experiment_by_name("quickstart")
        runs = client.search_runs([experiment.experiment_id])
        assert sorted(run.data.tags["h2h.in_plan"] for run in runs) == tags
        packed = json.loads(experiment.tags[f"{TAG}study"])["state"].removeprefix("deflate;")
        state = json.loads(zlib.decompress(base64.b64decode(packed)))
        assert len(client.search_runs([experiment.experiment_id], state["searchFilter"])) == tags.count("yes")
