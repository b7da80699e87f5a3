"""Replay of a run directory as an MLflow run.

Every step is idempotent, so a shipper that was killed between any two calls is restarted without loss: the run is
identified by its run hash, a tag set in the call that creates the run; metrics, artifacts and tags are overwritten; an
existing model is reused. ``h2h.shipped`` and the final status are written last. Only a run with both is complete.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headtohead import files
from headtohead.errors import HeadToHeadError
from headtohead.storage import states
from headtohead.storage.paths import inside
from headtohead.storage.record import read_record
from headtohead.storage.run import RunRecord, StatusRecord
from headtohead.tracking import description, models
from headtohead.tracking.description import IN_PLAN_TAG, PARAMS_CHANGED_TAG, REASON_TAG, RUN_HASH_TAG, SHIPPED_TAG
from headtohead.tracking.histories import final_points, missing, thinned
from headtohead.tracking.rundirs import MetricPoint, TrackedRun, TrackedStudy, milliseconds
from headtohead.tracking.staging import stage
from headtohead.tracking.store import Store, all_runs

if TYPE_CHECKING:
    from mlflow.entities import LoggedModel, Metric, Run

STATUS = {states.DONE: "FINISHED", states.KILLED: "KILLED"} | dict.fromkeys(states.PENDING, "RUNNING")
MARKER = "mlflow.json"


@dataclass
class MlflowRun:
    """The MLflow run of a run directory; ``points`` holds its histories if this process has read or logged them."""

    run_id: str
    artifacts: str
    status: str
    shipped: str | None
    in_plan: str | None
    started: int
    fresh: bool = False
    points: dict[str, list[MetricPoint]] = field(default_factory=dict)


@dataclass
class Destination:
    """An experiment's MLflow experiment, and its summary run (``parent``) in the index experiment."""

    store: Store
    experiment_id: str
    index_id: str
    parent: str
    logged_runs: dict[str, MlflowRun] = field(default_factory=dict)

    def refresh(self) -> None:
        """Read the logged runs from the store; active runs with known histories keep their entry."""
        in_progress = {run_hash: logged for run_hash, logged in self.logged_runs.items() if logged.points}
        self.logged_runs = {**read_logged_runs(self.store, self.experiment_id), **in_progress}


def status_of(state: str) -> str:
    """Return the MLflow status of a state."""
    return STATUS.get(state, "FAILED")


def read_logged_runs(store: Store, experiment_id: str) -> dict[str, MlflowRun]:
    """Return the runs of an MLflow experiment by run hash; of duplicates, the oldest."""
    logged_runs: dict[str, MlflowRun] = {}
    for run in all_runs(store, experiment_id):
        run_hash = run.data.tags.get(RUN_HASH_TAG)
        if run_hash:
            logged_runs.setdefault(run_hash, _logged_run(run))
    return logged_runs


def _logged_run(run: Run, *, fresh: bool = False) -> MlflowRun:
    info, tags = run.info, run.data.tags
    return MlflowRun(
        info.run_id,
        info.artifact_uri,
        info.status,
        tags.get(SHIPPED_TAG),
        tags.get(IN_PLAN_TAG),
        info.start_time,
        fresh,
    )


def replay(destination: Destination, study: TrackedStudy, run: TrackedRun, *, sweep: bool) -> bool:
    """Bring MLflow up to date with a run directory; return whether anything was sent.

    With ``sweep``, an active run without a live process is closed as KILLED.

    Raises:
        HeadToHeadError: If the directory contains a symbolic link, since its target would be uploaded.
    """
    inside(run.path, tree=True)
    logged = destination.logged_runs.get(run.run_hash)
    status, state, reason = run.observed(sweep=sweep)
    if logged is None and state in {states.PLANNED, states.LEASED}:
        return False
    mlflow_status = status_of(state)
    if mlflow_status == "RUNNING":
        return _replay_live(destination, study, run, status, state)
    content_hash = run.content_hash()
    if logged is not None and (logged.shipped, logged.status) == (content_hash, mlflow_status):
        return False
    _replay_whole(destination, study, run, status, (state, reason), content_hash)
    return True


def _replay_live(
    destination: Destination, study: TrackedStudy, run: TrackedRun, status: StatusRecord, state: str
) -> bool:
    record = run.record
    logged = _find_or_create(destination, study, run, record, status, state)
    client = destination.store.client
    known = bool(logged.points)
    earlier = None if known else _earlier(destination, logged)
    points = logged.points or _points(destination, logged, earlier)
    new = {key: missing(thinned(history), points.get(key, ())) for key, history in run.histories().items()}
    fresh = [_metric(key, point) for key, history in new.items() for point in history]
    if not known:
        tags = description.tags(study, run, record, status, state, None, destination.parent)
        _log(destination, logged, description.parameters(run, record), tags, fresh, earlier)
    elif fresh:
        client.log_batch(logged.run_id, metrics=fresh)
    if logged.status != "RUNNING":
        client.update_run(logged.run_id, status="RUNNING")
        logged.status = "RUNNING"
    logged.points = points | {key: [*points.get(key, ()), *history] for key, history in new.items()}
    return bool(fresh)


def _replay_whole(
    destination: Destination,
    study: TrackedStudy,
    run: TrackedRun,
    status: StatusRecord,
    state: tuple[str, str | None],
    content_hash: str,
) -> None:
    record, client = run.record, destination.store.client
    logged = _find_or_create(destination, study, run, record, status, state[0])
    started = milliseconds(status.started) or 0
    ended = milliseconds(status.ended) or _last_moment(run) or started
    earlier = _earlier(destination, logged)
    model = models.log_model(destination.store, destination.experiment_id, run, logged.run_id, earlier)
    histories, points = run.histories(), logged.points or _points(destination, logged, earlier)
    # Results without a final state are those of a process that died while it finished; the next attempt measures anew.
    finals = _finals(run, histories, ended, model, points) if state[0] in states.RESULTS else {}
    metrics = [_metric(key, point, model.model_id if model else None) for key, point in finals.items()] + [
        _metric(key, point)
        for key, history in histories.items()
        for point in missing(thinned(history), points.get(key, ()))
        if finals.get(key) != point
    ]
    tags = description.tags(study, run, record, status, *state, destination.parent)
    upload = functools.partial(client.log_artifacts, logged.run_id)
    with destination.store.artifacts(logged.artifacts, upload) as folder:
        # The start of the MLflow run never changes, so images of a retrained run replace those of the earlier training.
        tags |= stage(run, folder, logged.started).tags()
    models.log_dataset(destination.store, logged.run_id, record.data)
    tags[SHIPPED_TAG] = content_hash
    _log(destination, logged, description.parameters(run, record), tags, metrics, earlier)
    logged.status, logged.shipped, logged.points = status_of(state[0]), content_hash, {}
    client.set_terminated(logged.run_id, logged.status, ended)
    _mark(destination, run, logged)


def _find_or_create(
    destination: Destination, study: TrackedStudy, run: TrackedRun, record: RunRecord, status: StatusRecord, state: str
) -> MlflowRun:
    logged = destination.logged_runs.get(run.run_hash)
    if logged is None:
        tags = description.tags(study, run, record, status, state, None, destination.parent)
        created = destination.store.client.create_run(
            destination.experiment_id,
            start_time=milliseconds(status.started or record.created),
            run_name=description.run_name(run),
            tags=tags | description.creation_tags(),
        )
        logged = _logged_run(created, fresh=True)
        destination.logged_runs[run.run_hash] = logged
    return logged


def _earlier(destination: Destination, logged: MlflowRun) -> Run | None:
    """Return the existing MLflow run, or None if it was just created and is empty."""
    if logged.fresh:
        logged.fresh = False
        return None
    return destination.store.client.get_run(logged.run_id)


def _points(destination: Destination, logged: MlflowRun, earlier: Run | None) -> dict[str, list[MetricPoint]]:
    """Return the histories of an existing MLflow run, which may contain points of a process that was killed."""
    client = destination.store.client
    return {
        key: [
            MetricPoint(metric.step, metric.timestamp, metric.value)
            for metric in client.get_metric_history(logged.run_id, key)
        ]
        for key in (earlier.data.metrics if earlier else ())
    }


def _log(
    destination: Destination,
    logged: MlflowRun,
    params: dict[str, str],
    tags: dict[str, str],
    metrics: list[Metric],
    earlier: Run | None,
) -> None:
    """Log everything in a single call; MLflow does not allow changes of existing parameters."""
    from mlflow.entities import Param, RunTag

    existing = earlier.data.params if earlier else {}
    changed = sorted(name for name in existing if params.get(name, existing[name]) != existing[name])
    if changed:
        tags = tags | {PARAMS_CHANGED_TAG: ", ".join(changed)}
    for name in (REASON_TAG, PARAMS_CHANGED_TAG):
        if earlier and name in earlier.data.tags and name not in tags:
            destination.store.client.delete_tag(logged.run_id, name)
    destination.store.client.log_batch(
        logged.run_id,
        metrics=metrics,
        params=[Param(name, value) for name, value in params.items() if name not in existing],
        tags=[RunTag(name, value) for name, value in tags.items()],
    )


def _finals(
    run: TrackedRun,
    histories: dict[str, list[MetricPoint]],
    ended: int,
    model: LoggedModel | None,
    points: Mapping[str, Sequence[MetricPoint]],
) -> dict[str, MetricPoint]:
    """Return the final values that MLflow does not display yet or has not linked to the model.

    Of equal steps MLflow displays the latest value, so a value that replaces an earlier value at the same step has a
    later time. ``points`` are the points that MLflow has.
    """
    results = run.results
    if results is None:
        return {}
    finals = final_points({**results.metrics, **run.head_metrics_of(run.status)}, histories, ended)
    linked = {metric.key for metric in model.metrics or ()} if model else set(finals)
    chosen = {}
    for key, point in finals.items():
        at_step = [logged for logged in points.get(key, ()) if logged.step == point.step]
        shown = max(at_step, key=lambda logged: (logged.time, logged.value), default=None)
        if shown is None:
            chosen[key] = point
        elif shown.value != point.value:
            chosen[key] = point._replace(time=max(point.time, shown.time + 1))
        elif key not in linked:
            chosen[key] = shown
    return chosen


def _metric(key: str, point: MetricPoint, model_id: str | None = None) -> Metric:
    from mlflow.entities import Metric

    return Metric(key, point.value, point.time, point.step, model_id=model_id)


def _last_moment(run: TrackedRun) -> int | None:
    return max((points[-1].time for points in run.histories().values() if points), default=None)


def _mark(destination: Destination, run: TrackedRun, logged: MlflowRun) -> None:
    """Write the ids of the MLflow run into the run directory, for information only."""
    path = run.path / MARKER
    try:
        marks = read_record(dict[str, dict[str, str | None]], path) or {}
    except HeadToHeadError:
        marks = {}
    marks[f"{destination.store.uri_digest}/{destination.experiment_id}"] = {
        "run_id": logged.run_id,
        "experiment_id": destination.experiment_id,
        "shipped": logged.shipped,
    }
    with suppress(OSError):  # a read-only folder
        files.write_json(path, marks, sync=False)
