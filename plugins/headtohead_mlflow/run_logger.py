"""A run directory as an MLflow run.

Every call is idempotent, so a shipper that was killed between any two calls is restarted without loss: the run is
identified by its run hash and its training, tags set in the call that creates the run; metrics, artifacts and tags are
overwritten. A retrained run replaces the MLflow run of its earlier training, which MLflow can restore. ``h2h.shipped``
and the final status are written last. Only a run with both is complete.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from headtohead.plugin import Logger
from headtohead.storage import states
from headtohead.tracking.study import TrackedRun, TrackedStudy, milliseconds
from headtohead_mlflow import run_page
from headtohead_mlflow.artifacts import scratch, stage
from headtohead_mlflow.groups import Groups
from headtohead_mlflow.run_page import REASON_TAG, RUN_HASH_TAG, SHIPPED_TAG, TRAINING_TAG
from headtohead_mlflow.store import Store, refusals

if TYPE_CHECKING:
    from mlflow.entities import Run

STATUS = {states.DONE: "FINISHED", states.KILLED: "KILLED"} | dict.fromkeys(
    states.PENDING, "RUNNING"
)
"""MLflow's status by state; FAILED for any other state."""

PARENT_TAG = "mlflow.parentRunId"

DENSE_POINTS = 200
"""Number of first points of a history that are all logged; each doubling of the length adds half as many."""


@dataclass
class Destination:
    """Where the runs of a study are logged.

    ``parent`` is the study's own MLflow run in the experiment ``index``; ``run_ids`` are the MLflow runs by run hash.
    """

    store: Store
    experiment_id: str
    index: str
    parent: str
    study: TrackedStudy
    groups: Groups
    run_ids: dict[str, str] = field(default_factory=dict)

    def plan_tags(self, run: TrackedRun) -> dict[str, str]:
        """Return the tags of a run that depend on the plan."""
        return {
            run_page.IN_PLAN_TAG: "yes",
            PARENT_TAG: self.parent,
            **self.groups.tags(run.variant),
        }


class Point(NamedTuple):
    """A value of a metric; ``time`` in milliseconds since 1970."""

    step: int
    time: int
    value: float


class MlflowRunLogger(Logger):
    """Logs a run: parameters, histories, results, attention maps, outputs and weights."""

    run: TrackedRun

    def __init__(self, run: TrackedRun, to: Destination) -> None:
        super().__init__(run)
        self.to = to
        self.client = to.store.client
        self.run_id = to.run_ids.get(run.run_hash, "")
        """The id of the MLflow run; empty before `begin` if there is none."""
        self.points: dict[str, dict[int, tuple[int, float]]] = {}
        """Time and value that MLflow displays at each step of a metric."""
        self.counts: Counter[str] = Counter()
        """Number of points of each history, those that are thinned out too."""
        self.last: dict[str, Point] = {}
        self.fresh: dict[tuple[str, int], tuple[int, float]] = {}
        """Time and value of the next batch, by metric and step."""
        self.is_described = False
        self.figures = ""

    def begin(self) -> int:
        """Find or create the MLflow run, set it to RUNNING, and read the points that MLflow has.

        Returns:
            −1: all steps of the run are requested, and those that MLflow has are not logged again.

        Raises:
            HeadToHeadError: If MLflow refuses a value of the run.
        """
        with refusals():
            self.mlflow_run = self._earlier_run() or self._new_run()
            self.run_id = self.mlflow_run.info.run_id
            self.to.run_ids[self.run.run_hash] = self.run_id
            if self.mlflow_run.info.status != "RUNNING":
                self.client.update_run(self.run_id, "RUNNING", run_page.run_name(self.run))
            for name in self.mlflow_run.data.metrics:
                points = self.points.setdefault(name, {})
                for metric in self.client.get_metric_history(self.run_id, name):
                    # Of equal steps MLflow displays the latest value.
                    earlier = points.get(metric.step, (0, 0.0))
                    points[metric.step] = max(earlier, (metric.timestamp, metric.value))
        start = self.mlflow_run.info.start_time
        for name, value in run_page.costs(self.run.record).items():
            self._add(name, Point(0, start, value))
        self.is_described = False
        return -1

    def _earlier_run(self) -> Run | None:
        """Return the MLflow run of this training; that of an earlier training is deleted.

        MLflow displays the points with the highest steps, which an earlier training may have reached.
        """
        if not self.run_id:
            return None
        mlflow_run = self.client.get_run(self.run_id)
        if mlflow_run.data.tags.get(TRAINING_TAG) == self.run.training:
            return mlflow_run
        self.client.delete_run(self.run_id)
        return None

    def _new_run(self) -> Run:
        start = milliseconds(self.run.status.started or self.run.record.created)
        tags = {
            RUN_HASH_TAG: self.run.run_hash,
            TRAINING_TAG: self.run.training,
            PARENT_TAG: self.to.parent,
            "mlflow.user": run_page.user(),
        }
        name = run_page.run_name(self.run)
        return self.to.store.create_run(self.to.experiment_id, start, name, tags)

    def log(self, step: int, seconds: float, metrics: Mapping[str, float]) -> None:
        """Log a step, thinned so that the points of a shorter history are also points of a longer history."""
        time = round(seconds * 1000)
        for name, value in metrics.items():
            self.last[name] = Point(step, time, value)
            if _is_kept(self.counts[name]):
                self._add(name, self.last[name])
            self.counts[name] += 1

    def flush(self) -> None:
        self._send(states.RUNNING, None, {})

    def end(self, state: str, results: Mapping[str, float]) -> None:
        """Log the final metrics, the artifacts and, last, the content hash and the final status.

        The metrics are those of the run directory, not ``results``. The last step of a killed run is not logged if it
        can be the final step of the training: the next attempt logs it with the results.

        Raises:
            HeadToHeadError: If a file of the run is damaged, or MLflow refuses a value.
        """
        # The status of a run whose process is gone is KILLED.
        run = replace(self.run, observed_status=self.run.observed(sweep=True))
        last_step = 0
        last_time = 0
        for name, point in self.last.items():
            self._add(name, point)
            last_step = max(last_step, point.step)
            last_time = max(last_time, point.time)
        # A killed process writes no end, and perhaps no metric.
        ended = milliseconds(run.status.ended) or last_time or milliseconds(run.status.started) or 0
        stops_early = run.record.config.train.early_stopping is not None
        can_be_final = last_step == run.status.steps or stops_early
        if state in states.RESULTS:
            self._add_results(run.final_metrics, last_step, ended)
        elif state == states.KILLED and can_be_final:
            self.fresh = {key: point for key, point in self.fresh.items() if key[1] != last_step}
        with refusals(), scratch(self.to.study) as folder:
            # The start of the MLflow run never changes, so images of a resumed run replace the earlier ones.
            tags, images = stage(run, folder, self.mlflow_run.info.start_time)
            self.client.log_artifacts(self.run_id, str(folder))
            self.client.log_inputs(self.run_id, [run_page.dataset_input(run.record.data)])
        figures = []
        for name, path in images.items():
            figures.append(f"{name}:\n\n{run_page.image(name, path, self.run_id)}")
        self.figures = "\n\n".join(figures)
        tags[SHIPPED_TAG] = run.content_hash()
        self._send(state, run.status.reason, tags)
        self.client.set_terminated(self.run_id, STATUS.get(state, "FAILED"), ended)

    def _add(self, name: str, point: Point) -> None:
        """Add a point to the next batch; a step that a resumed run repeats is not logged again."""
        if point.step not in self.points.get(name, {}):
            self.fresh[name, point.step] = (point.time, point.value)

    def _add_results(self, results: Mapping[str, float | None], last_step: int, ended: int) -> None:
        """Replace the points of the histories at the last step by the results.

        MLflow displays the value with the highest step. With these points its table shows the results of the report,
        even if the best checkpoint is not the last.
        """
        for name, value in results.items():
            if value is None:
                continue
            self.fresh.pop((name, last_step), None)
            shown = self.points.get(name, {}).get(last_step)
            if shown is None:
                self.fresh[name, last_step] = (ended, float(value))
            elif shown[1] != value:
                self.fresh[name, last_step] = (max(ended, shown[0] + 1), float(value))

    def _send(self, state: str, reason: str | None, tags: dict[str, str]) -> None:
        """Log everything in a single call; parameters and tags of an active run only once."""
        from mlflow.entities import Metric, Param, RunTag

        params: dict[str, str] = {}
        if not self.is_described or state not in states.PENDING:
            self.is_described = True
            tags = self._tags(state, reason) | tags
            params = run_page.parameters(
                self.run.record, seed=self.run.seed, variant=self.run.variant.title
            )
        existing = self.mlflow_run.data
        new_metrics = []
        for (name, step), (time, value) in self.fresh.items():
            new_metrics.append(Metric(name, value, time, step))
        new_params = []
        for name, text in params.items():
            if name not in existing.params:
                new_params.append(Param(name, text))
        new_tags = [RunTag(name, text) for name, text in tags.items()]
        with refusals():
            if params and REASON_TAG in existing.tags and REASON_TAG not in tags:
                self.client.delete_tag(self.run_id, REASON_TAG)
                del existing.tags[REASON_TAG]
            self.client.log_batch(
                self.run_id, metrics=new_metrics, params=new_params, tags=new_tags
            )
        for (name, step), point in self.fresh.items():
            self.points.setdefault(name, {})[step] = point
        self.fresh = {}

    def _tags(self, state: str, reason: str | None) -> dict[str, str]:
        """Return the tags of the run, with its description."""
        study = self.to.study
        page = run_page.run_link(self.to.index, self.to.parent)
        note = run_page.note(study, self.run, state, reason, page, self.figures)
        tags = run_page.tags(study, self.run, state, reason, note)
        return tags | self.to.plan_tags(self.run)


def _is_kept(index: int) -> bool:
    """Return whether the point of this index stays in a thinned history; see `DENSE_POINTS`."""
    stride = 1
    while index >= DENSE_POINTS * stride:
        stride *= 2
    return index % stride == 0
