"""The runs of an MLflow experiment as a table of scores, whoever logged them."""

from __future__ import annotations

from typing import Any

import pandas as pd

from headtohead.errors import HeadToHeadError, nearest
from headtohead.tracking.store import Store, all_runs, one_line, open_store, readable


def experiment_table(uri: str, experiment: str, metric: str | None) -> pd.DataFrame:
    """Return a row per run with its parameters, status and last metrics; with ``metric``, a row per logged step.

    Raises:
        HeadToHeadError: If the store cannot be read, or has no such experiment or no runs in it.
    """
    store = open_store(uri, create=False)
    with one_line(uri):
        found = store.client.get_experiment_by_name(experiment)
        if found is None:
            names = [known.name for known in store.client.search_experiments()]
            raise HeadToHeadError(f"no experiment '{experiment}' in {readable(uri)}{nearest(experiment, names)}")
        rows = [
            row for run in all_runs(store, found.experiment_id, newest_first=True) for row in _rows(store, run, metric)
        ]
    if not rows:
        raise HeadToHeadError(f"experiment '{experiment}' in {readable(uri)} has no runs")
    return pd.DataFrame(rows)


def _rows(store: Store, run: Any, metric: str | None) -> list[dict[str, Any]]:
    fields = {"run_name": run.info.run_name, **run.data.params, "status": run.info.status}
    if metric is None or metric not in run.data.metrics:
        return [{**fields, **run.data.metrics}]
    points = {point.step: point.value for point in store.client.get_metric_history(run.info.run_id, metric)}
    return [{**fields, "step": step, metric: value} for step, value in points.items()]
