"""A study in MLflow: its runs in an MLflow experiment, and a summary run in an index experiment.

MLflow displays nested runs of the same experiment only as a collapsed parent. The summary run is therefore in the
index experiment ``headtohead studies``, and the runs refer to it with ``mlflow.parentRunId``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from uuid import uuid4

from safetensors import SafetensorError

from headtohead.config.project import DATABASE, default_uri
from headtohead.errors import HeadToHeadError, describe
from headtohead.escaping import markdown_escape, safe_markdown
from headtohead.files import read_text, write_text
from headtohead.plugins.logger import Logger
from headtohead.storage.experiment import EXPERIMENT
from headtohead.storage.paths import inside
from headtohead.tracking import run_page
from headtohead.tracking.attention_pages import attention_pages
from headtohead.tracking.comparisons import log_comparisons
from headtohead.tracking.mlflow_logger import Destination, MlflowLogger
from headtohead.tracking.store import (
    INDEX_OWNER,
    Store,
    load_mlflow,
    locked,
    mlflow_experiment,
    open_store,
    store_errors,
)
from headtohead.tracking.study import StudyLogger, TrackedRun, milliseconds
from headtohead.tracking.study_page import StudyPage
from headtohead.tracking.view import index_view, link, untested, views

INDEX = "headtohead studies"
ATTENTION = "attention"
STUDY_TAG = "h2h.study"
STALE_TAG = "h2h.stale"
NOTE_TAG = "mlflow.note.content"
# Without this tag, MLflow treats the experiment as generative AI and hides the charts of runs.
KIND = {"mlflow.experimentKind": "custom_model_development"}
REPORT_FILES = ("index.html", "report.md", "answer.json", "results.csv")
FIGURES = {
    "contrasts": "Differences with their intervals",
    "scores": "Scores with their intervals and a point per seed",
    "attention": "Attention of each variant",
}
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
REFUSED = frozenset({"INVALID_PARAMETER_VALUE", "BAD_REQUEST"})


@dataclass
class MlflowStudy(StudyLogger):
    """Logs a study to an MLflow store; the tags of the MLflow runs determine which runs are complete."""

    uri: str = ""
    to: Destination = field(init=False)
    page: StudyPage = field(init=False)
    report: Path | None = None
    sent: dict[str, float] = field(init=False)
    """The metrics of the summary run."""
    probes: list[str] = field(default_factory=list)
    """Addresses of the pages that compare attention, one per probe sentence."""

    def __post_init__(self) -> None:
        self.uri = self.uri or default_uri(self.study.path.parent)
        load_mlflow()

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Hold the store's lock; connect to the store and describe the study in the first pass."""
        with store_errors(self.uri), locked(self.uri):
            if not hasattr(self, "to"):
                self._open(open_store(self.uri, create=True))
            yield

    def logger(self, run: TrackedRun) -> Logger:
        return MlflowLogger(self.logged_run(run), self, run, self.to)

    def keep(self, run: TrackedRun, content_hash: str) -> None:
        self.received[run.run_hash] = content_hash

    def failure(self, error: Exception) -> str | None:
        from mlflow.exceptions import MlflowException

        if isinstance(error, MlflowException):
            return str(error.message) if error.error_code in REFUSED else None
        if not isinstance(error, DAMAGED):
            return None
        return str(error) if isinstance(error, HeadToHeadError) else describe(error)

    @property
    def link(self) -> str:
        return link(self.to.experiment_id, self.uri)

    def _open(self, store: Store) -> None:
        """Find or create experiment and summary run, and write the question and the views before the first run ends."""
        identity = self._file(".id")  # copied with the folder of the study
        if not identity.exists():
            write_text(identity, uuid4().hex)
        database = self.study.path.resolve().parent.parent / DATABASE
        own = store.experiment(mlflow_experiment(self.study.name), read_text(identity), database)
        index = store.experiment(mlflow_experiment(INDEX), INDEX_OWNER)
        to = Destination(store, own, index=index)
        planned = {run.run_hash: run_page.plan_tags(self.study, run) for run in self.study.runs()}
        for run in store.runs(to.experiment_id):
            tags = run.data.tags
            if run_hash := tags.get(run_page.RUN_HASH_TAG):
                to.run_ids.setdefault(run_hash, run.info.run_id)
                for name, value in planned.get(run_hash, {run_page.IN_PLAN_TAG: "no"}).items():
                    if tags.get(name) != value:
                        store.client.set_tag(run.info.run_id, name, value)
                if run_page.SHIPPED_TAG in tags and run.info.status != "RUNNING":
                    self.received.setdefault(run_hash, tags[run_page.SHIPPED_TAG])
        name = self.study.name.replace("\\", "\\\\").replace("'", "\\'")
        known = list(store.runs(index, f"tags.`{STUDY_TAG}` = '{name}'"))
        if not known:
            tags = {
                STUDY_TAG: self.study.name,
                "mlflow.source.type": "LOCAL",
                "mlflow.user": run_page.user(),
            }
            tags["mlflow.source.name"] = self.study.record.file or self.study.name
            started = milliseconds(self.study.record.created)
            known = [store.create_run(index, started, self.study.name, tags)]
        self.to, to.parent = to, known[0].info.run_id
        self.sent = dict(known[0].data.metrics)
        experiment_tags = {
            NOTE_TAG: self._description(""),
            **KIND,
            "mlflow.experiment.primaryMetric.name": self.study.record.metrics.primary,
            STUDY_TAG: self.study.name,
            **views(self.study.record, f"tags.`{run_page.IN_PLAN_TAG}` = 'yes'"),
        }
        for name, value in experiment_tags.items():
            store.client.set_experiment_tag(to.experiment_id, name, value)
        note = f"A run per study, with its answer and its report. [Table]({link(index, index=True).lstrip('/')})"
        for name, value in {**KIND, NOTE_TAG: note, **index_view(self.study.record)}.items():
            store.client.set_experiment_tag(index, name, value)

    def describe(self, *, is_last: bool) -> None:
        """Update the page of the study: while runs train, what is known of them; at last the answer and the report."""
        from mlflow.entities import Metric, RunTag

        client, parent = self.to.store.client, self.to.parent
        self.report = report = inside(self.reports, self.study.name, tree=True) if is_last else None
        self.page = page = StudyPage.read(self.study, is_last=is_last, report=report)
        # MLflow cannot delete a metric of an earlier answer.
        shown = (
            [name for name, value in self.sent.items() if not math.isnan(value)]
            if page.answer
            else []
        )
        earlier = {name: math.nan for name in shown if name.partition("/")[0] in CONTRASTS}
        fresh = {
            name: value
            for name, value in (earlier | page.metrics).items()
            if self.sent.get(name) != value
        }
        tags = page.tags | {"h2h.experiment_id": self.to.experiment_id, NOTE_TAG: self._note()}
        if is_last and not page.stale and STALE_TAG in client.get_run(parent).data.tags:
            client.delete_tag(parent, STALE_TAG)
        now = round(1000 * time.time())
        client.log_batch(
            parent,
            metrics=[Metric(name, value, now, 0) for name, value in fresh.items()],
            tags=[RunTag(name, value[: run_page.TAG_LIMIT]) for name, value in tags.items()],
        )
        self.sent |= fresh
        if report is None:
            return
        client.log_inputs(parent, [run_page.dataset_input(self.study.record.data)])
        client.log_artifact(parent, str(self.study.path / EXPERIMENT))
        for file in filter(Path.is_file, (report / name for name in REPORT_FILES)):
            client.log_artifact(parent, str(file), "report")
        if (report / "figures").is_dir():
            client.log_artifacts(parent, str(report / "figures"), "figures")
        with self.scratch() as folder:
            pages = dict(attention_pages(self.study))
            for name, page_of_probe in pages.items():
                (folder / name).write_text(page_of_probe, encoding="utf-8")
            client.log_artifacts(parent, str(folder), ATTENTION)
        self.probes = [
            run_page.run_link(self.to.index, parent, f"{ATTENTION}/{name}") for name in pages
        ]
        description = self._description(markdown_escape(page.headline))
        client.set_experiment_tag(self.to.experiment_id, NOTE_TAG, description)

    def finish(self) -> list[str]:
        """Set the status of the summary run; return notes for the user."""
        store, parent = self.to.store, self.to.parent
        store.client.set_tag(parent, NOTE_TAG, self._note())  # now the best run has an address
        if self.page.is_pending:
            store.client.update_run(parent, status="RUNNING")
        else:
            store.client.set_terminated(parent, "FINISHED", self.page.ended)
        log_comparisons(
            store, self.to.experiment_id, self.study, self.report and self.report / "results.csv"
        )
        store.analyze()
        return untested()

    def _figures(self) -> str:
        """Return the figures of the report in Markdown, with addresses relative to the page of the server."""
        paths = {f"figures/{name}.svg": caption for name, caption in FIGURES.items()}
        return "\n".join(
            run_page.image(caption, path, self.to.parent)
            for path, caption in paths.items()
            if self.report and (self.report / path).is_file()
        )

    def _links(self) -> str:
        """Return links to the report and to other pages in Markdown."""
        index, parent = self.to.index, self.to.parent
        links = {"all runs": link(self.to.experiment_id), "all studies": link(index, index=True)}
        if self.report and (self.report / "index.html").is_file():
            links = {"full report": run_page.run_link(index, parent, "report/index.html"), **links}
        if self.probes:
            links["attention of every variant"] = self.probes[0]
        return " · ".join(f"[{name}]({page.lstrip('/')})" for name, page in links.items())

    def _note(self) -> str:
        """Return the description of the summary run, with addresses relative to the page of the server."""
        best = self.page.best
        run_id = best and self.to.run_ids.get(best.run_hash)
        address = run_page.run_link(self.to.experiment_id, run_id) if run_id else ""
        paragraphs = self.page.note(self._links(), self._figures(), address)
        return "\n\n".join(filter(None, paragraphs))[: run_page.TAG_LIMIT]

    def _description(self, answer: str) -> str:
        """Return the experiment's description; MLflow shows its first line even if it is collapsed."""
        plan = self.study.record
        probes = "; ".join(
            f"{step}: " + (f"[{source}]({page})" if page else source)
            for step, (probe, page) in enumerate(zip_longest(plan.probes, self.probes))
            if (source := markdown_escape(probe.source or probe.target or ""))
        )
        paragraphs = [
            f"**{markdown_escape(plan.question)}** {answer}",
            self._links(),
            self._figures(),
            safe_markdown(plan.description or ""),
            "The list above the runs has further views.",
            f"Attention of all variants, by probe sentence, whose number is the step of the images: {probes}",
        ]
        return "\n\n".join(paragraph.strip() for paragraph in paragraphs if paragraph)[
            : run_page.TAG_LIMIT
        ]
