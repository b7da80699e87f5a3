"""A study in MLflow: its runs in an MLflow experiment, and a summary run in an index experiment.

MLflow displays nested runs of the same experiment only as a collapsed parent. The summary run is therefore in the
index experiment ``headtohead studies``, and the runs refer to it with ``mlflow.parentRunId``.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from safetensors import SafetensorError

from headtohead.errors import HeadToHeadError
from headtohead.escaping import markdown_escape, safe_markdown
from headtohead.files import read_text, write_text
from headtohead.plugin import Answer, LoggedRun, LoggedStudy, Logger, StudyLogger
from headtohead.storage.experiment import EXPERIMENT
from headtohead.tracking.study import TrackedRun, TrackedStudy, logger_file, milliseconds
from headtohead_mlflow import run_page
from headtohead_mlflow.address import DATABASE
from headtohead_mlflow.artifacts import scratch
from headtohead_mlflow.attention_pages import attention_pages
from headtohead_mlflow.comparisons import log_comparisons
from headtohead_mlflow.completeness import CONTENT_TAG, IDENTITY, INDEX, STUDY_TAG, study_hash
from headtohead_mlflow.groups import Groups
from headtohead_mlflow.model import log_model
from headtohead_mlflow.run_logger import Destination, MlflowRunLogger
from headtohead_mlflow.run_page import NOTE_TAG
from headtohead_mlflow.store import (
    INDEX_OWNER,
    Store,
    load_mlflow,
    locked,
    mlflow_experiment,
    open_store,
    store_errors,
)
from headtohead_mlflow.study_page import CHARTS, StudyPage
from headtohead_mlflow.view import first_view, index_view, link, untested, views

if TYPE_CHECKING:
    from mlflow.entities import Run

ATTENTION = "attention"
STALE_TAG = "h2h.stale"
# Without this tag, MLflow treats the experiment as generative AI and hides the charts of runs.
KIND = {"mlflow.experimentKind": "custom_model_development"}
REPORT_FOLDER = "report"
REPORT_PAGE = "index.html"
FIGURES_FOLDER = "figures/"
FIGURES = {
    "contrasts": "Differences with their intervals",
    "scores": "Scores with their intervals and a point per seed",
    "attention": "Attention of each variant",
}
IN_PLAN = f"tags.`{run_page.IN_PLAN_TAG}` = 'yes'"
CONTRASTS = ("diff", "low", "high", "p")
"""Beginnings of the names of metrics of main contrasts."""

# Errors caused by damaged run directories. Errors of the store end the pass.
DAMAGED = (
    HeadToHeadError,
    KeyError,
    TypeError,
    ValueError,
    IndexError,
    FileNotFoundError,
    SafetensorError,
)


class MlflowStudyLogger(StudyLogger):
    """Logs a study to an MLflow store; the tags of the MLflow runs determine which runs are complete."""

    study: TrackedStudy

    def __init__(self, study: LoggedStudy, uri: str) -> None:
        assert isinstance(study, TrackedStudy)
        super().__init__(study, MlflowRunLogger)
        self.uri = uri
        self.to: Destination | None = None
        """Where runs are logged; None before the first connection."""
        self.page = StudyPage(study)
        self.answer: Answer | None = None
        self.sent: dict[str, float] = {}
        """The metrics of the summary run."""
        self.described: dict[str, str] = {}
        """The tags of the experiment that depend on the answer."""
        self.shipped: dict[str, str] = {}
        """The content hash of each complete MLflow run, by run hash."""
        self.model = ""
        """How to load the model of the best run, in Markdown."""
        self.probes: list[tuple[str, str]] = []
        """Each probe sentence and the address of the page that compares its attention."""
        load_mlflow()

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Hold the store's lock; connect to the store and describe the study in the first pass."""
        with store_errors(self.uri), locked(self.uri):
            if self.to is None:
                self._open(open_store(self.uri, create=True))
            self.destination.study = self.study
            self.destination.groups = Groups.of(self.study.record)
            yield

    def received(self) -> dict[str, str]:
        return self.shipped

    def logger(self, run: LoggedRun) -> Logger:
        assert isinstance(run, TrackedRun)
        return MlflowRunLogger(run, self.destination)

    def concerns_run(self, error: Exception) -> bool:
        return isinstance(error, DAMAGED)

    @property
    def destination(self) -> Destination:
        """Where runs are logged, inside of `opened`."""
        assert self.to is not None
        return self.to

    @property
    def link(self) -> str:
        return link(self.destination.experiment_id, self.uri)

    def _open(self, store: Store) -> None:
        """Find or create experiment and summary run, and write the question and the views before the first run ends."""
        name = self.study.name
        identity = logger_file(self.study.path, IDENTITY)
        if not identity.exists():
            write_text(identity, uuid4().hex)
        database = self.study.path.resolve().parent.parent / DATABASE
        experiment_id = store.experiment(mlflow_experiment(name), read_text(identity), database)
        index = store.experiment(mlflow_experiment(INDEX), INDEX_OWNER)
        summary = self._summary_run(store, index)
        if CONTENT_TAG in summary.data.tags:  # until the pass is complete
            store.client.delete_tag(summary.info.run_id, CONTENT_TAG)
        groups = Groups.of(self.study.record)
        to = Destination(store, experiment_id, index, summary.info.run_id, self.study, groups)
        self._find_runs(to)
        self.to = to
        self.sent = dict(summary.data.metrics)
        tags = {
            NOTE_TAG: self._description(),
            **KIND,
            "mlflow.experiment.primaryMetric.name": self.study.record.metrics.primary,
            STUDY_TAG: name,
            **views(self.study.record, groups, IN_PLAN),
        }
        for tag, value in tags.items():
            store.client.set_experiment_tag(experiment_id, tag, value)
        table = link(index, index=True).lstrip("/")
        note = f"A run per study, with its answer and its report. [Table]({table})"
        index_tags = {**KIND, NOTE_TAG: note, **index_view(self.study.record)}
        for tag, value in index_tags.items():
            store.client.set_experiment_tag(index, tag, value)

    def _summary_run(self, store: Store, index: str) -> Run:
        """Return the study's own MLflow run in the index experiment; create it if it is missing.

        MLflow never changes a parameter, so that a study with other parameters has a new run; the earlier run is
        deleted, which MLflow can undo. A run without parameters was created by a process that ended before it logged
        them.
        """
        from mlflow.entities import Param

        parameters = self.page.parameters
        run = self._earlier_summary(store, index, parameters)
        if run is None:
            tags = {
                STUDY_TAG: self.study.name,
                "mlflow.source.type": "LOCAL",
                "mlflow.source.name": self.study.record.file or self.study.name,
                "mlflow.user": run_page.user(),
            }
            started = milliseconds(self.study.record.created)
            run = store.create_run(index, started, self.study.name, tags)
        missing = [
            Param(key, value) for key, value in parameters.items() if key not in run.data.params
        ]
        if missing:
            store.client.log_batch(run.info.run_id, params=missing)
        return run

    def _earlier_summary(
        self, store: Store, index: str, parameters: Mapping[str, str]
    ) -> Run | None:
        """Return the study's run in the index of which no parameter has changed; delete those with other values."""
        escaped = self.study.name.replace("\\", "\\\\").replace("'", "\\'")
        for run in store.runs(index, f"tags.`{STUDY_TAG}` = '{escaped}'"):
            if run.data.params.items() <= parameters.items():
                return run
            store.client.delete_run(run.info.run_id)
        return None

    def _find_runs(self, to: Destination) -> None:
        """Find the MLflow runs of the study, which of them are complete, and update their tags from the plan."""
        planned = {run.run_hash: to.plan_tags(run) for run in self.study.runs()}
        for run in to.store.runs(to.experiment_id):
            tags = run.data.tags
            run_hash = tags.get(run_page.RUN_HASH_TAG)
            if not run_hash:
                continue
            to.run_ids.setdefault(run_hash, run.info.run_id)
            plan_tags = planned.get(run_hash, {run_page.IN_PLAN_TAG: "no"})
            for name, value in plan_tags.items():
                if tags.get(name) != value:
                    to.store.client.set_tag(run.info.run_id, name, value)
            if run_page.SHIPPED_TAG in tags and run.info.status != "RUNNING":
                self.shipped.setdefault(run_hash, tags[run_page.SHIPPED_TAG])

    def describe(self, answer: Answer | None, *, is_last: bool) -> None:
        """Update the page of the study: while runs train, what is known of them; at last the answer and the report."""
        from mlflow.entities import Metric, RunTag

        client = self.destination.store.client
        parent = self.destination.parent
        self.answer = answer
        self.page = page = StudyPage.read(self.study, answer, is_last=is_last)
        if is_last and not page.stale and STALE_TAG in client.get_run(parent).data.tags:
            client.delete_tag(parent, STALE_TAG)
        now = round(1000 * time.time())
        metrics = self._changed_metrics()
        tags = page.tags | {
            "h2h.experiment_id": self.destination.experiment_id,
            NOTE_TAG: self._note(),
        }
        client.log_batch(
            parent,
            metrics=[Metric(name, value, now, 0) for name, value in metrics.items()],
            tags=[RunTag(name, value[: run_page.TAG_LIMIT]) for name, value in tags.items()],
        )
        self.sent |= metrics
        if is_last:
            client.log_inputs(parent, [run_page.dataset_input(self.study.record.data)])
            self._attach()
        self._describe_experiment()

    def _describe_experiment(self) -> None:
        """Update question and answer of the experiment: its description, and the first heading of its first view."""
        to = self.destination
        tags = {NOTE_TAG: self._description()}
        answer = self.page.headline if self.page.answer else ""
        tags |= first_view(self.study.record, to.groups, IN_PLAN, answer)
        for tag, value in tags.items():
            if self.described.get(tag) != value:
                to.store.client.set_experiment_tag(to.experiment_id, tag, value)
        self.described |= tags

    def _changed_metrics(self) -> dict[str, float]:
        """Return the metrics of the page that the summary run lacks.

        MLflow cannot delete a metric of an earlier answer, so that NaN replaces it.
        """
        metrics = self.page.metrics
        if self.page.answer is not None:
            for name, value in self.sent.items():
                is_contrast = name.partition("/")[0] in CONTRASTS
                if is_contrast and name not in metrics and not math.isnan(value):
                    metrics[name] = math.nan
        return {name: value for name, value in metrics.items() if self.sent.get(name) != value}

    def _attach(self) -> None:
        """Attach the plan, the files of the report and the pages that compare attention to the summary run."""
        parent = self.destination.parent
        with scratch(self.study) as folder:
            shutil.copyfile(self.study.path / EXPERIMENT, folder / EXPERIMENT)
            for name, file in self._report().items():
                is_figure = name.startswith(FIGURES_FOLDER)
                target = folder / name if is_figure else folder / REPORT_FOLDER / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, target)
            self.probes = []
            (folder / ATTENTION).mkdir()
            for page in attention_pages(self.study):
                path = f"{ATTENTION}/{page.name}"
                (folder / path).write_text(page.html, encoding="utf-8")
                address = run_page.run_link(self.destination.index, parent, path)
                self.probes.append((page.sentence, address))
            self.destination.store.client.log_artifacts(parent, str(folder))

    def finish(self) -> list[str]:
        """Set the status of the summary run; return notes for the user."""
        store = self.destination.store
        parent = self.destination.parent
        self.model = self._log_model()
        store.client.set_tag(parent, NOTE_TAG, self._note())  # now the best run has an address
        if self.page.is_pending:
            store.client.update_run(parent, status="RUNNING")
        else:
            store.client.set_terminated(parent, "FINISHED", self.page.ended)
        verdicts = self.answer.verdicts if self.answer else {}
        log_comparisons(store, self.destination.experiment_id, self.study, verdicts)
        store.client.set_tag(parent, CONTENT_TAG, study_hash(self.study, self.answer))
        store.analyze()
        return untested()

    def _log_model(self) -> str:
        """Log the model of the best run; return how to load it, or why there is none, in Markdown."""
        to = self.destination
        best = self.page.best
        if best is None or best.run_hash not in to.run_ids:
            return ""
        try:
            with scratch(self.study) as folder:
                return log_model(
                    to.store, to.experiment_id, best, to.run_ids[best.run_hash], folder
                )
        except HeadToHeadError as error:
            return markdown_escape(str(error))

    def _report(self) -> Mapping[str, Path]:
        """Return the files of the report by name."""
        return self.answer.report if self.answer else {}

    def _figures(self) -> str:
        """Return the figures of the report in Markdown, with addresses relative to the page of the server."""
        images = []
        for name, caption in FIGURES.items():
            path = f"{FIGURES_FOLDER}{name}.svg"
            if path in self._report():
                images.append(run_page.image(caption, path, self.destination.parent))
        return "\n".join(images)

    def _links(self) -> str:
        """Return links to the report and to other pages in Markdown."""
        to = self.destination
        links = {}
        if self.probes:
            _, first_page = self.probes[0]
            links["attention of every variant"] = first_page
        if REPORT_PAGE in self._report():
            page = f"{REPORT_FOLDER}/{REPORT_PAGE}"
            links["full report"] = run_page.run_link(to.index, to.parent, page)
        links["all studies"] = link(to.index, index=True)
        return " · ".join(f"[{name}]({page.lstrip('/')})" for name, page in links.items())

    def _note(self) -> str:
        """Return the description of the summary run, with addresses relative to the page of the server."""
        address = ""
        best = self.page.best
        if best is not None and best.run_hash in self.destination.run_ids:
            run_id = self.destination.run_ids[best.run_hash]
            address = run_page.run_link(self.destination.experiment_id, run_id)
        links = f"{self._links()} · [all runs]({link(self.destination.experiment_id).lstrip('/')})"
        return _markdown(self.page.note(links, self._figures(), address, self.model))

    def _description(self) -> str:
        """Return the experiment's description; MLflow shows its first line even if it is collapsed."""
        plan = self.study.record
        paragraphs = [
            f"{self.page.first_sentence} Question: {markdown_escape(plan.question)}",
            self._links(),
            self.page.further_sentences,
            self.page.limits,
            self._figures(),
            safe_markdown(plan.description or ""),
            f"The list above the runs has further views. {CHARTS}",
            self._probe_list(),
        ]
        return _markdown(paragraphs)

    def _probe_list(self) -> str:
        """Return the probe sentences in Markdown, with links to the pages of their attention if there are any."""
        probes = self.probes
        if not probes:
            planned = self.study.record.probes
            probes = [(probe.source or probe.target or "", "") for probe in planned]
        sentences = []
        for step, (sentence, address) in enumerate(probes):
            shown = markdown_escape(sentence)
            sentences.append(f"{step}: [{shown}]({address})" if address else f"{step}: {shown}")
        if not sentences:
            return ""
        listed = "; ".join(sentences)
        return f"Attention by probe sentence, whose number is the step of the images: {listed}"


def _markdown(paragraphs: Iterable[str]) -> str:
    """Return the paragraphs that have text as a description of MLflow, which limits its length."""
    shown = [paragraph.strip() for paragraph in paragraphs if paragraph]
    return "\n\n".join(shown)[: run_page.TAG_LIMIT]
