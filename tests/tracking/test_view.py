"""The saved views, their charts and pages of attention, and the page of the documentation on MLflow."""

import base64
import io
import json
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from headtohead.figures.sheet import grid, tiles
from headtohead.storage.attention_maps import load_maps
from headtohead.storage.contrasts import ContrastRecord
from headtohead.storage.experiment import ExperimentRecord
from headtohead.tracking.study import TrackedStudy
from headtohead_mlflow import attention_pages as module
from headtohead_mlflow import view
from headtohead_mlflow.attention_pages import attention_pages
from headtohead_mlflow.colours import INVISIBLE
from headtohead_mlflow.groups import Groups
from headtohead_mlflow.run_logger import STATUS
from headtohead_mlflow.view import first_view, link, views
from made.fake_study import record_checksums

AXES = ["positional", "attention", "masking"]
TAG_VALUE_LIMIT = 20_000
DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "how-to" / "mlflow.md").read_text(encoding="utf-8")


@pytest.fixture
def plan(make_experiment: Callable[..., Path]) -> ExperimentRecord:
    return TrackedStudy.read(make_experiment()).record


def _states(plan: ExperimentRecord) -> dict[str, dict[str, Any]]:
    found = {}
    for key, value in views(plan, Groups.of(plan)).items():
        assert key.startswith("mlflow.sharedViewState.")
        found[key.rpartition(".")[2]] = _state(value)
    return found


def _state(value: str) -> dict[str, Any]:
    """Return the state of the page in the tag of a view."""
    assert len(value) < TAG_VALUE_LIMIT
    envelope = json.loads(value)
    assert envelope["name"]
    assert isinstance(envelope["createdAt"], int)
    packed = envelope["state"].removeprefix("deflate;")
    state: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(packed)))
    return state


def _first_charts(state: dict[str, Any]) -> list[str]:
    """Return the metric of each chart of the first section; of a scatter chart, that of its horizontal axis."""
    section = state["compareRunSections"][0]["uuid"]
    metrics = []
    for chart in state["compareRunCharts"]:
        if chart["metricSectionId"] == section:
            metrics.append(chart.get("metricKey", chart.get("xaxis", {}).get("key")))
    return metrics


def test_the_study_its_variants_each_axis_and_attention_have_a_view(plan: ExperimentRecord) -> None:
    states = _states(plan)
    assert list(states) == ["study", "runs", *(f"axis-{axis}" for axis in AXES), "attention"]
    for state in states.values():
        sections = {section["uuid"] for section in state["compareRunSections"]}
        charts = state["compareRunCharts"]
        assert {chart["metricSectionId"] for chart in charts} == sections
        assert len({chart["uuid"] for chart in charts}) == len(charts)
    charts = states["runs"]["compareRunCharts"]
    (parallel,) = [chart for chart in charts if chart["type"] == "PARALLEL"]
    assert (parallel["selectedParams"], parallel["selectedMetrics"]) == (AXES, ["test/exact_match"])
    scatters = [
        (chart["xaxis"]["key"], chart["yaxis"]["key"])
        for chart in charts
        if chart["type"] == "SCATTER"
    ]
    scores = ["diff/test/exact_match", "test/exact_match"]
    assert scatters == [(axis, score) for axis in AXES for score in scores]
    assert {
        chart["metricKey"]: chart["scaleType"] for chart in charts if chart["type"] == "LINE"
    } == {
        "valid/loss": "log",
        "train/loss": "log",
        "valid/token_accuracy": "linear",
    }
    assert (
        states["runs"]["columnOrder"][0]
        == states["runs"]["selectedColumns"][0]
        == "tags.`h2h.verdict`"
    )
    images = [
        chart for chart in states["attention"]["compareRunCharts"] if chart["type"] == "IMAGE"
    ]
    assert [chart["imageKeys"] for chart in images] == [
        [f"weights/attention-{role}"] for role in ("cross", "decoder", "encoder")
    ]
    assert states["attention"]["searchFilter"] == "params.seed = '1'"
    masking = states["axis-masking"]
    assert masking["groupBy"]["groupByKeys"] == [{"groupByData": "h2h.axis.masking", "mode": "tag"}]
    assert {name.rstrip(INVISIBLE) for name in masking["groupsExpanded"]} == {
        "tag.h2h.axis.masking.padding-causal",
        "tag.h2h.axis.masking.causal",
    }
    assert masking["compareRunCharts"][0]["metricKey"] == "diff/masking/test/exact_match"


def test_the_first_view_of_an_answer_has_differences_loss_cost_and_the_change_of_the_loss(
    plan: ExperimentRecord,
) -> None:
    (value,) = first_view(
        plan, Groups.of(plan), "", "Rotary is better by 0.1. None is worse."
    ).values()
    state = _state(value)
    first = state["compareRunSections"][0]
    assert first["name"] == "Rotary is better by 0.1"
    assert first["columns"] == 2
    assert _first_charts(state) == [
        "diff/test/exact_match",
        "valid/loss",
        "cost/flops_per_token",
        "diff/valid/loss",
    ]


def test_variants_of_equal_cost_have_a_chart_of_their_scores_instead_of_cost(
    plan: ExperimentRecord,
) -> None:
    counts = plan.variants[0].counts
    equal = [variant.model_copy(update={"counts": counts}) for variant in plan.variants]
    plan = plan.model_copy(update={"variants": tuple(equal)})
    (value,) = first_view(plan, Groups.of(plan), "", "Rotary is better.").values()
    charts = _first_charts(_state(value))
    assert charts == [
        "diff/test/exact_match",
        "valid/loss",
        "test/exact_match",
        "diff/valid/loss",
    ]


def test_the_first_view_without_an_answer_has_the_losses_of_each_variant(
    plan: ExperimentRecord,
) -> None:
    state = _states(plan)["study"]
    assert state["compareRunSections"][0]["name"] == "No answer yet"
    assert _first_charts(state) == ["valid/loss", "train/loss"]
    assert state["groupBy"]["groupByKeys"] == [{"groupByData": "h2h.variant", "mode": "tag"}]
    titles = {variant.slug: variant.title for variant in plan.variants}
    titles[plan.baseline] += " (baseline)"
    assert {name.rstrip(INVISIBLE) for name in state["groupsExpanded"]} == {
        f"tag.h2h.variant.{title}" for title in titles.values()
    }


def test_changes_between_two_configurations_have_no_view_by_axis(plan: ExperimentRecord) -> None:
    change = ContrastRecord.of_two("a in start", "added", "to", "from")
    states = _states(plan.model_copy(update={"contrasts": (change,)}))
    assert list(states) == ["study", "runs", "attention"]
    assert "SCATTER" not in {chart["type"] for chart in states["runs"]["compareRunCharts"]}


def test_an_untested_mlflow_has_no_views_and_a_note(
    plan: ExperimentRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert view.untested() == []
    monkeypatch.setattr(view, "TESTED", ("3.0",))
    assert views(plan, Groups.of(plan)) == {}
    assert "viewStateShareKey" not in link("7")
    assert len(view.untested()) == 1


def test_a_view_of_too_many_variants_for_a_tag_does_not_list_their_groups(
    plan: ExperimentRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _states(plan)["study"]["groupsExpanded"]
    size = len(views(plan, Groups.of(plan))[f"{view.TAG}study"])
    monkeypatch.setattr("mlflow.utils.validation.MAX_EXPERIMENT_TAG_VAL_LENGTH", size - 1)
    assert _states(plan)["study"]["groupsExpanded"] == {}


@pytest.mark.slow
def test_the_python_sample_runs(
    make_experiment: Callable[..., Path],
    tmp_path: Path,
    store_uri: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make_experiment(axes={"positional": ["rotary"]})
    monkeypatch.chdir(tmp_path)
    sample = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[-1]
    exec(compile(sample, "docs/how-to/mlflow.md", "exec"), {})
    assert capsys.readouterr().out == "quickstart: 1 logged, 0 unchanged\n"


def test_views_states_and_pictures_of_the_page_exist(make_experiment: Callable[..., Path]) -> None:
    study = TrackedStudy.read(make_experiment(axes={"positional": ["rotary"]}))
    for value in views(study.record, Groups.of(study.record)).values():
        name = json.loads(value)["name"].partition(":")[0]
        assert f"| {name.replace('positional', '*axis*')} |" in PAGE
    for state in STATUS.keys() - {"PLANNED", "LEASED"}:
        assert f"| {state} |" in PAGE
    pictures = re.findall(r"\]\(\.\./(images/[^)]+)\)", PAGE)
    assert pictures
    assert all((DOCS / picture).is_file() for picture in pictures)


VARIANTS = ["sinusoidal", "rotary", "none"]


def _pages(folder: Path) -> dict[str, str]:
    return {page.name: page.html for page in attention_pages(TrackedStudy.read(folder))}


def _images(page: str) -> list[np.ndarray]:
    found = re.findall(r'src="data:image/png;base64,([^"]+)"', page)
    return [
        np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")) for data in found
    ]


def test_a_page_per_probe_has_every_variant_first_the_baseline_and_the_differences_to_it(
    make_experiment: Callable[..., Path],
) -> None:
    folder = make_experiment(axes={"positional": VARIANTS}, seeds=(1, 2), maps=True)
    pages, study = _pages(folder), TrackedStudy.read(folder)
    assert list(pages) == [f"probe-{index}.html" for index in range(len(study.record.probes))]
    for page in pages.values():
        assert "http" not in re.sub(r'src="[^"]*"', "", page)
        sections = re.split("<h2>", page)[1:]
        assert [section.partition("<")[0] for section in sections] == [
            "cross-attention",
            "decoder",
            "encoder",
        ]
        for section in sections:
            titles = re.findall("<h3>(.*?) \\(seed 1", section)
            assert sorted(titles) == ["rotary", "sinusoidal", "without positions"]
            assert titles[0] == study.record.by_slug[study.record.baseline].title
            same_tokens = section.count("minus the baseline</figcaption>")
            assert same_tokens + section.count("No difference to the baseline") == 2
            assert len(_images(section)) == 3 + same_tokens


def test_the_second_picture_of_a_variant_is_the_difference_to_the_baseline(
    make_experiment: Callable[..., Path],
) -> None:
    folder = make_experiment(axes={"positional": VARIANTS[:2]}, maps=True)
    probes = [load_maps(run.path)[0] for run in TrackedStudy.read(folder).runs()]
    section = _pages(folder)["probe-0.html"].partition("<h2>encoder")[2]
    drawn = _images(section)
    difference = probes[1].weights["encoder"] - probes[0].weights["encoder"]
    for picture, weights in zip(
        drawn, [probe.weights["encoder"] for probe in probes] + [difference], strict=True
    ):
        expected = np.asarray(grid(tiles(weights, *probes[0].tokens("encoder")), weights.shape[1]))
        assert picture.shape == expected.shape
        assert (
            np.abs(picture.astype(int) - expected).mean() < 4
        )  # the colours of a page are reduced
    assert np.abs(drawn[2].astype(int) - drawn[1]).mean() > 5


def test_a_page_has_only_the_variants_that_recorded_its_sentence(
    make_experiment: Callable[..., Path],
) -> None:
    """Runs record other sentences after the experiment file has changed, or if a vocabulary refuses a word."""
    folder = make_experiment(axes={"positional": VARIANTS[:2]}, maps=True)
    (other,) = folder.glob("rotary-*")
    file = other / "attention" / "probes.json"
    probes = json.loads(file.read_text(encoding="utf-8"))
    first, *rest = [probe["source"] for probe in probes]
    probes[0]["source"] = "another sentence"
    file.write_text(json.dumps(probes), encoding="utf-8")
    record_checksums(other)
    pages = [*attention_pages(TrackedStudy.read(folder))]
    assert [page.sentence for page in pages] == [first, *rest, "another sentence"]
    assert ["rotary (seed 1)" in page.html for page in pages] == [False, *[True] * len(rest), True]
    assert "minus the baseline" not in pages[0].html
    assert "minus the baseline" not in pages[-1].html


def test_variants_after_the_twelfth_are_folded_and_pages_stay_below_4_megabytes(
    make_experiment: Callable[..., Path], monkeypatch
) -> None:
    folder = make_experiment(axes={"positional": VARIANTS}, maps=True)
    monkeypatch.setattr(module, "MAX_OPEN", 2)
    section = _pages(folder)["probe-0.html"].partition("<h2>decoder")[0]
    opened, _, folded = section.partition("<details><summary>1 more variants</summary>")
    assert (opened.count("<h3>"), folded.count("<h3>")) == (2, 1)
    monkeypatch.setattr(module, "MAX_BYTES", 20_000)
    limited = _pages(folder)["probe-0.html"]
    assert len(limited) < 25_000
    assert "Too large for this page: " in limited
