"""Saved views of an experiment's MLflow page.

MLflow stores a view as an experiment tag: JSON with the deflated state of the page. The format is undocumented, and
``TESTED`` lists the tested versions. With another version no view is written, and links lead to MLflow's own page.
"""

from __future__ import annotations

import base64
import functools
import importlib.metadata
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headtohead.schema.roles import ROLES
from headtohead.storage.experiment import ExperimentRecord
from headtohead.tracking.study import milliseconds
from headtohead_mlflow.address import is_server
from headtohead_mlflow.artifacts import image_key
from headtohead_mlflow.colours import group_identity
from headtohead_mlflow.comparisons import (
    CURVE,
    DIFFERENCE,
    VERDICT_TAG,
    axes_with_differences,
    difference_name,
)
from headtohead_mlflow.groups import VARIANT_TAG, Groups, axis_tag
from headtohead_mlflow.run_page import FLOPS, PARAMETERS, first_sentence

TESTED = ("3.17",)
TAG = "mlflow.sharedViewState."
HOST = "127.0.0.1"
PORT = 5000

Chart = dict[str, Any]
"""A chart as MLflow stores it."""

Charts = Mapping[str, Sequence[Chart]]
"""Charts by the name of their section."""

CHART: Chart = {"deleted": False, "isGenerated": False, "runsCountToCompare": 1000}
"""Fields that every chart has."""

TRAINING_CURVE = "train/loss"
CURVES = (CURVE, TRAINING_CURVE, "valid/token_accuracy")
CROSS_FIRST = ROLES[::-1]
FAIRNESS = (PARAMETERS, "system/step_ms", "system/tokens_per_second", "system/peak_memory_mb")
EXPLAINED = "diff/… is the difference to the baseline"
AXIS_EXPLAINED = "Mean difference to the baseline's value"
WIDE_SECTIONS = ("Attention", "All settings")
"""Sections with one chart in a row."""

STUDY_COLUMNS = [
    "tags.`h2h.answer`",
    "tags.`h2h.question`",
    "tags.`h2h.verdicts`",
    "metrics.`study/baseline`",
    "tags.`h2h.states`",
    "metrics.`study/hours`",
]
STUDY_WIDTHS = {"tags.`h2h.answer`": 700, "tags.`h2h.question`": 400, "tags.`h2h.verdicts`": 200}
"""Widths in pixels: the first 90 characters of an answer, which make sense alone, are visible."""

VERDICT_WIDTH = 270
METRIC_WIDTH = 140
"""Widths in pixels at which the longest verdict and the names of metrics are not cut."""

PAGE_STATE: Mapping[str, Any] = {
    "datasetsFilter": [],
    "runsPinned": [],
    "runsHidden": [],
    "runsExpanded": {},
    "runsVisibilityMap": {},
    "runListHidden": False,
    "startTime": "ALL",
    "lifecycleFilter": "Active",
    "modelVersionFilter": "All Runs",
    "orderByKey": "params.`seed`",
    "orderByAsc": True,
    "runsHiddenMode": "SHOW_ALL",
    "viewMaximized": False,
    "autoRefreshEnabled": True,
    "isAccordionReordered": True,
    "useGroupedValuesInCharts": True,
    "hideEmptyCharts": True,
    "globalLineChartConfig": {
        "xAxisKey": "step",
        "lineSmoothness": 0,
        "selectedXAxisMetricKey": "",
    },
}
"""The fields of a page's state that are equal in all views."""


@dataclass(frozen=True)
class Group:
    """A tag over whose values charts average."""

    tag: str
    values: Sequence[str]


@dataclass(frozen=True)
class View:
    """A saved view: its name, its charts, and over what they average."""

    name: str
    charts: Charts
    search: str
    group: Group | None = None
    hides_runs: bool = False


def untested() -> list[str]:
    """Return a note if the views were not tested with the installed MLflow; then there are none."""
    if _release() in TESTED:
        return []
    return [
        f"no saved views: they were tested with MLflow {', '.join(TESTED)}, not {_release()}; "
        "the experiment's page shows the same runs"
    ]


@functools.cache
def _release() -> str:
    return importlib.metadata.version("mlflow").rpartition(".")[0]


def link(experiment_id: str, uri: str = "", port: int = PORT, *, index: bool = False) -> str:
    """Return the link that opens the charts of an experiment, or with ``index`` the list of studies.

    It leads to the server that is the store, else to the server of ``h2h ui``. Without a store, it is relative to the
    address of a server.
    """
    server = f"http://{HOST}:{port}"
    if not uri or is_server(uri):
        server = uri.rstrip("/")
    path = f"/#/experiments/{experiment_id}/runs?workflowType=machine_learning"
    key, mode = ("studies", "TABLE") if index else ("study", "CHART")
    if not untested():
        path += f"&viewStateShareKey={key}"
    return f"{server}{path}&compareRunsMode={mode}"


def views(record: ExperimentRecord, groups: Groups, search: str = "") -> dict[str, str]:
    """Return the experiment tags of the views; the first view is the default.

    ``search`` is a filter that is part of every view.
    """
    if untested():
        return {}
    tags = {}
    for key, view in _study_views(record, groups, search).items():
        tags[f"{TAG}{key}"] = _packed(record, view.name, _state(record, view))
    return tags


def first_view(
    record: ExperimentRecord, groups: Groups, search: str, headline: str
) -> dict[str, str]:
    """Return the experiment tag of the view that links open; its first heading is the first sentence of the answer."""
    if untested():
        return {}
    view = _first_view(record, groups, search, headline)
    return {f"{TAG}study": _packed(record, view.name, _state(record, view))}


def index_view(plan: ExperimentRecord) -> dict[str, str]:
    """Return the experiment tag of the view of the list of studies, the newest first."""
    if untested():
        return {}
    state = _state(plan, View("studies", {}, ""))
    state["orderByKey"] = "attributes.start_time"
    state["orderByAsc"] = False
    state["selectedColumns"] = STUDY_COLUMNS
    state["columnOrder"] = STUDY_COLUMNS
    state["columnWidths"] = STUDY_WIDTHS
    return {f"{TAG}studies": _packed(plan, "studies", state)}


def _study_views(record: ExperimentRecord, groups: Groups, search: str) -> dict[str, View]:
    """Return the views of a study by key."""
    # The step of an attention image is the index of its probe sentence; views start with the first.
    images = [_images(image_key(role)) for role in CROSS_FIRST]
    heads = []
    for statistic in ("entropy", "distance"):
        heads += [_bar(f"attention/{role}/{statistic}") for role in CROSS_FIRST]
    first_seed = f"params.seed = '{record.seeds[0]}'"
    if search:
        first_seed = f"{search} and {first_seed}"
    study_views = {
        "study": _first_view(record, groups, search, ""),
        "runs": View("2 · seeds: every run", _charts_of_runs(record, images), search),
    }
    for axis in axes_with_differences(record):
        name = f"3 · {axis}: mean over everything else"
        by_value = Group(axis_tag(axis), [*groups.values[axis].values()])
        charts = _charts_of_means(record, AXIS_EXPLAINED, axis)
        study_views[f"axis-{axis}"] = View(name, charts, search, by_value)
    study_views["attention"] = View(
        "4 · attention: first seed",
        {"Attention": images, "Heads": heads},
        first_seed,
        hides_runs=True,
    )
    return study_views


def _first_view(record: ExperimentRecord, groups: Groups, search: str, headline: str) -> View:
    """Return the view of the means of each variant; its first heading has the first sentence of the answer, if any."""
    by_variant = Group(VARIANT_TAG, [*groups.variants.values()])
    heading = first_sentence(headline).rstrip(".") or "No answer yet"
    charts = _charts_of_means(record, heading)
    if not headline:  # without scores, the other charts of the section are empty
        charts[heading] = [_curve(CURVE), _curve(TRAINING_CURVE)]
    return View("1 · answer: means over seeds", charts, search, by_variant, hides_runs=True)


def _charts_of_means(
    record: ExperimentRecord, heading: str, axis: str | None = None
) -> dict[str, list[Chart]]:
    """Return the charts of a view of means by section; with an axis, the first differences are those of its values."""
    primary, *further_metrics = _metrics(record)
    answer = [_bar(difference_name(record, axis)), _curve(CURVE), _cost_or_score(record)]
    if axis is None:
        answer.append(_curve(DIFFERENCE + CURVE))
    return {
        heading: answer,
        "Scores": [_bar(metric) for metric in (primary, *further_metrics)],
        "Curves": [_curve(metric) for metric in CURVES],
        "Fairness": [_bar(metric) for metric in FAIRNESS],
    }


def _cost_or_score(record: ExperimentRecord) -> Chart:
    """Return the chart of cost and primary metric; of the primary metric alone if all variants have the same cost."""
    costs = {variant.counts.flops_per_token for variant in record.variants}
    if len(costs) == 1:
        return _bar(record.metrics.primary)
    return _scatter_of_metrics(FLOPS, record.metrics.primary)


def _charts_of_runs(
    record: ExperimentRecord, images: Sequence[Chart]
) -> dict[str, Sequence[Chart]]:
    """Return the charts of the view of every run by section."""
    primary = record.metrics.primary
    # A chart by variant would cut the names of variants.
    seeds = []
    for axis in axes_with_differences(record):
        seeds.append(_scatter(axis, difference_name(record)))
        seeds.append(_scatter(axis, primary))
    return {
        f"Seeds: {EXPLAINED}": seeds,
        "All settings": [_parallel_coordinates(record.axes, primary)],
        "Attention": images,
        "Curves": [_curve(metric) for metric in CURVES],
        "Fairness": [_bar(metric) for metric in FAIRNESS],
    }


def _metrics(plan: ExperimentRecord) -> list[str]:
    """Return the primary metric, then the other reported metrics."""
    return [*dict.fromkeys([plan.metrics.primary, *plan.metrics.report])]


def _packed(plan: ExperimentRecord, name: str, state: dict[str, Any]) -> str:
    """Return the value of the tag of a view."""
    from mlflow.utils.validation import MAX_EXPERIMENT_TAG_VAL_LENGTH

    compressed = zlib.compress(json.dumps(state).encode(), 9)
    packed = f"deflate;{base64.b64encode(compressed).decode()}"
    created = milliseconds(plan.created)
    content = {"name": name, "createdAt": created, "updatedAt": created, "state": packed}
    value = json.dumps(content, ensure_ascii=False)
    is_too_long = len(value) > MAX_EXPERIMENT_TAG_VAL_LENGTH
    if is_too_long and state["groupsExpanded"]:  # thousands of variants
        return _packed(plan, name, state | {"groupsExpanded": {}})
    return value


def _state(plan: ExperimentRecord, view: View) -> dict[str, Any]:
    """Return the state of the page that shows a view."""
    columns = [f"tags.`{VERDICT_TAG}`"]
    columns += [f"params.`{param}`" for param in (*plan.axes, "seed")]
    metrics = [f"metrics.`{metric}`" for metric in (*_metrics(plan), PARAMETERS)]
    columns += metrics
    columns += ["tags.`h2h.state`", "attributes.`Duration`"]
    state = {
        **PAGE_STATE,
        "searchFilter": view.search,
        "selectedColumns": columns,
        "columnOrder": columns,
        "columnWidths": {columns[0]: VERDICT_WIDTH, **dict.fromkeys(metrics, METRIC_WIDTH)},
        "runListHidden": view.hides_runs,
        "groupBy": None,
        "groupsExpanded": {},
        "compareRunCharts": [*_cards(view.charts)],
        "compareRunSections": [_section(name) for name, charts in view.charts.items() if charts],
    }
    group = view.group
    if group is not None:
        state["groupBy"] = {
            "aggregateFunction": "average",
            "groupByKeys": [{"groupByData": group.tag, "mode": "tag"}],
        }
        # The list of collapsed groups, as coloured lines, is the legend of the charts.
        keys = [group_identity(group.tag, value) for value in group.values]
        state["groupsExpanded"] = dict.fromkeys(keys, False)
    return state


def _cards(charts: Charts) -> Iterator[Chart]:
    """Yield the charts of all sections, each with its identity and its section."""
    for name, cards in charts.items():
        for index, card in enumerate(cards):
            identity = {"uuid": f"chart-{name}-{index}", "metricSectionId": f"section-{name}"}
            yield {**card, **identity, **CHART}


def _section(name: str) -> dict[str, Any]:
    return {
        "uuid": f"section-{name}",
        "name": name,
        "display": True,
        "isReordered": True,
        "columns": 1 if name in WIDE_SECTIONS else 2,
        "cardHeight": 500 if name == "Attention" else 340,
    }


def _bar(metric: str) -> Chart:
    return {"type": "BAR", "metricKey": metric}


def _scatter(param: str, metric: str) -> Chart:
    return {
        "type": "SCATTER",
        "xaxis": {"key": param, "type": "PARAM"},
        "yaxis": {"key": metric, "type": "METRIC"},
    }


def _scatter_of_metrics(horizontal: str, vertical: str) -> Chart:
    chart = _scatter(horizontal, vertical)
    return {**chart, "xaxis": {"key": horizontal, "type": "METRIC"}}


def _images(key: str) -> Chart:
    return {
        "type": "IMAGE",
        "imageKeys": [key],
        "step": 0,
        "showRunParams": False,
        "displayName": key,
    }


def _parallel_coordinates(axes: Iterable[str], metric: str) -> Chart:
    return {
        "type": "PARALLEL",
        "selectedParams": [*axes],
        "showAllRuns": True,
        "selectedMetrics": [metric],
    }


def _curve(metric: str) -> Chart:
    is_loss = metric.endswith("loss") and not metric.startswith(DIFFERENCE)
    return {
        "type": "LINE",
        "metricKey": metric,
        "selectedMetricKeys": [metric],
        "range": {},
        "lineSmoothness": 0,
        "xAxisKey": "step",
        "xAxisScaleType": "linear",
        "selectedXAxisMetricKey": "",
        "useGlobalXaxisKey": True,
        "yAxisKey": "metric",
        "scaleType": "log" if is_loss else "linear",
        "yAxisExpressions": [],
        "ignoreOutliers": False,
        "useGlobalLineSmoothing": True,
    }
