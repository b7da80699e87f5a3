"""The saved views: the tags that MLflow's page reads, and the charts that answer the question."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headtohead.storage.contrasts import ChangeContrast
from headtohead.storage.experiment import ExperimentRecord
from headtohead.tracking import view
from headtohead.tracking.study import TrackedStudy
from headtohead.tracking.view import link, views

AXES = ["positional", "attention", "masking"]
TAG_VALUE_LIMIT = 20_000


@pytest.fixture
def plan(make_experiment: Callable[..., Path]) -> ExperimentRecord:
    return TrackedStudy.read(make_experiment()).record


def _states(plan: ExperimentRecord) -> dict[str, dict[str, Any]]:
    found = {}
    for key, value in views(plan).items():
        assert key.startswith("mlflow.sharedViewState.")
        assert len(value) < TAG_VALUE_LIMIT
        envelope = json.loads(value)
        assert envelope["name"]
        assert isinstance(envelope["createdAt"], int)
        packed = envelope["state"].removeprefix("deflate;")
        found[key.rpartition(".")[2]] = json.loads(zlib.decompress(base64.b64decode(packed)))
    return found


def test_the_study_its_variants_each_axis_and_attention_have_a_view(plan: ExperimentRecord) -> None:
    states = _states(plan)
    assert list(states) == ["study", "variants", *(f"axis-{axis}" for axis in AXES), "attention"]
    for state in states.values():
        sections = {section["uuid"] for section in state["compareRunSections"]}
        charts = state["compareRunCharts"]
        assert {chart["metricSectionId"] for chart in charts} == sections
        assert len({chart["uuid"] for chart in charts}) == len(charts)
    charts = states["study"]["compareRunCharts"]
    (parallel,) = [chart for chart in charts if chart["type"] == "PARALLEL"]
    assert (parallel["selectedParams"], parallel["selectedMetrics"]) == (AXES, ["test/exact_match"])
    assert [chart["xaxis"]["key"] for chart in charts if chart["type"] == "SCATTER"] == AXES
    assert {chart["metricKey"]: chart["scaleType"] for chart in charts if chart["type"] == "LINE"} == {
        "valid/loss": "log",
        "train/loss": "log",
        "valid/token_accuracy": "linear",
    }
    images = [chart for chart in states["attention"]["compareRunCharts"] if chart["type"] == "IMAGE"]
    assert [chart["imageKeys"] for chart in images] == [
        [f"attention/{role}"] for role in ("cross", "decoder", "encoder")
    ]
    assert states["attention"]["searchFilter"] == "params.seed = '1'"
    masking = states["axis-masking"]
    assert masking["groupBy"]["groupByKeys"] == [{"groupByData": "masking", "mode": "param"}]
    assert masking["groupsExpanded"] == {"param.masking.padding-causal": False, "param.masking.causal": False}


def test_changes_between_two_configurations_have_no_view_by_axis(plan: ExperimentRecord) -> None:
    change = ChangeContrast(kind="added", name="a in start", change="a", variant="to", against="from")
    states = _states(plan.model_copy(update={"contrasts": (change,)}))
    assert list(states) == ["study", "variants", "attention"]
    assert "SCATTER" not in {chart["type"] for chart in states["study"]["compareRunCharts"]}


def test_the_link_opens_the_view_in_the_machine_learning_mode() -> None:
    assert link("7", "sqlite:///mlflow.db") == (
        "http://127.0.0.1:5000/#/experiments/7/runs"
        "?workflowType=machine_learning&viewStateShareKey=study&compareRunsMode=CHART"
    )


def test_an_untested_mlflow_has_no_views_and_a_note(plan: ExperimentRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    assert view.untested() == []
    monkeypatch.setattr(view, "TESTED", ("3.0",))
    assert views(plan) == {}
    assert "viewStateShareKey" not in link("7")
    assert len(view.untested()) == 1
