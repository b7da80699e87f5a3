"""The page of a study in MLflow: tags, metrics and description of its summary run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property

from headtohead.config.labels import shortened_slug
from headtohead.errors import HeadToHeadError
from headtohead.escaping import markdown_code, markdown_escape, single_line
from headtohead.plugin import Answer, AnsweredContrast
from headtohead.storage import states
from headtohead.storage.metrics import rounded
from headtohead.storage.progress import duration, read_progress, seconds_left
from headtohead.storage.staleness import stale_changes
from headtohead.tracking.study import TrackedRun, TrackedStudy, milliseconds
from headtohead_mlflow.run_page import (
    PARAM_LIMIT,
    first_sentence,
    metric_name,
    mlflow_name,
    run_name,
    text,
)

BEST_BY = "valid/loss"
"""Metric of the best run; the lowest value is the best."""

WAITING = "waiting"
"""State of a run that has not begun."""

P_VALUE = "p"
"""Stands for a metric in the rounding of p-values: it has three decimals."""

UNREADABLE = "UNREADABLE"
"""State of a run with a damaged status."""

WORDS = (
    "Better, worse: the interval excludes 0. No difference shown: it contains 0, which does not show equality. "
    "Equivalent: it contains 0 and lies within the margin."
)

CHARTS = "MLflow's own charts show runs and means, without intervals."
"""What charts of MLflow lack."""


@dataclass
class StudyPage:
    """The answer of a study, the number of its runs by state, and the results of the finished runs.

    ``ended`` is the end of the last run in milliseconds since 1970, ``hours`` the time of the study's own runs; each
    run of a stack counts an equal part. ``best`` is the run with the lowest `BEST_BY` on the data of the
    baseline.
    """

    study: TrackedStudy
    answer: Answer | None = None
    stale: str = ""
    counts: Counter[str] = field(default_factory=Counter)
    ended: int | None = None
    hours: float = 0.0
    best: TrackedRun | None = None
    best_loss: float = math.inf

    @classmethod
    def read(cls, study: TrackedStudy, answer: Answer | None, *, is_last: bool) -> StudyPage:
        """Return the page; with ``is_last``, with results and changes, and runs without a process are KILLED.

        Args:
            study: The study.
            answer: The answer; None: there is none yet.
            is_last: Whether no run is in training.
        """
        page = cls(study, answer)
        for run in study.runs():
            state = UNREADABLE
            with suppress(HeadToHeadError):
                state = page._observed(run, is_last=is_last)
            page.counts[state] += 1
            if is_last and state == states.DONE:
                with suppress(HeadToHeadError):
                    page._add_results(run)
        if is_last:
            page.stale = "; ".join(stale_changes(study))
        return page

    def _observed(self, run: TrackedRun, *, is_last: bool) -> str:
        """Return the state of a run, and keep the time of its end if it is the last."""
        status = run.observed(sweep=is_last)
        ended = milliseconds(status.ended)
        if ended is not None:
            self.ended = max(self.ended or 0, ended)
        return status.state if run.begun() else WAITING

    def _add_results(self, run: TrackedRun) -> None:
        """Add the hours of a finished run, and keep it if it is the best."""
        metrics = run.final_metrics
        execution = run.record.execution
        baseline = self.study.record.by_slug[self.study.record.baseline]
        has_data = run.variant.config.data == baseline.config.data
        loss = metrics.get(BEST_BY)
        if has_data and loss is not None and loss < self.best_loss:
            self.best = run
            self.best_loss = loss
        if execution is not None and not run.reused_from:
            seconds = metrics.get("system/wall_seconds") or 0.0
            self.hours += seconds / 3600 / max(1, len(execution.stack))

    @property
    def is_pending(self) -> bool:
        """Whether a run has not ended."""
        return bool(self.counts.keys() & (states.PENDING | {WAITING}))

    @cached_property
    def headline(self) -> str:
        """The answer in a line; without an answer, how many runs have a result and when the last run will end.

        It is empty before the runs are read.
        """
        if self.answer is not None:
            return single_line(self.answer.text)
        if not self.counts:
            return ""
        done = sum(self.counts[state] for state in states.RESULTS)
        line = f"No answer yet: {done} of {self.counts.total()} runs have a result"
        if not self.is_pending:
            return f"{line}; h2h sync {self.study.name} logs the answer"
        left = None
        with suppress(HeadToHeadError):
            left = seconds_left(read_progress(self.study.path))
        if left is None:
            return line
        end = datetime.now(UTC) + timedelta(seconds=left)
        return f"{line}; training ends at about {end:%Y-%m-%d %H:%M} UTC, in {duration(left)}"

    @cached_property
    def contrasts(self) -> dict[str, AnsweredContrast]:
        """The main contrasts by a name for MLflow; names that become equal get a hash of their label."""
        contrasts = self.answer.contrasts if self.answer else ()
        names = [metric_name(contrast.label.replace("/", "-")) for contrast in contrasts]
        uses = Counter(names)
        by_name = {}
        for name, contrast in zip(names, contrasts, strict=True):
            distinction = contrast.label if uses[name] > 1 else ""
            by_name[shortened_slug(name, distinction)] = contrast
        return by_name

    @property
    def verdicts(self) -> Counter[str]:
        """The number of main contrasts by verdict."""
        return Counter(contrast.direction for contrast in self.contrasts.values())

    @property
    def metrics(self) -> dict[str, float]:
        """Numbers of runs, hours, the baseline's score, and of each main contrast difference, interval and p.

        MLflow shows all digits, so values have those of the report.
        """
        primary = self.study.record.metrics.primary
        counts = {"study/runs": self.counts.total(), "study/runs_done": self.counts[states.DONE]}
        metrics: dict[str, float] = {}
        values: list[tuple[str, float | None, str]] = []
        if self.answer is not None:
            metrics["study/hours"] = float(f"{self.hours:.2g}")
            baseline = self.answer.scores.get(self.study.record.baseline)
            values.append(("study/baseline", baseline, primary))
            counts["study/better"] = self.verdicts["better"]
            counts["study/worse"] = self.verdicts["worse"]
        for name, contrast in self.contrasts.items():
            low, high = contrast.interval or (None, None)
            values.append((f"diff/{name}", contrast.difference, contrast.metric))
            values.append((f"p/{name}", contrast.adjusted_p, P_VALUE))
            values.append((f"low/{name}", low, contrast.metric))
            values.append((f"high/{name}", high, contrast.metric))
        metrics |= {name: float(count) for name, count in counts.items()}
        for name, value, metric in values:
            if value is not None:
                metrics[name] = rounded(value, metric)
        return metrics

    @property
    def tags(self) -> dict[str, str]:
        """The tags that are columns of the list of studies."""
        plan = self.study.record
        tags = {
            "h2h.question": single_line(plan.question),
            "h2h.answer": self.headline,
            "h2h.verdicts": _counted(self.verdicts) or "–",
            "h2h.states": _counted(self.counts),
            "h2h.stale": self.stale,
        }
        return {name: value for name, value in tags.items() if value}

    @property
    def parameters(self) -> dict[str, str]:
        """The parameters of the summary run: the values of each axis, the baseline, the data, metric and margin."""
        plan = self.study.record
        parameters = {mlflow_name(axis): values for axis, values in self._axes().items()}
        parameters["baseline"] = plan.by_slug[plan.baseline].title
        parameters["data"] = f"{plan.data['dataset']}, split {plan.data['split']}"
        parameters["metric"] = plan.metrics.primary
        if plan.metrics.primary in plan.margins:
            parameters["margin"] = text(plan.margins[plan.metrics.primary].value)
        return {name: value[:PARAM_LIMIT] for name, value in parameters.items() if value}

    def _axes(self) -> dict[str, str]:
        """Return the values of each axis as a line of text."""
        plan = self.study.record
        axes = {}
        for axis in plan.axes:
            values = dict.fromkeys(variant.phrase(axis) for variant in plan.variants)
            axes[axis] = ", ".join(values)
        return axes

    def note(self, links: str, figures: str, best: str, model: str) -> Iterator[str]:
        """Yield the paragraphs of the description: the answer, what was asked, what limits it, and the best run.

        MLflow shows five lines, and links only work in the first two.

        Args:
            links: Links to further pages, in Markdown.
            figures: The figures of the report in Markdown, or nothing.
            best: Address of the page of the best run, or nothing.
            model: How to load its model, in Markdown, or nothing.
        """
        plan = self.study.record
        lines = [f"{self.first_sentence} {links}", f"Question: {markdown_escape(plan.question)}"]
        if self.limits:
            lines.append(self.limits)
        lines.append(self.further_sentences)
        yield "  \n".join(lines)
        if self.best is not None and best:
            yield self._best_line(self.best, best)
            yield model
        yield figures
        if self.answer is not None:
            yield from _answer_paragraphs(self.answer)
            yield CHARTS
        yield f"{len(plan.variants)} variants, {len(plan.seeds)} seeds; runs: {self.tags['h2h.states']}"
        yield f"Command: {markdown_code(plan.command)}"

    @property
    def first_sentence(self) -> str:
        """The first sentence of the answer, in Markdown."""
        sentence = first_sentence(self.headline).rstrip(".")
        return f"{markdown_escape(sentence)}." if sentence else ""

    @property
    def further_sentences(self) -> str:
        """The answer after its first sentence, in Markdown."""
        return markdown_escape(self.headline.removeprefix(first_sentence(self.headline)).strip())

    @property
    def limits(self) -> str:
        """The sentence on what limits the answer, in Markdown; empty without an answer, and if nothing limits it."""
        return markdown_escape(self.answer.limits) if self.answer is not None else ""

    def _best_line(self, run: TrackedRun, address: str) -> str:
        metrics = run.final_metrics
        values = []
        for key in dict.fromkeys((BEST_BY, self.study.record.metrics.primary)):
            value = metrics.get(key)
            if value is not None:
                values.append(f"{key} {value:.4g}")
        name = markdown_escape(run_name(run))
        return (
            f"Best run by {BEST_BY}, not by test scores: [{name}]({address}) ({', '.join(values)})"
        )


def _counted(counts: Counter[str]) -> str:
    """Return names with their number, the most frequent first."""
    return ", ".join(f"{count} {name}" for name, count in counts.most_common())


def _answer_paragraphs(answer: Answer) -> Iterator[str]:
    """Yield the table of differences, the remarks beside the answer, and the set-up."""
    if answer.rows:
        columns = [*answer.rows[0]]
        yield _table(columns, answer.rows)
        yield WORDS
    for severity, sentence in answer.cautions:
        yield f"**{severity}:** {markdown_escape(sentence)}"
    yield markdown_escape(answer.setup)


def _table(columns: Sequence[str], rows: Sequence[Mapping[str, str]]) -> str:
    """Return a Markdown table in which the lines of a cell are separated by dots."""
    lines = [
        columns,
        ["---"] * len(columns),
        *([row[column] for column in columns] for row in rows),
    ]
    table = []
    for line in lines:
        cells = [markdown_escape(" · ".join(cell.split("\n"))) for cell in line]
        table.append(f"| {' | '.join(cells)} |")
    return "\n".join(table)
