"""Reading of an MLflow store: run directories for reports on other machines, and scores for ``h2h judge``.

Every MLflow run has the unchanged files of its run directory below ``run/``, and the experiment's summary run has the
plan.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from headtohead.errors import HeadToHeadError, nearest
from headtohead.files import write_json
from headtohead.storage.experiment import EXPERIMENT
from headtohead.storage.run import CHECKPOINT, STATUS, stored_status

if TYPE_CHECKING:
    import pandas as pd

    from headtohead.tracking.store import Store


def materialise(uri: str, experiment: str, into: Path) -> Path:
    """Write an experiment's plan and runs below ``into``, in the layout of a runs folder.

    Weights are not downloaded. A run that was never logged has no directory.

    Returns:
        The experiment's folder.

    Raises:
        HeadToHeadError: If the store cannot be read or has no experiment of that name.
    """
    from headtohead.config.project import readable
    from headtohead.tracking.mlflow_study import INDEX, STUDY_TAG
    from headtohead.tracking.run_page import RUN_HASH_TAG
    from headtohead.tracking.runs import TrackedStudy
    from headtohead.tracking.store import open_store, store_errors

    folder, store = into / experiment, open_store(uri, create=False)
    with store_errors(uri):
        studies = _run_ids(store, INDEX, STUDY_TAG)
        if experiment not in studies:
            raise HeadToHeadError(f"no experiment '{experiment}' in {readable(uri)}{nearest(experiment, studies)}")
        if folder.exists():
            raise HeadToHeadError(f"'{folder}' already exists; choose another folder")
        _download(store, studies[experiment], EXPERIMENT, folder / EXPERIMENT)
        study, run_ids = TrackedStudy.read(folder), _run_ids(store, experiment, RUN_HASH_TAG)
        for run in study.runs():
            if run.run_hash in run_ids and not run.path.exists():
                _download(store, run_ids[run.run_hash], "run", run.path)
                status = stored_status(run.path)
                present = {name: digest for name, digest in status.files.items() if name != CHECKPOINT}
                write_json(run.path / STATUS, status.model_copy(update={"files": present}).to_json())
    return folder


def experiment_table(uri: str, experiment: str, metric: str | None) -> pd.DataFrame:
    """Return a row per run with its parameters, status and last metrics; with ``metric``, a row per logged step.

    Raises:
        HeadToHeadError: If the store cannot be read, or has no such experiment or no runs in it.
    """
    import pandas as pd

    from headtohead.config.project import readable
    from headtohead.tracking.store import open_store, store_errors

    store, rows = open_store(uri, create=False), []
    with store_errors(uri):
        found = store.client.get_experiment_by_name(experiment)
        if found is None:
            names = [known.name for known in store.client.search_experiments()]
            raise HeadToHeadError(f"no experiment '{experiment}' in {readable(uri)}{nearest(experiment, names)}")
        for run in store.runs(found.experiment_id, newest_first=True):
            fields: dict[str, Any] = {"run_name": run.info.run_name, **run.data.params, "status": run.info.status}
            if metric is None or metric not in run.data.metrics:
                rows.append({**fields, **run.data.metrics})
                continue
            history = store.client.get_metric_history(run.info.run_id, metric)
            values = {point.step: point.value for point in history}
            rows += [{**fields, "step": step, metric: value} for step, value in values.items()]
    if not rows:
        raise HeadToHeadError(f"experiment '{experiment}' in {readable(uri)} has no runs")
    return pd.DataFrame(rows)


def _run_ids(store: Store, experiment: str, tag: str) -> dict[str, str]:
    """Return the ids of an experiment's runs by the value of a tag; of equal values, the oldest run."""
    found = store.client.get_experiment_by_name(experiment)
    runs = store.runs(found.experiment_id) if found else ()
    ids: dict[str, str] = {}
    for run in runs:
        if tag in run.data.tags:
            ids.setdefault(run.data.tags[tag], run.info.run_id)
    return ids


def _download(store: Store, run_id: str, name: str, into: Path) -> None:
    into.parent.mkdir(parents=True, exist_ok=True)
    downloaded = Path(store.client.download_artifacts(run_id, name, dst_path=str(into.parent)))
    if downloaded != into:
        downloaded.replace(into)
