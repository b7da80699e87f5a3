"""Saved views of an experiment's MLflow page.

MLflow stores a view as an experiment tag: JSON with the deflated state of the page. The format is undocumented, and
``TESTED`` lists the tested versions. Another version may ignore the view and show its default page.
"""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

from headtohead.schema.roles import ROLES
from headtohead.storage.experiment import ExperimentRecord
from headtohead.tracking.description import text
from headtohead.tracking.rundirs import TrackedStudy, milliseconds

TESTED = ("3.17",)
TAG = "mlflow.sharedViewState."
SHOWN_RUNS = 1000
CURVES = ("valid/loss", "train/loss", "valid/token_accuracy")
CROSS_FIRST = ROLES[::-1]
FAIRNESS = ("system/step_ms", "system/tokens_per_second", "system/peak_memory_mb")


def views(study: TrackedStudy, search: str = "") -> dict[str, str]:
    """Return the experiment tags of the views; the first view is the default.

    ``search`` is a filter that is part of every view.
    """
    created = milliseconds(study.record.created)
    return {f"{TAG}{key}": _envelope(name, created, state) for key, name, state in _states(study, search)}


def link(experiment_id: str, server: str, key: str = "study") -> str:
    """Return the link that opens the charts of a view."""
    return (
        f"{server.rstrip('/')}/#/experiments/{experiment_id}/runs"
        f"?workflowType=machine_learning&viewStateShareKey={key}&compareRunsMode=CHART"
    )


def tested(version: str) -> bool:
    """Return whether the views were tested with this version of MLflow."""
    return version.rpartition(".")[0] in TESTED


def _states(study: TrackedStudy, search: str) -> list[tuple[str, str, dict[str, Any]]]:
    plan = study.record
    first_seed = " and ".join([*([search] if search else []), f"params.seed = '{plan.seeds[0]}'"])
    return [
        ("study", "1 · study: every run", _state(plan, _study_charts(plan), search)),
        ("variants", "2 · variants: mean over seeds", _state(plan, _group_charts(plan), search, group="variant")),
        *[
            (
                f"axis-{axis}",
                f"3 · {axis}: mean over everything else",
                _state(plan, _group_charts(plan), search, group=axis),
            )
            for axis in _averaged(plan)
        ],
        (
            "attention",
            "4 · attention: first seed",
            _state(plan, _attention_charts(plan), first_seed) | {"runListHidden": True},
        ),
    ]


def _averaged(plan: ExperimentRecord) -> list[str]:
    """Return the axes that can be averaged over; changes between two configurations are not a grid."""
    is_between = any(contrast.kind in ("added", "taken") for contrast in plan.contrasts)
    return [] if is_between else list(plan.axes)


def _state(
    plan: ExperimentRecord, charts: list[tuple[str, list[dict[str, Any]]]], search: str, *, group: str | None = None
) -> dict[str, Any]:
    sections = [
        {"uuid": f"section-{name}", "name": name, "display": True, "isReordered": True, **_layout(name, len(cards))}
        for name, cards in charts
    ]
    cards = [
        {
            **card,
            "uuid": f"chart-{name}-{index}",
            "metricSectionId": f"section-{name}",
            "deleted": False,
            "isGenerated": False,
            "runsCountToCompare": SHOWN_RUNS,
        }
        for name, inner in charts
        for index, card in enumerate(inner)
    ]
    return {
        "searchFilter": search,
        "orderByKey": "params.`seed`",
        "orderByAsc": True,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": _columns(plan),
        "columnOrder": [],
        "columnWidths": {},
        "runsExpanded": {},
        "runsPinned": [],
        "runsHidden": [],
        "runsVisibilityMap": {},
        "runsHiddenMode": "SHOW_ALL",
        "compareRunCharts": cards,
        "compareRunSections": sections,
        "viewMaximized": False,
        "runListHidden": False,
        "isAccordionReordered": True,
        "useGroupedValuesInCharts": True,
        "hideEmptyCharts": True,
        "groupBy": _group(group),
        "groupsExpanded": _folded(plan, group),
        "autoRefreshEnabled": True,
        "globalLineChartConfig": {"xAxisKey": "step", "lineSmoothness": 0, "selectedXAxisMetricKey": ""},
    }


def _group(param: str | None) -> dict[str, Any] | None:
    if param is None:
        return None
    return {"aggregateFunction": "average", "groupByKeys": [{"groupByData": param, "mode": "param"}]}


def _folded(plan: ExperimentRecord, param: str | None) -> dict[str, bool]:
    """Collapse all groups: their list of coloured lines is the legend of the charts."""
    if param is None:
        return {}
    values = {variant.slug if param == "variant" else variant.axes.get(param) for variant in plan.variants}
    return {f"param.{param}.{text(value)}": False for value in values}


def _layout(section: str, cards: int) -> dict[str, int]:
    if section == "Attention":
        return {"columns": 1, "cardHeight": 500}
    return {"columns": 2 if cards in {1, 2, 4} else 3, "cardHeight": 360}


def _columns(plan: ExperimentRecord) -> list[str]:
    params = [*plan.axes, "seed", "parameters"]
    return [
        *(f"params.`{param}`" for param in params),
        *(f"metrics.`{metric}`" for metric in _reported(plan)),
        "tags.`h2h.state`",
        "attributes.`Duration`",
    ]


def _study_charts(plan: ExperimentRecord) -> list[tuple[str, list[dict[str, Any]]]]:
    primary = _reported(plan)[0]
    scatters = [_scatter(axis, primary) for axis in _averaged(plan)]
    answer = [_parallel(list(plan.axes), primary), *scatters]
    return [
        ("Answer", answer),
        ("Curves", _curves()),
        ("Attention", _images()),
        ("Fairness", [_bar(metric) for metric in FAIRNESS]),
    ]


def _group_charts(plan: ExperimentRecord) -> list[tuple[str, list[dict[str, Any]]]]:
    return [
        ("Answer", [_bar(metric) for metric in _reported(plan)]),
        ("Curves", _curves()),
        ("Fairness", [_bar(metric) for metric in FAIRNESS]),
    ]


def _attention_charts(plan: ExperimentRecord) -> list[tuple[str, list[dict[str, Any]]]]:
    heads = [f"attention/{role}/{kind}" for kind in ("entropy", "distance") for role in CROSS_FIRST]
    return [("Attention", _images()), ("Heads", [_bar(metric) for metric in heads])]


def _reported(plan: ExperimentRecord) -> list[str]:
    return list(dict.fromkeys([plan.metrics.primary, *plan.metrics.report]))


def _parallel(axes: list[str], metric: str) -> dict[str, Any]:
    return {"type": "PARALLEL", "selectedParams": axes, "selectedMetrics": [metric], "showAllRuns": True}


def _scatter(axis: str, metric: str) -> dict[str, Any]:
    return {"type": "SCATTER", "xaxis": {"key": axis, "type": "PARAM"}, "yaxis": {"key": metric, "type": "METRIC"}}


def _bar(metric: str) -> dict[str, Any]:
    return {"type": "BAR", "metricKey": metric}


def _curves() -> list[dict[str, Any]]:
    return [_curve(metric) for metric in CURVES]


def _curve(metric: str) -> dict[str, Any]:
    return {
        "type": "LINE",
        "metricKey": metric,
        "selectedMetricKeys": [metric],
        "lineSmoothness": 0,
        "xAxisScaleType": "linear",
        "scaleType": "log" if metric.endswith("loss") else "linear",
        "range": {},
        "xAxisKey": "step",
        "selectedXAxisMetricKey": "",
        "yAxisKey": "metric",
        "yAxisExpressions": [],
        "ignoreOutliers": False,
        "useGlobalXaxisKey": True,
        "useGlobalLineSmoothing": True,
    }


def _images() -> list[dict[str, Any]]:
    # The step of an attention image is the index of its probe sentence; views start with the first.
    return [
        {"type": "IMAGE", "imageKeys": [key], "step": 0, "showRunParams": False, "displayName": key}
        for key in (f"attention/{role}" for role in CROSS_FIRST)
    ]


def _envelope(name: str, created: int | None, state: dict[str, Any]) -> str:
    packed = base64.b64encode(zlib.compress(json.dumps(state).encode(), 9)).decode()
    content = {"name": name, "createdAt": created, "updatedAt": created, "state": "deflate;" + packed}
    return json.dumps(content, ensure_ascii=False)
