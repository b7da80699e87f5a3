"""Sequential seeds: which looks were planned and taken, and why the study stopped."""

from __future__ import annotations

from typing import Any

from headtohead.analysis.study import Analysis, LooksStatus
from headtohead.config.labels import listed
from headtohead.storage.metrics import counted

METHOD = (
    "Looks: the study is judged at several planned numbers of seeds. Every p-value is first adjusted for all planned "
    "looks, by the joint distribution of their t-tests with a constant level (Pocock), then by Holm. Intervals at the "
    "Holm step have the level of the look."
)


def looks_line(status: LooksStatus) -> str:
    """Return the number of the look, the undecided contrasts, and the next look or why there is none."""
    number = sum(seeds <= status.seeds for seeds in status.looks.seeds)
    return f"look {number} of {len(status.looks.seeds)}, {status.seeds} seeds: {_outcome(status)}"


def looks_facts(analysis: Analysis) -> list[str]:
    """Return a sentence on the looks and a sentence on the end of the study; empty with a fixed number of seeds."""
    status, record = analysis.looks, analysis.frames.record.looks
    if status is None:
        if record is None or not analysis.late_looks:
            return []
        return [
            f"The number of seeds was fixed after results existed, on {record.since[:10]}; before, looks were planned."
        ]
    planned = listed([*map(str, status.looks.seeds)])
    origin = f"; they were set after results existed, on {record.since[:10]}" if status.late and record else ""
    return [
        f"The study is judged at {planned} seeds{origin}. Each of these looks tests at {100 * status.level:.2g} %, so "
        f"that the error rate over all looks is 5 %. Of {len(status.looks.seeds)} planned looks, {len(status.taken)} "
        f"{'was' if len(status.taken) == 1 else 'were'} taken: {_outcome(status)}."
    ]


def looks_caution(analysis: Analysis) -> str | None:
    """Return a warning if the looks were set or changed after results existed, else None."""
    record = analysis.frames.record.looks
    if record is None or not analysis.late_looks:
        return None
    return (
        f"The planned number of seeds was changed after results existed, on {record.since[:10]}: wrong verdicts can be "
        "more frequent than 5 %."
    )


def looks_record(analysis: Analysis) -> dict[str, Any] | None:
    """Return the looks for ``answer.json``, or None with a fixed number of seeds."""
    status = analysis.looks
    if status is None:
        return None
    return {
        "planned": list(status.looks.seeds),
        "taken": list(status.taken),
        "level": status.level,
        "stopped": _reason(status),
        "undecided": list(status.undecided),
        "set_after_results": status.late,
    }


def _reason(status: LooksStatus) -> str | None:
    """Return ``at_most``, ``not_ranked`` or ``decided``, or None if the study goes on."""
    if not status.complete or status.next is not None:
        return None
    if status.undecided:
        return "at_most"
    return "not_ranked" if status.unranked else "decided"


def _outcome(status: LooksStatus) -> str:
    undecided = f"{len(status.undecided)} contrast{'s' * (len(status.undecided) != 1)} undecided"
    if not status.complete:
        return "runs of this look have no result yet"
    if status.next is not None:
        return f"{undecided}, next look at {status.next} seeds"
    if status.unranked and not status.undecided:
        return f"stopped; {counted(len(status.unranked), 'contrast')} cannot be tested"
    if not status.undecided:
        return "stopped because no main contrast is inconclusive"
    return f"stopped at the maximum of {status.seeds} seeds, {undecided}"
