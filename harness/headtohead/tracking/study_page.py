"""The page of a study in MLflow: tags, metrics and description of its summary run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from typing_extensions import TypedDict

from headtohead.config.labels import shortened_slug
from headtohead.errors import HeadToHeadError
from headtohead.escaping import markdown_code, markdown_escape, single_line
from headtohead.storage import states
from headtohead.storage.progress import duration, read_progress, seconds_left
from headtohead.storage.record import Number, read_record
from headtohead.tracking.run_page import PARAM_LIMIT, TAG_LIMIT, mlflow_name, parameters
from headtohead.tracking.study import TrackedRun, TrackedStudy, milliseconds

UNREADABLE = "UNREADABLE"
WAITING = "waiting"
BEST_BY = "valid/loss"
"""Metric of the best run; the lowest value is the best."""


class _Contrast(TypedDict):
    label: str
    main: bool
    direction: str
    difference: Number | None
    interval: Mapping[str, Number] | None
    holm_p: Number | None


class Answer(TypedDict):
    """The fields of ``answer.json`` that the page shows."""

    answer: str
    scores: Mapping[str, Number]
    contrasts: list[_Contrast]


@dataclass(frozen=True)
class StudyState:
    """Number of runs by state, and what is known of the finished runs.

    ``ended`` is the end of the last run in milliseconds since 1970, ``hours`` the time of the study's own runs; each
    run of a stack counts an equal part. ``best`` is the run with the lowest `BEST_BY`.
    """

    counts: Counter[str]
    ended: int | None = None
    hours: float = 0.0
    best: TrackedRun | None = None

    @property
    def is_pending(self) -> bool:
        """Whether a run has not ended."""
        return bool(self.counts.keys() & (states.PENDING | {WAITING}))

    @property
    def listed(self) -> str:
        """The numbers as text, such as ``3 DONE, 1 DIVERGED``."""
        return ", ".join(f"{count} {state}" for state, count in self.counts.most_common())


def read_state(study: TrackedStudy, *, is_last: bool) -> StudyState:
    """Return the state of a study; with ``is_last``, of its results too, and runs without a process are KILLED."""
    counts, ended, hours = Counter[str](), [], 0.0
    scores: list[tuple[float, int, TrackedRun]] = []
    for number, run in enumerate(study.runs()):
        state = UNREADABLE
        with suppress(HeadToHeadError):
            status = run.observed(sweep=is_last)
            state = status.state if run.begun() else WAITING
            ended.append(milliseconds(status.ended) or 0)
            if is_last and state == states.DONE:
                metrics, execution = run.final_metrics, run.record.execution
                if (loss := metrics.get(BEST_BY)) is not None and math.isfinite(loss):
                    scores.append((loss, number, run))
                if execution and not run.reused_from:
                    hours += (metrics.get("system/wall_seconds") or 0.0) / 3600 / max(1, len(execution.stack))
        counts[state] += 1
    return StudyState(counts, max(filter(None, ended), default=None), hours, min(scores)[2] if scores else None)


def read_answer(report: Path) -> Answer | None:
    """Return the answer of a report's folder; None without a report, or if its ``answer.json`` is damaged."""
    with suppress(HeadToHeadError):
        return read_record(Answer, report / "answer.json")
    return None


def headline(study: TrackedStudy, state: StudyState, answer: Answer | None) -> str:
    """Return the answer in a line; without an answer, how many runs have a result and when the last run will end."""
    if answer is not None:
        return single_line(answer["answer"])
    done = sum(state.counts[name] for name in states.RESULTS)
    text = f"No answer yet: {done} of {state.counts.total()} runs have a result"
    if not state.is_pending:
        return f"{text}; h2h report {study.name} writes the report, and h2h sync {study.name} logs it"
    left = None
    with suppress(HeadToHeadError):
        left = seconds_left(read_progress(study.path))
    if left is None:
        return text
    end = datetime.now(UTC) + timedelta(seconds=left)
    return f"{text}; training ends at about {end:%Y-%m-%d %H:%M} UTC, in {duration(left)}"


def study_metrics(study: TrackedStudy, state: StudyState, answer: Answer | None) -> dict[str, float]:
    """Return numbers of runs, hours and the baseline's score; of each main contrast, difference, interval and p."""
    found: dict[str, float | None] = {"study/runs": state.counts.total(), "study/runs_done": state.counts[states.DONE]}
    if answer is not None:
        found |= {"study/hours": state.hours, "study/baseline": answer["scores"].get(study.record.baseline)}
        found |= {f"study/{name}": _verdicts(answer)[name] for name in ("better", "worse")}
        for name, contrast in main_contrasts(answer).items():
            interval = contrast["interval"] or {}
            found |= {f"diff/{name}": contrast["difference"], f"p/{name}": contrast["holm_p"]}
            found |= {f"{end}/{name}": interval.get(end) for end in ("low", "high")}
    return {name: float(value) for name, value in found.items() if value is not None}


def main_contrasts(answer: Answer) -> dict[str, _Contrast]:
    """Return the main contrasts by a name for MLflow: the left side if no other contrast has it, else both sides."""
    main = {contrast["label"]: contrast for contrast in answer["contrasts"] if contrast["main"]}
    lefts = Counter(label.partition(" against ")[0] for label in main)
    short = {label: left for label in main if lefts[left := label.partition(" against ")[0]] == 1}
    names = {label: mlflow_name(short.get(label, label).replace("/", "-")) for label in main}
    return {shortened_slug(names[label]): contrast for label, contrast in main.items()}


def _verdicts(answer: Answer) -> Counter[str]:
    return Counter(contrast["direction"] for contrast in main_contrasts(answer).values())


def study_tags(study: TrackedStudy, state: StudyState, answer: Answer | None, stale: str) -> dict[str, str]:
    """Return the tags that are columns of the list of studies, and those for programs."""
    plan = study.record
    verdicts = ", ".join(f"{count} {name}" for name, count in _verdicts(answer).most_common()) if answer else "–"
    tags = {
        "h2h.question": single_line(plan.question),
        "h2h.answer": headline(study, state, answer),
        "h2h.verdicts": verdicts,
        "h2h.states": state.listed,
        "h2h.metric": plan.metrics.primary,
        "h2h.stale": stale,
    }
    return {name: value[:TAG_LIMIT] for name, value in tags.items() if value}


def study_parameters(study: TrackedStudy) -> dict[str, str]:
    """Return the design, and the configuration that all variants share."""
    plan = study.record
    shared: dict[str, str] = {}
    for number, variant in enumerate(plan.variants):
        own = parameters(variant)
        shared = {name: value for name, value in (shared if number else own).items() if own.get(name) == value}
    values: dict[str, Any] = {axis: [variant.axes.get(axis) for variant in plan.variants] for axis in plan.axes}
    design = {axis: ", ".join(map(str, dict.fromkeys(found))) for axis, found in values.items()}
    params = shared | design | {"baseline": plan.by_slug[plan.baseline].title, "match": plan.match}
    return {name: value[:PARAM_LIMIT] for name, value in params.items()}


def study_note(
    study: TrackedStudy, state: StudyState, answer: Answer | None, report: str, links: dict[str, str]
) -> Iterator[str]:
    """Yield the paragraphs of the description.

    ``report`` is the report in Markdown, and ``links`` are the addresses of pages and artifacts by name.
    """
    plan = study.record
    summary, _, clauses = headline(study, state, answer).partition(". ")
    yield f"**{markdown_escape(plan.question)}** {markdown_escape(summary)}"
    yield " · ".join(f"[{name}]({address})" for name, address in links.items() if name not in ("figure", "best run"))
    yield "\n".join(f"- {markdown_escape(clause)}" for clause in clauses.split("; ") if clause)
    if "figure" in links:
        yield f"![Differences with their intervals]({links['figure']})"
    if state.best is not None and "best run" in links:
        metrics = state.best.final_metrics
        shown = ", ".join(
            f"{name} {metrics[name]:.4g}" for name in (BEST_BY, plan.metrics.primary) if metrics.get(name)
        )
        yield f"Best run by {BEST_BY}: [{markdown_escape(state.best.path.name)}]({links['best run']}) ({shown})"
    yield f"{len(plan.variants)} variants, {len(plan.seeds)} seeds; runs: {state.listed}"
    yield f"Command: {markdown_code(plan.command)}"
    # A picture and its caption are a single paragraph; the first bold paragraph is the answer.
    others = [text for text in report.strip().split("\n\n") if not text.startswith(("# ", "![", "**"))]
    yield "\n\n".join(others)[: TAG_LIMIT // 2]
