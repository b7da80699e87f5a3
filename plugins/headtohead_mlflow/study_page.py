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
from headtohead.storage.progress import duration, read_progress, seconds_left
from headtohead.storage.staleness import stale_changes
from headtohead.tracking.study import TrackedRun, TrackedStudy, milliseconds
from headtohead_mlflow.run_page import mlflow_name, run_name, text

BEST_BY = "valid/loss"
"""Metric of the best run; the lowest value is the best."""

WAITING = "waiting"
"""State of a run that has not begun."""

UNREADABLE = "UNREADABLE"
"""State of a run with a damaged status."""

WORDS = (
    "Better, worse: the interval excludes 0. No difference shown: it contains 0, which does not show equality. "
    "Equivalent: it contains 0 and lies within the margin."
)


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
        """The answer in a line; without an answer, how many runs have a result and when the last run will end."""
        if self.answer is not None:
            return single_line(self.answer.text)
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
        """The main contrasts by a name for MLflow: the left side if no other contrast has it, else both sides."""
        contrasts = {contrast.label: contrast for contrast in self._main_contrasts()}
        lefts = Counter(contrast.left for contrast in contrasts.values())
        names = {}
        for label, contrast in contrasts.items():
            shortest = contrast.left if lefts[contrast.left] == 1 else label
            names[label] = mlflow_name(shortest.replace("/", "-"))
        uses = Counter(names.values())
        by_name = {}
        for label, name in names.items():
            distinction = label if uses[name] > 1 else ""
            by_name[shortened_slug(name, distinction)] = contrasts[label]
        return by_name

    def _main_contrasts(self) -> Sequence[AnsweredContrast]:
        return self.answer.contrasts if self.answer else ()

    @property
    def verdicts(self) -> Counter[str]:
        """The number of main contrasts by verdict."""
        return Counter(contrast.direction for contrast in self.contrasts.values())

    @property
    def metrics(self) -> dict[str, float]:
        """Numbers of runs, hours, the baseline's score, and of each main contrast difference, interval and p.

        MLflow shows all digits, so values other than counts have four significant digits.
        """
        counts = {"study/runs": self.counts.total(), "study/runs_done": self.counts[states.DONE]}
        values: dict[str, float | None] = {}
        if self.answer is not None:
            values["study/hours"] = self.hours
            values["study/baseline"] = self.answer.scores.get(self.study.record.baseline)
            counts["study/better"] = self.verdicts["better"]
            counts["study/worse"] = self.verdicts["worse"]
        for name, contrast in self.contrasts.items():
            low, high = contrast.interval or (None, None)
            values[f"diff/{name}"] = contrast.difference
            values[f"p/{name}"] = contrast.adjusted_p
            values[f"low/{name}"] = low
            values[f"high/{name}"] = high
        metrics = {name: float(count) for name, count in counts.items()}
        for name, value in values.items():
            if value is not None:
                metrics[name] = float(f"{value:.4g}")
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
            "h2h.metric": plan.metrics.primary,
            "h2h.design": single_line(self._design()),
            "h2h.stale": self.stale,
        }
        return {name: value for name, value in tags.items() if value}

    def _design(self) -> str:
        """Return the values of each axis, and the baseline."""
        plan = self.study.record
        parts = []
        for axis in plan.axes:
            values = dict.fromkeys(text(variant.axes.get(axis)) for variant in plan.variants)
            parts.append(f"{axis}: {', '.join(values)}")
        parts.append(f"baseline: {plan.by_slug[plan.baseline].title}")
        return "; ".join(parts)

    def note(self, links: str, figures: str, best: str) -> Iterator[str]:
        """Yield the paragraphs of the description: what was asked, the answer, how sure it is, and the best run.

        Args:
            links: Links to further pages, in Markdown.
            figures: The figures of the report in Markdown, or nothing.
            best: Address of the page of the best run, or nothing.
        """
        plan = self.study.record
        yield f"**{markdown_escape(plan.question)}** {markdown_escape(self.headline)}"
        yield links
        if self.best is not None and best:
            yield self._best_line(self.best, best)
        yield figures
        if self.answer is not None:
            yield from _answer_paragraphs(self.answer)
        yield f"{len(plan.variants)} variants, {len(plan.seeds)} seeds; runs: {self.tags['h2h.states']}"
        yield f"Command: {markdown_code(plan.command)}"

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
