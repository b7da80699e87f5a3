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
from collections.abc import Collection, Iterable
from typing import Any

from headtohead.schema.roles import ROLES
from headtohead.storage.experiment import ExperimentRecord
from headtohead.tracking.study import milliseconds
from headtohead_mlflow.comparisons import CURVE, DIFFERENCE, VERDICT_TAG
from headtohead_mlflow.run_page import GROUP_TAG, text

NAMED = ("3.17",)
"""Tested versions that name views; the others show only the first."""
TESTED = ("3.4", *NAMED)
TAG = "mlflow.sharedViewState."
HOST = "127.0.0.1"
PORT = 5000
CHART = {"deleted": False, "isGenerated": False, "runsCountToCompare": 1000}
CURVES = ("valid/loss", "train/loss", "valid/token_accuracy")
COST = "flops_per_token"
CROSS_FIRST = ROLES[::-1]
FAIRNESS = ("system/step_ms", "system/tokens_per_second", "system/peak_memory_mb")
STUDY_COLUMNS = [
    *("attributes.`Created`", "tags.`h2h.question`", "tags.`h2h.answer`", "tags.`h2h.verdicts`"),
    *("metrics.`study/baseline`", "tags.`h2h.states`", "metrics.`study/hours`"),
]

Charts = dict[str, list[dict[str, Any]]]
"""Charts by the name of their section."""


def untested() -> list[str]:
    """Return a note if the views were not tested with the installed MLflow; then there are none."""
    tested = f"no saved views: they were tested with MLflow {', '.join(TESTED)}, not {_release()}"
    return [] if _release() in TESTED else [f"{tested}; the experiment's page shows the same runs"]


@functools.cache
def _release() -> str:
    return importlib.metadata.version("mlflow").rpartition(".")[0]


def link(experiment_id: str, uri: str = "", port: int = PORT, *, index: bool = False) -> str:
    """Return the link that opens the charts of an experiment; the store is the server, or ``h2h ui`` starts one.

    With ``index``, it opens the list of studies.

    Without a store, the link is relative to the server's address.
    """
    server = uri.rstrip("/") if uri.startswith("http") or not uri else f"http://{HOST}:{port}"
    view = "" if untested() else f"&viewStateShareKey={'studies' if index else 'study'}"
    path = f"/#/experiments/{experiment_id}/runs?workflowType=machine_learning{view}"
    return f"{server}{path}&compareRunsMode={'TABLE' if index else 'CHART'}"


def views(plan: ExperimentRecord, search: str = "") -> dict[str, str]:
    """Return the experiment tags of the views; the first view is the default.

    ``search`` is a filter that is part of every view.
    """
    if untested():
        return {}
    primary, *others = dict.fromkeys([plan.metrics.primary, *plan.metrics.report])
    # Changes between two configurations are not a grid, so that averages over the other axes mean nothing.
    shown = (
        () if any(contrast.kind in ("added", "taken") for contrast in plan.contrasts) else plan.axes
    )
    axes = {axis: {text(variant.axes.get(axis)) for variant in plan.variants} for axis in shown}
    parallel: dict[str, Any] = {
        "type": "PARALLEL",
        "selectedParams": list(plan.axes),
        "showAllRuns": True,
    }
    parallel["selectedMetrics"] = [primary]
    # The step of an attention image is the index of its probe sentence; views start with the first.
    images = [
        {"type": "IMAGE", "imageKeys": [key], "step": 0, "showRunParams": False, "displayName": key}
        for key in (f"attention/{role}" for role in CROSS_FIRST)
    ]
    difference, explained = DIFFERENCE + primary, "diff/… is the difference to the baseline"
    rest = {"Curves": [_curve(metric) for metric in CURVES], "Fairness": _bars(FAIRNESS)}
    answer = [
        *_bars([difference]),
        _curve(CURVE),
        _scatter(COST, primary),
        _curve(DIFFERENCE + CURVE),
    ]
    groups = {f"Answer: {explained}": answer, "Scores": _bars([primary, *others]), **rest}
    # A chart by variant would cut the names of variants.
    seeds = [_scatter(axis, metric) for axis in axes for metric in (difference, primary)]
    study = {f"Seeds: {explained}": seeds, "Axes": [parallel], "Attention": images, **rest}
    heads = _bars(
        f"attention/{role}/{kind}" for kind in ("entropy", "distance") for role in CROSS_FIRST
    )
    first_seed = " and ".join(filter(None, [search, f"params.seed = '{plan.seeds[0]}'"]))
    by_variant = _state(
        plan, groups, search, ("tag", GROUP_TAG, [variant.title for variant in plan.variants])
    )
    attention = _state(plan, {"Attention": images, "Heads": heads}, first_seed) | {
        "runListHidden": True
    }
    states = {
        "study": ("1 · answer: means over seeds", by_variant | {"runListHidden": True}),
        "runs": ("2 · seeds: every run", _state(plan, study, search)),
    }
    for axis, of in axes.items():
        averaged = _state(plan, groups, search, ("param", axis, of))
        states[f"axis-{axis}"] = (f"3 · {axis}: mean over everything else", averaged)
    states["attention"] = ("4 · attention: first seed", attention)
    return {f"{TAG}{key}": _packed(plan, name, state) for key, (name, state) in states.items()}


def index_view(plan: ExperimentRecord) -> dict[str, str]:
    """Return the experiment tag of the view of the list of studies, the newest first."""
    order = {
        "orderByKey": "attributes.start_time",
        "orderByAsc": False,
        "selectedColumns": STUDY_COLUMNS,
    }
    # On a screen of 1,280 pixels, question, answer and verdicts are visible.
    widths = {"tags.`h2h.question`": 200, "tags.`h2h.answer`": 250, "tags.`h2h.verdicts`": 150}
    order |= {"columnOrder": STUDY_COLUMNS, "columnWidths": widths}
    return (
        {}
        if untested()
        else {f"{TAG}studies": _packed(plan, "studies", _state(plan, {}, "") | order)}
    )


def _packed(plan: ExperimentRecord, name: str, state: dict[str, Any]) -> str:
    """Return the value of the tag of a view."""
    from mlflow.utils.validation import MAX_EXPERIMENT_TAG_VAL_LENGTH

    packed = "deflate;" + base64.b64encode(zlib.compress(json.dumps(state).encode(), 9)).decode()
    created = milliseconds(plan.created)
    content = {"name": name, "createdAt": created, "updatedAt": created, "state": packed}
    value = json.dumps(content, ensure_ascii=False) if _release() in NAMED else packed
    if (
        len(value) > MAX_EXPERIMENT_TAG_VAL_LENGTH and state["groupsExpanded"]
    ):  # thousands of variants
        return _packed(plan, name, state | {"groupsExpanded": {}})
    return value


def _state(
    plan: ExperimentRecord,
    charts: Charts,
    search: str,
    group: tuple[str, str, Collection[str]] | None = None,
) -> dict[str, Any]:
    """Return the state of the page; charts average over the runs with equal values of ``group``.

    ``group`` is ``param`` or ``tag``, with its name and its values.
    """
    metrics = dict.fromkeys([plan.metrics.primary, *plan.metrics.report])
    columns = [
        f"tags.`{VERDICT_TAG}`",
        *(f"params.`{param}`" for param in (*plan.axes, "seed", "parameters")),
    ]
    columns += [
        *(f"metrics.`{metric}`" for metric in metrics),
        "tags.`h2h.state`",
        "attributes.`Duration`",
    ]
    mode, key, values = group or ("", "", ())
    state: dict[str, Any] = {
        "datasetsFilter": [],
        "columnOrder": columns,
        "runsPinned": [],
        "runsHidden": [],
    }
    state |= {
        "columnWidths": {columns[0]: 150},
        "runsExpanded": {},
        "runsVisibilityMap": {},
        "runListHidden": False,
    }
    state |= {"startTime": "ALL", "lifecycleFilter": "Active", "modelVersionFilter": "All Runs"}
    state |= {
        "searchFilter": search,
        "orderByKey": "params.`seed`",
        "orderByAsc": True,
        "selectedColumns": columns,
    }
    state |= {"runsHiddenMode": "SHOW_ALL", "viewMaximized": False, "autoRefreshEnabled": True}
    state |= {
        "isAccordionReordered": True,
        "useGroupedValuesInCharts": True,
        "hideEmptyCharts": True,
    }
    state["globalLineChartConfig"] = {
        "xAxisKey": "step",
        "lineSmoothness": 0,
        "selectedXAxisMetricKey": "",
    }
    state["groupBy"] = group and {
        "aggregateFunction": "average",
        "groupByKeys": [{"groupByData": key, "mode": mode}],
    }
    # The list of collapsed groups, as coloured lines, is the legend of the charts.
    state["groupsExpanded"] = {f"{mode}.{key}.{value}": False for value in values}
    state["compareRunCharts"] = [
        {**card, "uuid": f"chart-{name}-{index}", "metricSectionId": f"section-{name}", **CHART}
        for name, cards in charts.items()
        for index, card in enumerate(cards)
    ]
    state["compareRunSections"] = [
        {"uuid": f"section-{name}", "name": name, "display": True, "isReordered": True}
        | {
            "columns": 1 + (name not in {"Attention", "Axes"}),
            "cardHeight": 500 if name == "Attention" else 340,
        }
        for name, cards in charts.items()
        if cards
    ]
    return state


def _bars(metrics: Iterable[str]) -> list[dict[str, Any]]:
    return [{"type": "BAR", "metricKey": metric} for metric in metrics]


def _scatter(param: str, metric: str) -> dict[str, Any]:
    return {
        "type": "SCATTER",
        "xaxis": {"key": param, "type": "PARAM"},
        "yaxis": {"key": metric, "type": "METRIC"},
    }


def _curve(metric: str) -> dict[str, Any]:
    scale = "log" if metric.endswith("loss") and not metric.startswith(DIFFERENCE) else "linear"
    state = {
        "type": "LINE",
        "metricKey": metric,
        "selectedMetricKeys": [metric],
        "range": {},
        "lineSmoothness": 0,
    }
    state |= {
        "xAxisKey": "step",
        "xAxisScaleType": "linear",
        "selectedXAxisMetricKey": "",
        "useGlobalXaxisKey": True,
    }
    state |= {
        "yAxisKey": "metric",
        "scaleType": scale,
        "yAxisExpressions": [],
        "ignoreOutliers": False,
    }
    return state | {"useGlobalLineSmoothing": True}
