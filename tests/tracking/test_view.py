"""The saved view: the tag that MLflow's page reads, and the charts that answer the question."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headtohead.storage.contrasts import ChangeContrast
from headtohead.tracking import view
from headtohead.tracking.runs import TrackedStudy
from headtohead.tracking.view import link, views

MakeExperiment = Callable[..., Path]
TAG_VALUE_LIMIT = 20_000


@pytest.fixture
def study(make_experiment: MakeExperiment) -> TrackedStudy:
    return TrackedStudy.read(make_experiment(seeds=1))


@pytest.fixture
def states(study: TrackedStudy) -> dict[str, dict[str, Any]]:
    return {key.rpartition(".")[2]: _state(value) for key, value in views(study.record).items()}


def test_every_view_fits_into_a_tag_and_has_a_name(study: TrackedStudy) -> None:
    for key, value in views(study.record).items():
        assert key.startswith("mlflow.sharedViewState.")
        assert len(value) < TAG_VALUE_LIMIT
        envelope = json.loads(value)
        assert envelope["name"]
        assert isinstance(envelope["createdAt"], int)


def test_the_study_its_variants_each_axis_and_attention_have_a_view(states: dict[str, dict[str, Any]]) -> None:
    assert list(states) == ["study", "variants", "axis-positional", "axis-attention", "axis-masking", "attention"]


def test_changes_between_two_configurations_have_no_view_by_axis(study: TrackedStudy) -> None:
    change = ChangeContrast(kind="added", name="a in start", change="a", variant="to", against="from")
    between = replace(study, record=study.record.model_copy(update={"contrasts": (change,)}))
    states = {key.rpartition(".")[2]: _state(value) for key, value in views(between.record).items()}
    assert list(states) == ["study", "variants", "attention"]
    charts = [chart["type"] for chart in states["study"]["compareRunCharts"]]
    assert "PARALLEL" in charts
    assert "SCATTER" not in charts


def test_the_view_of_the_study_shows_the_axes_and_the_primary_metric(states: dict[str, dict[str, Any]]) -> None:
    charts = states["study"]["compareRunCharts"]
    (parallel,) = [chart for chart in charts if chart["type"] == "PARALLEL"]
    assert parallel["selectedParams"] == ["positional", "attention", "masking"]
    assert parallel["selectedMetrics"] == ["test/exact_match"]
    axes = [chart["xaxis"]["key"] for chart in charts if chart["type"] == "SCATTER"]
    assert axes == ["positional", "attention", "masking"]


def test_losses_have_a_logarithmic_axis_and_accuracies_do_not(states: dict[str, dict[str, Any]]) -> None:
    lines = {
        chart["metricKey"]: chart["scaleType"]
        for chart in states["study"]["compareRunCharts"]
        if chart["type"] == "LINE"
    }
    assert lines == {"valid/loss": "log", "train/loss": "log", "valid/token_accuracy": "linear"}


def test_the_view_of_attention_shows_the_first_probe_of_a_seed(states: dict[str, dict[str, Any]]) -> None:
    state = states["attention"]
    images = [chart for chart in state["compareRunCharts"] if chart["type"] == "IMAGE"]
    assert [(chart["imageKeys"], chart["step"]) for chart in images] == [
        (["attention/cross"], 0),
        (["attention/decoder"], 0),
        (["attention/encoder"], 0),
    ]
    assert state["searchFilter"] == "params.seed = '1'"


def test_an_axis_view_averages_over_all_other_axes(states: dict[str, dict[str, Any]]) -> None:
    assert states["axis-masking"]["groupBy"] == {
        "aggregateFunction": "average",
        "groupByKeys": [{"groupByData": "masking", "mode": "param"}],
    }
    assert states["axis-masking"]["groupsExpanded"] == {
        "param.masking.padding-causal": False,
        "param.masking.causal": False,
    }


def test_every_chart_is_in_a_section_of_its_view(states: dict[str, dict[str, Any]]) -> None:
    for state in states.values():
        sections = {section["uuid"] for section in state["compareRunSections"]}
        charts = state["compareRunCharts"]
        assert {chart["metricSectionId"] for chart in charts} == sections
        assert len({chart["uuid"] for chart in charts}) == len(charts)


def test_the_link_opens_the_view_in_the_machine_learning_mode() -> None:
    assert link("7", "sqlite:///mlflow.db") == (
        "http://127.0.0.1:5000/#/experiments/7/runs"
        "?workflowType=machine_learning&viewStateShareKey=study&compareRunsMode=CHART"
    )


def test_an_untested_mlflow_has_no_views_and_a_note(study: TrackedStudy, monkeypatch: pytest.MonkeyPatch) -> None:
    assert view.untested() == []
    monkeypatch.setattr(view, "TESTED", ("3.0",))
    assert views(study.record) == {}
    assert "viewStateShareKey" not in link("7")
    assert len(view.untested()) == 1


def _state(tag: str) -> dict[str, Any]:
    packed = json.loads(tag)["state"].removeprefix("deflate;")
    state: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(packed)))
    return state
