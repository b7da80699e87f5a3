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

from headtohead.plugins.logger import LoggedRun, Logger
from headtohead.storage import states
from headtohead.tracking import run_page
from headtohead.tracking.artifacts import stage
from headtohead.tracking.run_page import REASON_TAG, RUN_HASH_TAG, SHIPPED_TAG, TRAINING_TAG
from headtohead.tracking.store import Store
from headtohead.tracking.study import StudyLogger, TrackedRun, milliseconds

STATUS = {states.DONE: "FINISHED", states.KILLED: "KILLED"} | dict.fromkeys(
    states.PENDING, "RUNNING"
)
"""MLflow's status by state; FAILED for any other state."""

DENSE_POINTS = 200
"""Number of first points of a history that are all logged; each doubling of the length adds half as many."""


@dataclass
class Destination:
    """Where the runs of a study are logged: ``run_ids`` by run hash, the study's own MLflow run and its experiment."""

    store: Store
    experiment_id: str
    run_ids: dict[str, str] = field(default_factory=dict)
    parent: str = ""
    index: str = ""


class MlflowLogger(Logger):
    """Logs to MLflow: parameters, histories, results, attention maps, translations and weights."""

    def __init__(
        self, run: LoggedRun, study: StudyLogger, directory: TrackedRun, to: Destination
    ) -> None:
        super().__init__(run)
        self.study, self.directory, self.to, self.client = study, directory, to, to.store.client
        self.run_id = to.run_ids.get(run.run_hash, "")
        self.points: dict[str, dict[int, tuple[int, float]]] = {}
        """Time and value that MLflow displays at each step of a metric."""
        self.counts: Counter[str] = Counter()
        self.last: dict[str, tuple[int, int, float]] = {}
        self.fresh: dict[tuple[str, int], tuple[int, float]] = {}
        """Time and value of the next batch, by metric and step."""
        self.figures = ""

    def begin(self) -> int:
        """Find or create the MLflow run; all steps are requested, and `log` skips those that MLflow has."""
        client, name = self.client, run_page.run_name(self.directory)
        if self.run_id:
            self.mlflow_run = client.get_run(self.run_id)
            if self.mlflow_run.data.tags.get(TRAINING_TAG) != self.run.training:
                # MLflow displays the points with the highest steps, which an earlier training may have reached.
                client.delete_run(self.run_id)
                self.run_id = ""
        if not self.run_id:
            tags = {RUN_HASH_TAG: self.run.run_hash, TRAINING_TAG: self.run.training}
            tags |= {"mlflow.parentRunId": self.to.parent, "mlflow.user": run_page.user()}
            start = milliseconds(self.directory.status.started or self.directory.record.created)
            self.mlflow_run = self.to.store.create_run(self.to.experiment_id, start, name, tags)
            self.run_id = self.to.run_ids[self.run.run_hash] = self.mlflow_run.info.run_id
        if self.mlflow_run.info.status != "RUNNING":
            client.update_run(self.run_id, "RUNNING", name)
        for name in self.mlflow_run.data.metrics:
            points = self.points.setdefault(name, {})
            for metric in client.get_metric_history(self.run_id, name):
                # Of equal steps MLflow displays the latest value.
                points[metric.step] = max(
                    points.get(metric.step, (0, 0.0)), (metric.timestamp, metric.value)
                )
        self.described = False
        return -1

    def log(self, step: int, seconds: float, metrics: Mapping[str, float]) -> None:
        """Log a step, thinned so that the points of a shorter history are also points of a longer history."""
        for name, value in metrics.items():
            self.last[name] = (step, round(seconds * 1000), value)
            index, stride = self.counts[name], 1
            self.counts[name] += 1
            while index >= DENSE_POINTS * stride:
                stride *= 2
            if index % stride == 0:
                self._add(name, *self.last[name])

    def flush(self) -> None:
        self._send(states.RUNNING, None, {})

    def end(self, state: str, results: Mapping[str, float]) -> None:
        client, status = self.client, self.directory.observed(sweep=True)
        directory = replace(self.directory, known=status)
        steps = [point[1] for point in self.last.values()]
        ended = milliseconds(status.ended) or max(steps, default=milliseconds(status.started) or 0)
        for name, point in self.last.items():
            self._add(name, *point)
        last = max((step for step, _, _ in self.last.values()), default=0)
        if state in states.RESULTS:
            self._add_results(directory.final_metrics, last, ended)
        elif state == states.KILLED and (
            last == status.steps or directory.record.config.train.early_stopping
        ):
            # The process may have died after its last step, which the next attempt logs, with the results.
            self.fresh = {key: point for key, point in self.fresh.items() if key[1] != last}
        with self.study.scratch() as folder:
            # The start of the MLflow run never changes, so images of a resumed run replace the earlier ones.
            tags, images = stage(directory, folder, self.mlflow_run.info.start_time)
            client.log_artifacts(self.run_id, str(folder))
        client.log_inputs(self.run_id, [run_page.dataset_input(directory.record.data)])
        figures = (
            f"{name}:\n\n{run_page.image(name, path, self.run_id)}" for name, path in images.items()
        )
        self.figures = "\n\n".join(figures)
        self._send(state, status.reason, tags | {SHIPPED_TAG: directory.content_hash()})
        client.set_terminated(self.run_id, STATUS.get(state, "FAILED"), ended)

    def _add(self, name: str, step: int, time: int, value: float) -> None:
        """Add a point to the next batch; a step that a resumed run repeats is not logged again."""
        if step not in self.points.get(name, {}):
            self.fresh[name, step] = (time, value)

    def _add_results(self, results: Mapping[str, float | None], last: int, ended: int) -> None:
        """Replace the points of the histories at the last step by the results.

        MLflow displays the value with the highest step. With these points its table shows the results of the report,
        even if the best checkpoint is not the last.
        """
        for name, value in results.items():
            if value is None:
                continue
            self.fresh.pop((name, last), None)
            shown = self.points.get(name, {}).get(last)
            if shown is None or shown[1] != value:
                self.fresh[name, last] = (
                    ended if shown is None else max(ended, shown[0] + 1),
                    float(value),
                )

    def _send(self, state: str, reason: str | None, tags: dict[str, str]) -> None:
        """Log everything in a single call; parameters and tags of an active run only once."""
        from mlflow.entities import Metric, Param, RunTag

        client, existing, params = self.client, self.mlflow_run.data, {}
        if not self.described or state not in states.PENDING:
            self.described, record = True, self.directory.record
            page = run_page.run_link(self.to.index, self.to.parent)
            about = self.study.study, self.directory, state, reason
            tags = run_page.tags(*about, run_page.note(*about, page, self.figures)) | tags
            params = run_page.parameters(
                record, seed=self.run.seed, variant=self.directory.variant.slug
            )
            if REASON_TAG in existing.tags and REASON_TAG not in tags:
                client.delete_tag(self.run_id, REASON_TAG)
                del existing.tags[REASON_TAG]
        client.log_batch(
            self.run_id,
            metrics=[
                Metric(name, value, time, step)
                for (name, step), (time, value) in self.fresh.items()
            ],
            params=[
                Param(name, value) for name, value in params.items() if name not in existing.params
            ],
            tags=[RunTag(name, value) for name, value in tags.items()],
        )
        for (name, step), point in self.fresh.items():
            self.points.setdefault(name, {})[step] = point
        self.fresh = {}
