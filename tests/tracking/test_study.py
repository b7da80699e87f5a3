"""A study in MLflow: its runs flat in one experiment, its own run in the index."""

import base64
import json
import math
import re
import shutil
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from mlflow import MlflowClient
from safetensors.numpy import load_file, save_file

from headtohead.plugin import Answer, AnsweredContrast
from headtohead.storage.leases import Lease
from headtohead.tracking.shipping import Shipper, ship
from headtohead.tracking.study import TrackedStudy
from headtohead_mlflow.groups import Groups
from headtohead_mlflow.study_page import CHARTS
from headtohead_mlflow.view import TAG
from made import case_table
from made.fake_study import Study, edit, record_checksums, write_study

MakeExperiment = Callable[..., Path]
AXES = {"positional": ["rotary", "none"]}
ROTARY = AnsweredContrast(
    "rotary instead of no positions",
    "With rotary instead of no positions, exact match improves: +0.03 (+0.01 to +0.05).",
    "better",
    "better",
    "test/exact_match",
    0.03,
    (0.01, 0.05),
    adjusted_p=0.002,
    seeds=6,
)
ANSWER = Answer(
    text="Rotary is better.",
    limits="What limits this answer: training ended before any variant levelled off.",
    rows=[
        {
            "contrast": "rotary instead of no positions",
            "difference": "+0.03\n+0.01 to +0.05",
            "verdict": "better",
        }
    ],
    cautions=[("warning", "A margin of 0.")],
    setup="Set-up: width 16.",
    scores={"none": 0.4, "rotary": 0.93333333},
    contrasts=[ROTARY],
    verdicts={"none": "worse"},
    report={},
)


QUESTION = "Question: Which positional encoding, which attention style, which mask?"


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory, store_template: Path) -> MlflowClient:
    """A study that was shipped, for tests that change nothing."""
    root = tmp_path_factory.mktemp("study")
    store_uri = f"sqlite:///{shutil.copyfile(store_template, root / 'mlflow.db')}"
    folder = write_study(
        root / "runs", Study(seeds=(1, 2), axes=AXES, states={("none", 2): "DIVERGED"})
    )
    (root / "index.html").write_text("<p>Rotary is better.</p>")
    (root / "contrasts.svg").write_text("<svg/>")
    report = {
        "index.html": root / "index.html",
        "figures/contrasts.svg": root / "contrasts.svg",
    }
    ship(folder, store_uri, answer=replace(ANSWER, report=report))
    return MlflowClient(store_uri)


def test_the_experiment_opens_with_answer_and_question_and_its_views(study: MlflowClient) -> None:
    tags = study.get_experiment_by_name("quickstart").tags
    first = tags["mlflow.note.content"].partition("\n")[0]
    assert first == f"Rotary is better. {QUESTION}"
    for text in (ANSWER.limits, CHARTS):
        assert text in tags["mlflow.note.content"]
    packed = json.loads(tags[f"{TAG}study"])["state"].removeprefix("deflate;")
    state = json.loads(zlib.decompress(base64.b64decode(packed)))
    assert state["compareRunSections"][0]["name"] == "Rotary is better"
    assert tags["mlflow.experiment.primaryMetric.name"] == "test/exact_match"


def test_the_study_tells_its_states_its_answer_and_carries_plan_and_report(
    study: MlflowClient,
) -> None:
    index = study.get_experiment_by_name("headtohead studies")
    (own,) = study.search_runs([index.experiment_id])
    assert (own.info.run_name, own.info.status) == ("quickstart", "FINISHED")
    assert own.data.tags["h2h.states"] == "3 DONE, 1 DIVERGED"
    assert own.data.tags["h2h.answer"] == "Rotary is better."
    note = own.data.tags["mlflow.note.content"]
    answer, question, *_ = note.split("  \n")
    assert answer.startswith("Rotary is better. [attention of every variant](#/experiments/")
    assert question.startswith(QUESTION)
    assert own.data.params == {
        "positional": "rotary, without positions",
        "baseline": "rotary",
        "data": "toy-grammar, split iid",
        "metric": "test/exact_match",
    }
    assert f"/runs/{own.info.run_id}/artifacts/report/index.html?" in note
    figure = f"](get-artifact?path=figures/contrasts.svg&run_uuid={own.info.run_id})"
    experiment = study.get_experiment_by_name("quickstart")
    for page in (note, experiment.tags["mlflow.note.content"]):
        assert (
            f"[full report](#/experiments/{index.experiment_id}/runs/{own.info.run_id}/artifacts"
            in page.split("\n\n")[0 if page == note else 1]
        )
        assert f"{figure}\n\n" in page
    assert re.search(r"Best run by valid/loss, not by test scores: \[rotary · s[12]\]", note)
    assert "**warning:** A margin of 0.\n" in note
    assert "No difference shown: it contains 0" in note
    assert (
        "| contrast | difference | verdict |\n| --- | --- | --- |\n"
        "| rotary instead of no positions | +0.03 · +0.01 to +0.05 | better |" in note
    )
    assert "Set-up: width 16." in note
    assert (
        f"[attention of every variant](#/experiments/{index.experiment_id}/runs/{own.info.run_id}/artifacts"
        in note
    )
    names = {file.path for file in study.list_artifacts(own.info.run_id)}
    assert names == {"experiment.json", "report", "figures", "attention"}


@pytest.mark.slow
@pytest.mark.usefixtures("store_uri", "without_figures")
def test_a_decoder_only_study_has_its_own_metrics_and_maps(
    h2h_here: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "novel.txt").write_text("the cat sat on the mat and the dog sat on the cat. " * 100)
    assert h2h_here(tmp_path, "new-experiment", "text", "novel.txt").returncode == 0
    small = ("--seeds", "1", "--set", "train.steps=10", "--set", "data.block=8")
    for command in (("run", "novel.yaml", "--no-tracking", *small), ("sync",)):
        done = h2h_here(tmp_path, *command)
        assert done.returncode == 0, done.stderr
    client = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    experiment = client.get_experiment_by_name("novel")
    assert experiment.tags["mlflow.experiment.primaryMetric.name"] == "test/bits_per_byte"
    rows = pd.read_csv(tmp_path / "reports/novel/results.csv").set_index("title")
    runs = client.search_runs([experiment.experiment_id])
    assert len(runs) == len(rows) == 3
    for run in runs:
        title, seed = run.info.run_name.split(" · s")
        row = rows.loc[title]
        assert row["seed"] == int(seed)
        for metric in ("test/bits_per_byte", "valid/loss", "attention/decoder/entropy"):
            assert run.data.metrics[metric] == pytest.approx(row[metric])
        assert run.data.params["model.architecture"] == "decoder-only"
        images = client.list_artifacts(run.info.run_id, "images")
        assert {Path(image.path).name.partition("+")[0] for image in images} == {
            "weights~attention-decoder"
        }
        assert {file.path for file in client.list_artifacts(run.info.run_id)} == {
            "images",
            "run",
        }  # no translations


def test_main_contrasts_can_be_searched_and_data_are_listed(study: MlflowClient) -> None:
    index = study.get_experiment_by_name("headtohead studies")
    found = [
        study.search_runs(
            [index.experiment_id], f'metrics."diff/rotary-instead-of-no-positions" {test}'
        )
        for test in ("> 0.02", "> 0.04")
    ]
    assert [len(runs) for runs in found] == [1, 0]
    (own,) = found[0]
    metrics = own.data.metrics
    contrast = "rotary-instead-of-no-positions"
    numbers = [metrics[f"{name}/{contrast}"] for name in ("diff", "low", "high", "p")]
    assert numbers == [0.03, 0.01, 0.05, 0.002]
    assert {name for name in metrics if name.startswith("diff/")} == {f"diff/{contrast}"}
    assert (metrics["study/runs"], metrics["study/runs_done"], metrics["study/better"]) == (4, 3, 1)
    assert metrics["study/baseline"] == 0.933
    assert own.data.tags["h2h.verdicts"] == "1 better"
    (data,) = own.inputs.dataset_inputs
    assert data.dataset.name == "toy-grammar, split iid"
    experiment = study.get_experiment_by_name("quickstart")
    runs = study.search_runs([experiment.experiment_id])
    assert [run.data.tags["mlflow.parentRunId"] for run in runs] == [own.info.run_id] * 4
    assert {run.inputs.dataset_inputs[0].dataset.digest for run in runs} == {data.dataset.digest}
    assert (
        len({(run.data.params["variant"], run.data.tags["mlflow.runColor"]) for run in runs}) == 2
    )


def test_the_page_of_a_study_without_an_answer_says_why(
    make_experiment: MakeExperiment, store_uri: str
) -> None:
    folder = make_experiment(axes=AXES, states={("none", 1): "RUNNING"})

    def tags() -> dict[str, str]:
        client = MlflowClient(store_uri)
        index = client.get_experiment_by_name("headtohead studies")
        (own,) = client.search_runs([index.experiment_id])
        return dict(own.data.tags)

    shipper = Shipper(folder, uri=store_uri)
    with Lease(next(folder.glob("none-*"))):
        shipper.ship(is_last=False, is_live=True)
    assert tags()["h2h.answer"] == "No answer yet: 1 of 2 runs have a result"
    shipper.ship()
    assert tags()["h2h.answer"].endswith("runs have a result; h2h sync quickstart logs the answer")
    shipper.answer = ANSWER
    shipper.ship()
    assert tags()["h2h.answer"] == "Rotary is better."
    assert "Rotary is better." in tags()["mlflow.note.content"]
    shipper.ship(is_last=False, is_live=True)  # before the runs of a larger plan have results
    assert tags()["h2h.answer"].startswith("No answer yet")


@pytest.mark.slow
def test_a_study_with_fewer_probe_sentences_than_its_runs_is_logged(
    make_experiment: MakeExperiment, store_uri: str
) -> None:
    """Probe sentences do not belong to a run's hash, so that finished runs keep the earlier sentences."""
    folder = make_experiment(axes=AXES, maps=True)
    first, *_ = json.loads((folder / "experiment.json").read_text())["probes"]
    edit(folder, probes=[first])
    assert ship(folder, store_uri, answer=ANSWER).complete
    experiment = MlflowClient(store_uri).get_experiment_by_name("quickstart")
    note = experiment.tags["mlflow.note.content"]
    assert re.search(r"images: 0: \[.*\]\(#.*/probe-0.html.*; 1: \[.*\]\(#.*/probe-1.html", note)


@pytest.mark.slow
def test_runs_of_an_earlier_plan_stay_but_no_view_shows_them(
    make_experiment: MakeExperiment, store_uri: str
) -> None:
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
        assert len(
            client.search_runs([experiment.experiment_id], state["searchFilter"])
        ) == tags.count("yes")


def test_runs_have_verdicts_and_differences_to_the_baseline_of_their_seed(
    study: MlflowClient,
) -> None:
    runs = study.search_runs([study.get_experiment_by_name("quickstart").experiment_id])
    found = {(run.data.params["variant"], run.data.params["seed"]): run for run in runs}
    own, baseline = found["without positions", "1"], found["rotary", "1"]
    ids = [run.info.run_id for run in (own, baseline)]
    assert own.data.tags["h2h.verdict"] == "worse (against the baseline)"
    for metric in ("test/exact_match", "valid/loss"):
        values = [
            {point.step: point.value for point in study.get_metric_history(run, metric)}
            for run in ids
        ]
        differences = {
            point.step: point.value for point in study.get_metric_history(ids[0], f"diff/{metric}")
        }
        first = min(differences)
        assert differences[first] == pytest.approx(values[0][first] - values[1][first]), metric
    assert len(differences) > 1
    for metric in ("test/exact_match", "valid/loss"):
        history = study.get_metric_history(ids[1], f"diff/{metric}")
        assert {point.value for point in history} == {0.0}, metric


def test_differences_are_those_to_the_baseline_on_the_same_data(
    make_experiment: MakeExperiment, store_uri: str
) -> None:
    folder = make_experiment(axes={"data": ["copy", "addition"], **AXES})
    ship(folder, store_uri)
    client, metric = MlflowClient(store_uri), "test/exact_match"
    runs = client.search_runs([client.get_experiment_by_name("quickstart").experiment_id])
    slugs = {run.run_hash: run.variant.slug for run in TrackedStudy.read(folder).runs()}
    found = {slugs[run.data.tags["h2h.run_hash"]]: run.data.metrics for run in runs}
    for data in ("copy", "addition"):
        own, baseline = (found[f"{data}-{name}"] for name in ("none", "rotary"))
        for name in (f"diff/{metric}", f"diff/positional/{metric}"):
            assert own[name] == own[metric] - baseline[metric]
            assert baseline[name] == 0
        assert f"diff/data/{metric}" not in found["addition-none"]


def test_differences_colours_and_groups_follow_a_changed_baseline_and_order(
    make_experiment: MakeExperiment, store_uri: str
) -> None:
    folder, client, metric = make_experiment(axes=AXES), MlflowClient(store_uri), "test/exact_match"
    plan = json.loads((folder / "experiment.json").read_text())
    for baseline, other in (("rotary", "none"), ("none", "rotary")):
        ordered = sorted(plan["variants"], key=lambda variant: variant["slug"] != baseline)
        (folder / "experiment.json").write_text(
            json.dumps(plan | {"baseline": baseline, "variants": ordered})
        )
        ship(folder, store_uri)
        found = client.search_runs([client.get_experiment_by_name("quickstart").experiment_id])
        slugs = {run.run_hash: run.variant.slug for run in TrackedStudy.read(folder).runs()}
        runs = {slugs[run.data.tags["h2h.run_hash"]]: run.data for run in found}
        difference = runs[other].metrics[metric] - runs[baseline].metrics[metric]
        assert runs[other].metrics[f"diff/{metric}"] == difference
        assert runs[baseline].metrics[f"diff/{metric}"] == 0
        groups = Groups.of(TrackedStudy.read(folder).record)
        colours = {slug: run.tags["mlflow.runColor"] for slug, run in runs.items()}
        assert colours == groups.colours
        assert {slug: run.tags["h2h.variant"] for slug, run in runs.items()} == groups.variants
        assert "the baseline" not in runs[other].tags["mlflow.note.content"]


def test_another_project_with_an_experiment_of_this_name_is_refused_but_not_a_copy(
    make_experiment: MakeExperiment, store_uri: str, tmp_path: Path
) -> None:
    folder = make_experiment(axes={"positional": ["rotary"]})
    assert ship(folder, store_uri).complete
    copy = shutil.copytree(folder, tmp_path / "copy/runs/quickstart")
    assert ship(copy, store_uri).complete
    (copy / ".loggers/mlflow.id").unlink()
    (failure,) = ship(copy, store_uri).failures
    assert "set H2H_MLFLOW_FOLDER" in failure


@case_table("name", ["quickstart", "headtohead studies"], default=1)
def test_an_experiment_that_others_created_is_never_changed(
    make_experiment: MakeExperiment,
    store_uri: str,
    store_template: Path,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = make_experiment(axes={"positional": ["rotary"]})
    client = MlflowClient(store_uri)
    theirs = client.create_experiment(
        name, (folder.parent.parent / "theirs").as_uri(), {"team": "vision"}
    )
    run_id = client.create_run(theirs).info.run_id
    before = client.get_experiment(theirs)
    (failure,) = ship(folder, store_uri).failures
    assert failure == (
        f"MLflow experiment '{name}' in {store_uri} was not created by headtohead; set H2H_MLFLOW_FOLDER to a name for "
        "this project, which is put before the names of experiments, or MLFLOW_TRACKING_URI to another store"
    )
    after = client.get_experiment(theirs)
    assert (after.tags, after.last_update_time) == (before.tags, before.last_update_time)
    assert [run.info.run_id for run in client.search_runs([theirs])] == [run_id]
    monkeypatch.setenv("H2H_MLFLOW_FOLDER", "mine")
    assert ship(folder, store_uri).complete
    other_uri = store_uri.replace("mlflow.db", "other.db")
    shutil.copyfile(store_template, other_uri.removeprefix("sqlite:///"))
    assert ship(folder, other_uri).complete
    assert [run.info.run_id for run in client.search_runs([theirs])] == [run_id]


def test_unusual_answers_and_maps_never_keep_a_study_from_being_logged(
    make_experiment: MakeExperiment, store_uri: str
) -> None:
    """MLflow refuses long names of metrics and those that are paths in another form, such as ``diff//data/a``."""
    folder = make_experiment(axes=AXES, maps=True)
    long = [f"{'x' * 300} instead of {variant}" for variant in "ab"]
    labels = ["/data/b instead of a.txt", "../b instead of a.txt", "a/b", "a-b", *long]
    contrasts = [replace(ROTARY, label=label) for label in labels]
    maps = next(folder.glob("none-*/attention/maps.safetensors"))
    save_file({name: values * np.nan for name, values in load_file(maps).items()}, maps)
    record_checksums(maps.parent.parent)
    found = ship(folder, store_uri, answer=replace(ANSWER, contrasts=contrasts))
    assert (found.shipped, len(found.failures)) == (1, 1)
    assert "not finite" in found.failures[0]
    client = MlflowClient(store_uri)
    index = client.get_experiment_by_name("headtohead studies").experiment_id
    (own,) = client.search_runs([index])
    assert own.data.metrics["diff/-data-b-instead-of-a.txt"] == 0.03
    assert own.data.metrics["diff/..-b-instead-of-a.txt"] == 0.03
    for start in ("diff/xxx", "diff/a-b-"):
        assert sum(name.startswith(start) for name in own.data.metrics) == 2
    for _ in range(3):
        ship(folder, store_uri, answer=ANSWER)
    history = client.get_metric_history(own.info.run_id, "diff/-data-b-instead-of-a.txt")
    assert [math.isnan(point.value) for point in history] == [False, True]
