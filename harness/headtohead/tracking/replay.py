"""Replaying one run directory as one MLflow run.

Every step may be repeated, so that a shipper killed between any two calls is simply run again: the
run is found by its key (set in the call that creates it), the same metric, artifact or tag is
overwritten, a model that exists is used again. ``h2h.shipped`` and the final status come last; only
where both are right does a run count as shipped.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headtohead import files
from headtohead.storage import states
from headtohead.storage.paths import inside
from headtohead.storage.records import RunRecord, StatusRecord
from headtohead.tracking import description, models
from headtohead.tracking.description import IN_PLAN_TAG, KEY_TAG, SHIPPED_TAG
from headtohead.tracking.histories import final_points, thinned
from headtohead.tracking.rundirs import MetricPoint, TrackedRun, TrackedStudy, milliseconds
from headtohead.tracking.staging import stage
from headtohead.tracking.store import Store

if TYPE_CHECKING:
    from mlflow.entities import LoggedModel, Metric, Run

STATUS = {states.DONE: "FINISHED", states.KILLED: "KILLED"} | dict.fromkeys(states.UNFINISHED, "RUNNING")
MARKER = "mlflow.json"
PAGE = 250
"""Runs that are asked of the store at once."""


@dataclass
class Known:
    """An MLflow run that stands for one of ours."""

    run_id: str
    artifacts: str
    status: str
    shipped: str | None
    in_plan: str | None
    fresh: bool = False
    sent: dict[str, int] = field(default_factory=dict)


@dataclass
class Destination:
    """Where a study goes: its experiment, and its own run (``parent``) in the index experiment."""

    store: Store
    experiment_id: str
    index_id: str
    parent: str
    known: dict[str, Known] = field(default_factory=dict)

    def look(self) -> None:
        """Learn from the store which runs it holds; the oldest counts where there are two."""
        self.known = {**known_runs(self.store, self.experiment_id), **self._with_memory()}

    def _with_memory(self) -> dict[str, Known]:
        return {key: known for key, known in self.known.items() if known.sent}


def status_of(state: str) -> str:
    """Return MLflow's word for a run's state."""
    return STATUS.get(state, "FAILED")


def known_runs(store: Store, experiment_id: str) -> dict[str, Known]:
    """Return the runs of an MLflow experiment by our key."""
    found: dict[str, Known] = {}
    for run in all_runs(store, experiment_id):
        key = run.data.tags.get(KEY_TAG)
        if key:
            found.setdefault(key, _known(run))
    return found


def _known(run: Run, *, fresh: bool = False) -> Known:
    info, tags = run.info, run.data.tags
    return Known(info.run_id, info.artifact_uri, info.status, tags.get(SHIPPED_TAG), tags.get(IN_PLAN_TAG), fresh)


def all_runs(store: Store, experiment_id: str, query: str = "") -> Iterator[Run]:
    """Yield all active runs of an MLflow experiment, the oldest first, a page at a time.

    A run of MLflow's takes some 150 kB of memory: 10,000 of them are not held at once.
    """
    token: str | None = None
    while True:
        page = store.client.search_runs(
            [experiment_id], query, max_results=PAGE, page_token=token, order_by=["attributes.start_time ASC"]
        )
        yield from page
        token = page.token
        if not token:
            return


def replay(destination: Destination, study: TrackedStudy, run: TrackedRun, *, sweep: bool) -> bool:
    """Bring MLflow up to date with a run directory; say whether anything had to be sent.

    With ``sweep``, a run that still says RUNNING although its process is gone is closed as KILLED.

    Raises:
        HeadToHeadError: If a symbolic link is met: what it points to would be shipped.
    """
    inside(run.path, tree=True)
    known = destination.known.get(run.key)
    status, state, reason = run.observed(sweep=sweep)
    if known is None and state in {states.PLANNED, states.LEASED}:
        return False
    wanted = status_of(state)
    if wanted == "RUNNING":
        return _replay_live(destination, study, run, status, state)
    content_hash = run.content_hash()
    if known is not None and (known.shipped, known.status) == (content_hash, wanted):
        return False
    _replay_whole(destination, study, run, status, (state, reason), content_hash)
    return True


def _replay_live(
    destination: Destination, study: TrackedStudy, run: TrackedRun, status: StatusRecord, state: str
) -> bool:
    record = run.record
    known = _find_or_create(destination, study, run, record, status, state)
    histories = {key: thinned(points) for key, points in run.histories().items()}
    fresh = [
        _metric(key, point)
        for key, points in histories.items()
        for point in points
        if point.step > known.sent.get(key, -1)
    ]
    client = destination.store.client
    if not known.sent:
        tags = description.tags(study, run, record, status, state, None, destination.parent)
        earlier = _earlier(destination, known)
        _log(destination, known, description.parameters(run, record), tags, fresh, earlier)
    elif fresh:
        client.log_batch(known.run_id, metrics=fresh)
    if known.status != "RUNNING":
        client.update_run(known.run_id, status="RUNNING")
        known.status = "RUNNING"
    known.sent = {key: points[-1].step for key, points in histories.items() if points}
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
    known = _find_or_create(destination, study, run, record, status, state[0])
    started = milliseconds(status.started) or 0
    ended = milliseconds(status.ended) or _last_moment(run) or started
    earlier = _earlier(destination, known)
    model = models.log_model(destination.store, destination.experiment_id, run, known.run_id, earlier)
    histories = run.histories()
    finals = _finals(run, histories, ended, model, earlier)
    metrics = [_metric(key, point, model.model_id if model else None) for key, point in finals.items()] + [
        _metric(key, point)
        for key, points in histories.items()
        for point in thinned(points)
        if finals.get(key) != point
    ]
    tags = description.tags(study, run, record, status, *state, destination.parent)
    upload = functools.partial(client.log_artifacts, known.run_id)
    with destination.store.artifacts(known.artifacts, upload) as folder:
        tags |= stage(run, folder, ended).tags()
    models.log_dataset(destination.store, known.run_id, record.data)
    tags[SHIPPED_TAG] = content_hash
    _log(destination, known, description.parameters(run, record), tags, metrics, earlier)
    known.status, known.shipped = status_of(state[0]), content_hash
    client.set_terminated(known.run_id, known.status, ended)
    _mark(destination, run, known)


def _find_or_create(
    destination: Destination, study: TrackedStudy, run: TrackedRun, record: RunRecord, status: StatusRecord, state: str
) -> Known:
    known = destination.known.get(run.key)
    if known is None:
        tags = description.tags(study, run, record, status, state, None, destination.parent)
        created = destination.store.client.create_run(
            destination.experiment_id,
            start_time=milliseconds(status.started or record.created),
            run_name=description.run_name(run),
            tags=tags | description.creation_tags(),
        )
        known = _known(created, fresh=True)
        destination.known[run.key] = known
    return known


def _earlier(destination: Destination, known: Known) -> Run | None:
    """Return what MLflow holds of a run, or None for one that was created just now, still empty."""
    if known.fresh:
        known.fresh = False
        return None
    return destination.store.client.get_run(known.run_id)


def _log(
    destination: Destination,
    known: Known,
    params: dict[str, str],
    tags: dict[str, str],
    metrics: list[Metric],
    earlier: Run | None,
) -> None:
    """Log everything in one call; a parameter that MLflow already has cannot be changed."""
    from mlflow.entities import Param, RunTag

    there = earlier.data.params if earlier else {}
    changed = sorted(name for name in there if params.get(name, there[name]) != there[name])
    if changed:
        tags = tags | {"h2h.params_changed": ", ".join(changed)}
    destination.store.client.log_batch(
        known.run_id,
        metrics=metrics,
        params=[Param(name, value) for name, value in params.items() if name not in there],
        tags=[RunTag(name, value) for name, value in tags.items()],
    )


def _finals(
    run: TrackedRun, histories: dict[str, list[MetricPoint]], ended: int, model: LoggedModel | None, earlier: Run | None
) -> dict[str, MetricPoint]:
    """Return the final values that MLflow does not show yet, or has not linked to the model.

    Of equal steps MLflow shows the latest value: one that replaces an older final one is logged at
    the present time.
    """
    results = run.results
    if results is None:
        return {}
    finals = final_points({**results.metrics, **run.head_metrics}, histories, ended)
    shown = earlier.data.metrics if earlier else {}
    shipped_before = earlier is not None and SHIPPED_TAG in earlier.data.tags
    linked = {metric.key for metric in model.metrics or ()} if model else set(finals)
    changed = {key for key, point in finals.items() if shown.get(key) != point.value}
    now = round(time.time() * 1000)
    return {
        key: point._replace(time=now) if key in changed and shipped_before else point
        for key, point in finals.items()
        if key in changed or key not in linked
    }


def _metric(key: str, point: MetricPoint, model_id: str | None = None) -> Metric:
    from mlflow.entities import Metric

    return Metric(key, point.value, point.time, point.step, model_id=model_id)


def _last_moment(run: TrackedRun) -> int | None:
    return max((points[-1].time for points in run.histories().values() if points), default=None)


def _mark(destination: Destination, run: TrackedRun, known: Known) -> None:
    """Note in the run directory which MLflow run it became: a convenience, never trusted."""
    path = run.path / MARKER
    marks = files.read_json(path) if path.is_file() else {}
    marks[f"{destination.store.uri_digest}/{destination.experiment_id}"] = {
        "run_id": known.run_id,
        "experiment_id": destination.experiment_id,
        "shipped": known.shipped,
    }
    files.write_json(path, marks, sync=False)
