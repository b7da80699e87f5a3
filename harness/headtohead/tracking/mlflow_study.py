"""A study in MLflow: its runs in an MLflow experiment, and a summary run in an index experiment.

MLflow displays nested runs of the same experiment only as a collapsed parent. The summary run is therefore in the
index experiment ``headtohead studies``, and the runs refer to it with ``mlflow.parentRunId``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from safetensors import SafetensorError

from headtohead import files
from headtohead.config.project import default_uri
from headtohead.errors import HeadToHeadError, describe
from headtohead.escaping import markdown_code, markdown_escape, safe_markdown
from headtohead.plugins.logger import Logger
from headtohead.storage import states
from headtohead.storage.experiment import EXPERIMENT
from headtohead.storage.paths import inside
from headtohead.storage.staleness import stale_changes
from headtohead.tracking.mlflow_logger import Destination, MlflowLogger
from headtohead.tracking.run_page import IN_PLAN_TAG, RUN_HASH_TAG, SHIPPED_TAG, TAG_LIMIT, user
from headtohead.tracking.store import Store, load_mlflow, locked, open_store, store_errors
from headtohead.tracking.study import StudyLogger, TrackedRun, milliseconds
from headtohead.tracking.view import link, untested, views

INDEX = "headtohead studies"
STUDY_TAG = "h2h.study"
STALE_TAG = "h2h.stale"
NOTE_TAG = "mlflow.note.content"
# Without this tag, MLflow treats the experiment as generative AI and hides the charts of runs.
KIND = {"mlflow.experimentKind": "custom_model_development"}
REPORT_FILES = ("index.html", "report.md", "answer.json", "results.csv")
UNREADABLE = "UNREADABLE"
WAITING = "waiting"

# Errors caused by damaged run directories. Errors of the store end the pass.
DAMAGED = (HeadToHeadError, KeyError, TypeError, ValueError, IndexError, FileNotFoundError, SafetensorError)
REFUSED = frozenset({"INVALID_PARAMETER_VALUE", "BAD_REQUEST"})


@dataclass
class MlflowStudy(StudyLogger):
    """Logs a study to an MLflow store; the tags of the MLflow runs determine which runs are complete."""

    uri: str = ""
    to: Destination = field(init=False)

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
        to, index = Destination(store, store.experiment(self.study.name)), store.experiment(INDEX)
        planned = {run.run_hash for run in self.study.record.runs}
        for run in store.runs(to.experiment_id):
            tags = run.data.tags
            if run_hash := tags.get(RUN_HASH_TAG):
                to.run_ids.setdefault(run_hash, run.info.run_id)
                in_plan = "yes" if run_hash in planned else "no"
                if tags.get(IN_PLAN_TAG) != in_plan:
                    store.client.set_tag(run.info.run_id, IN_PLAN_TAG, in_plan)
                if SHIPPED_TAG in tags and run.info.status != "RUNNING":
                    self.received.setdefault(run_hash, tags[SHIPPED_TAG])
        known = [run.info.run_id for run in store.runs(index) if run.data.tags.get(STUDY_TAG) == self.study.name]
        if not known:
            tags = {STUDY_TAG: self.study.name, "mlflow.source.type": "LOCAL", "mlflow.user": user()}
            tags["mlflow.source.name"] = self.study.record.file or self.study.name
            started = milliseconds(self.study.record.created)
            created = store.client.create_run(index, start_time=started, run_name=self.study.name, tags=tags)
            known = [created.info.run_id]
        self.to, to.parent = to, known[0]
        experiment_tags = {
            NOTE_TAG: self._description(""),
            **KIND,
            "mlflow.experiment.primaryMetric.name": self.study.record.metrics.primary,
            STUDY_TAG: self.study.name,
            "h2h.study_run": to.parent,
            **views(self.study.record, f"tags.`{IN_PLAN_TAG}` = 'yes'"),
        }
        for name, value in experiment_tags.items():
            store.client.set_experiment_tag(to.experiment_id, name, value)
        for name, value in {**KIND, NOTE_TAG: "A run per experiment, with its plan and its report."}.items():
            store.client.set_experiment_tag(index, name, value)

    def finish(self) -> list[str]:
        """Update the summary run: counts, plan, report and status."""
        from mlflow.entities import RunTag

        store, parent = self.to.store, self.to.parent
        client, existing = store.client, store.client.get_run(parent).data
        counts, ended = Counter[str](), []
        for run in self.study.runs():
            status = None
            with suppress(HeadToHeadError):
                status = run.observed(sweep=True)
                ended.append(milliseconds(status.ended) or 0)
            counts[UNREADABLE if status is None else status.state if run.begun() else WAITING] += 1
        stale = "; ".join(stale_changes(self.study))
        warning = f"**STALE**: {markdown_escape(stale)}. The results below are older.\n\n" if stale else ""
        report = inside(self.reports, self.study.name, tree=True)
        answer_file = report / "answer.json"
        answer = str(files.read_json(answer_file)["answer"]) if answer_file.is_file() else ""
        tags = {
            NOTE_TAG: warning + self._note(counts, report),
            "h2h.states": _listed(counts),
            "h2h.experiment_id": self.to.experiment_id,
            "h2h.answer": answer,
            **({STALE_TAG: stale} if stale else {}),
        }
        if not stale and STALE_TAG in existing.tags:
            client.delete_tag(parent, STALE_TAG)
        client.log_batch(parent, tags=[RunTag(name, value[:TAG_LIMIT]) for name, value in tags.items()])
        client.log_artifact(parent, str(self.study.path / EXPERIMENT))
        for file in filter(Path.is_file, (report / name for name in REPORT_FILES)):
            client.log_artifact(parent, str(file), "report")
        if (report / "figures").is_dir():
            client.log_artifacts(parent, str(report / "figures"), "figures")
        if counts.keys() & (states.PENDING | {WAITING}):
            client.update_run(parent, status="RUNNING")
        else:
            description = warning + self._description(markdown_escape(answer))
            client.set_experiment_tag(self.to.experiment_id, NOTE_TAG, description[:TAG_LIMIT])
            client.set_terminated(parent, "FINISHED", max(filter(None, ended), default=None))
        store.analyze()
        return untested()

    def _description(self, answer: str) -> str:
        """Return the experiment's description; MLflow shows its first line even if it is collapsed."""
        plan = self.study.record
        probes = "; ".join(f"{step}: {markdown_escape(probe.source)}" for step, probe in enumerate(plan.probes))
        paragraphs = [
            f"**{markdown_escape(plan.question)}** {answer.replace('**', '')}",
            safe_markdown(plan.description or ""),
            "Views (in the list above the runs): all runs, variants averaged over seeds, a view per "
            f"axis, attention. [Open the view of all runs]({link(self.to.experiment_id)}).",
            f"Steps of the attention images are probe sentences. {probes}",
        ]
        return "\n\n".join(paragraph.strip() for paragraph in paragraphs if paragraph)[:TAG_LIMIT]

    def _note(self, counts: Counter[str], folder: Path) -> str:
        """Return the description of the summary run: question, report, states of the runs and the command."""
        plan, report = self.study.record, ""
        if (folder / "report.md").is_file():
            paragraphs = (folder / "report.md").read_text(encoding="utf-8").strip().split("\n\n")
            # A picture and its caption are a single paragraph.
            report = "\n\n".join(paragraph for paragraph in paragraphs if not paragraph.startswith(("# ", "![")))
        paragraphs = [
            f"**{markdown_escape(plan.question)}**",
            report[: TAG_LIMIT // 2],
            f"{len(plan.variants)} variants, {len(plan.seeds)} seeds; runs: {_listed(counts)}. "
            f"[Open the view of all runs]({link(self.to.experiment_id)})",
            f"Command: {markdown_code(plan.command)}",
        ]
        return "\n\n".join(filter(None, paragraphs))


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {state}" for state, count in counts.most_common())
