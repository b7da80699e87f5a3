"""The page of a study in MLflow: tags, metrics and description of its summary run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path

from typing_extensions import TypedDict

from headtohead.config.labels import shortened_slug
from headtohead.errors import HeadToHeadError
from headtohead.escaping import markdown_code, markdown_escape, single_line
from headtohead.storage import states
from headtohead.storage.progress import duration, read_progress, seconds_left
from headtohead.storage.record import Number, read_record
from headtohead.storage.staleness import stale_changes
from headtohead.tracking.run_page import mlflow_name, run_name, text
from headtohead.tracking.study import TrackedRun, TrackedStudy, milliseconds

BEST_BY = "valid/loss"
"""Metric of the best run; the lowest value is the best."""


class _Remark(TypedDict):
    severity: str
    text: str


DIRECTIONS = "Better, worse: the interval excludes 0. Undetected: it contains 0, which does not show equality."
SIZES = " Within, beyond: the interval of the size is entirely within, or beyond, the margin. Unclear: neither."


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
    differences: Sequence[Mapping[str, str]]
    setup: str
    remarks: Sequence[_Remark]
    scores: Mapping[str, Number]
    contrasts: Sequence[_Contrast]


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

    @classmethod
    def read(cls, study: TrackedStudy, *, is_last: bool, report: Path | None = None) -> StudyPage:
        """Return the page; with ``is_last``, with results and changes, and runs without a process are KILLED.

        Args:
            study: The study.
            is_last: Whether no run is in training.
            report: The folder of the report, which is ignored if its ``answer.json`` is damaged.
        """
        page, scores = cls(study), list[tuple[float, int, TrackedRun]]()
        data = study.record.by_slug[study.record.baseline].config.data
        for number, run in enumerate(study.runs()):
            state = "UNREADABLE"
            with suppress(HeadToHeadError):
                status = run.observed(sweep=is_last)
                state = status.state if run.begun() else "waiting"
                page.ended = max(page.ended or 0, milliseconds(status.ended) or 0) or None
                if is_last and state == states.DONE:
                    metrics, execution = run.final_metrics, run.record.execution
                    loss = metrics.get(BEST_BY)
                    if loss is not None and math.isfinite(loss) and run.variant.config.data == data:
                        scores.append((loss, number, run))
                    if execution and not run.reused_from:
                        seconds = metrics.get("system/wall_seconds") or 0.0
                        page.hours += seconds / 3600 / max(1, len(execution.stack))
            page.counts[state] += 1
        page.best = min(scores)[2] if scores else None
        page.stale = "; ".join(stale_changes(study)) if is_last else ""
        with suppress(HeadToHeadError):
            page.answer = read_record(Answer, report / "answer.json") if report else None
        return page

    @property
    def is_pending(self) -> bool:
        """Whether a run has not ended."""
        return bool(self.counts.keys() & (states.PENDING | {"waiting"}))

    @cached_property
    def headline(self) -> str:
        """The answer in a line; without an answer, how many runs have a result and when the last run will end.

        A change since the report was written is named in front, as the report does.
        """
        if self.answer is not None:
            line = single_line(self.answer["answer"])
            return (
                f"STALE ({self.stale}): {line}"
                if self.stale and not line.startswith("STALE")
                else line
            )
        name, left = self.study.name, None
        done = sum(self.counts[state] for state in states.RESULTS)
        line = f"No answer yet: {done} of {self.counts.total()} runs have a result"
        if not self.is_pending:
            return f"{line}; h2h report {name} writes the report, and h2h sync {name} logs it"
        with suppress(HeadToHeadError):
            left = seconds_left(read_progress(self.study.path))
        if left is None:
            return line
        end = datetime.now(UTC) + timedelta(seconds=left)
        return f"{line}; training ends at about {end:%Y-%m-%d %H:%M} UTC, in {duration(left)}"

    @cached_property
    def contrasts(self) -> dict[str, _Contrast]:
        """The main contrasts by a name for MLflow: the left side if no other contrast has it, else both sides."""
        found = self.answer["contrasts"] if self.answer else ()
        main = {contrast["label"]: contrast for contrast in found if contrast["main"]}
        lefts = Counter(label.partition(" against ")[0] for label in main)
        short = {
            label: left for label in main if lefts[left := label.partition(" against ")[0]] == 1
        }
        names = {label: mlflow_name(short.get(label, label).replace("/", "-")) for label in main}
        uses = Counter(names.values())
        return {
            shortened_slug(name, label if uses[name] > 1 else ""): main[label]
            for label, name in names.items()
        }

    @property
    def verdicts(self) -> Counter[str]:
        """The number of main contrasts by verdict."""
        return Counter(contrast["direction"] for contrast in self.contrasts.values())

    @property
    def metrics(self) -> dict[str, float]:
        """Numbers of runs, hours, the baseline's score, and of each main contrast difference, interval and p.

        MLflow shows all digits, so values other than counts have four significant digits.
        """
        found: dict[str, float | None] = {
            "runs": self.counts.total(),
            "runs_done": self.counts[states.DONE],
        }
        if self.answer is not None:
            found |= {
                "hours": self.hours,
                "baseline": self.answer["scores"].get(self.study.record.baseline),
            }
            found |= {name: self.verdicts[name] for name in ("better", "worse")}
        found = {f"study/{name}": value for name, value in found.items()}
        for name, contrast in self.contrasts.items():
            found |= {f"diff/{name}": contrast["difference"], f"p/{name}": contrast["holm_p"]}
            found |= {
                f"{end}/{name}": (contrast["interval"] or {}).get(end) for end in ("low", "high")
            }
        shown = {name: value for name, value in found.items() if value is not None}
        return {
            name: float(value if isinstance(value, int) else f"{value:.4g}")
            for name, value in shown.items()
        }

    @property
    def tags(self) -> dict[str, str]:
        """The tags that are columns of the list of studies."""
        plan = self.study.record
        values = {
            axis: dict.fromkeys(text(v.axes.get(axis)) for v in plan.variants) for axis in plan.axes
        }
        design = [f"{axis}: {', '.join(found)}" for axis, found in values.items()]
        tags = {
            "h2h.question": single_line(plan.question),
            "h2h.answer": self.headline,
            "h2h.verdicts": ", ".join(
                f"{count} {name}" for name, count in self.verdicts.most_common()
            )
            or "–",
            "h2h.states": ", ".join(
                f"{count} {state}" for state, count in self.counts.most_common()
            ),
            "h2h.metric": plan.metrics.primary,
            "h2h.design": single_line(
                "; ".join([*design, f"baseline: {plan.by_slug[plan.baseline].title}"])
            ),
            "h2h.stale": self.stale,
        }
        return {name: value for name, value in tags.items() if value}

    def note(self, links: str, figures: str, best: str) -> Iterator[str]:
        """Yield the paragraphs of the description: what was asked, the answer, how sure it is, and the best run.

        Args:
            links: Links to further pages, in Markdown.
            figures: The figures of the report in Markdown, or nothing.
            best: Address of the page of the best run, or nothing.
        """
        plan, answer = self.study.record, self.answer
        yield f"**{markdown_escape(plan.question)}** {markdown_escape(self.headline)}"
        yield links
        if self.best is not None and best:
            metrics = self.best.final_metrics
            values = {
                key: metrics[key] for key in (BEST_BY, plan.metrics.primary) if key in metrics
            }
            shown = (f"{key} {value:.4g}" for key, value in values.items())
            name = markdown_escape(run_name(self.best))
            yield f"Best run by {BEST_BY}, not by test scores: [{name}]({best}) ({', '.join(shown)})"
        yield figures
        if rows := answer["differences"] if answer else ():
            table = [[*rows[0]], ["---"] * len(rows[0]), *(row.values() for row in rows)]
            cells = (
                [markdown_escape(" · ".join(cell.split("\n"))) for cell in row] for row in table
            )
            yield "\n".join(f"| {' | '.join(row)} |" for row in cells)
            yield DIRECTIONS + SIZES * (len(rows[0]) > 3)
        for remark in answer["remarks"] if answer else ():
            yield f"**{remark['severity']}:** {markdown_escape(remark['text'])}" * (
                remark["severity"] != "note"
            )
        yield markdown_escape(answer["setup"]) if answer else ""
        yield f"{len(plan.variants)} variants, {len(plan.seeds)} seeds; runs: {self.tags['h2h.states']}"
        yield f"Command: {markdown_code(plan.command)}"
