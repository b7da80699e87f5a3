"""Scores of any code in an MLflow store, for ``h2h judge``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headtohead.errors import HeadToHeadError, nearest
from headtohead_mlflow.address import without_password
from headtohead_mlflow.store import open_store, store_errors

if TYPE_CHECKING:
    import pandas as pd


def experiment_table(uri: str, experiment: str, metric: str | None) -> pd.DataFrame:
    """Return a row per run with its parameters, status and last metrics; with ``metric``, a row per logged step."""
    import pandas as pd

    store = open_store(uri, create=False)
    rows: list[dict[str, Any]] = []
    with store_errors(uri):
        mlflow_experiment = store.client.get_experiment_by_name(experiment)
        if mlflow_experiment is None:
            names = [other.name for other in store.client.search_experiments()]
            hint = nearest(experiment, names)
            raise HeadToHeadError(f"no experiment '{experiment}' in {without_password(uri)}{hint}")
        for run in store.runs(mlflow_experiment.experiment_id, newest_first=True):
            fields = {
                "run_name": run.info.run_name,
                **run.data.params,
                "status": run.info.status,
            }
            if metric is None or metric not in run.data.metrics:
                rows.append({**fields, **run.data.metrics})
                continue
            by_step = {}
            for point in store.client.get_metric_history(run.info.run_id, metric):
                by_step[point.step] = point.value
            for step, value in by_step.items():
                rows.append({**fields, "step": step, metric: value})
    if not rows:
        raise HeadToHeadError(f"experiment '{experiment}' in {without_password(uri)} has no runs")
    return pd.DataFrame(rows)
