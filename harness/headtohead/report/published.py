"""The section on published claims: published and measured values, and the verdicts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from headtohead.analysis.published import OPPOSITE, ClaimResult, setup_value, shared_runs
from headtohead.analysis.study import Analysis
from headtohead.config.labels import listed
from headtohead.report.blocks import (
    Block,
    BulletList,
    CellNote,
    Column,
    DataTable,
    Heading,
    Paragraph,
    TableCell,
    TableRow,
    VerdictLabel,
)
from headtohead.report.cells import mean_cell
from headtohead.report.json_values import interval_record, number
from headtohead.statistics.paired_tests import Interval
from headtohead.storage.contrasts import ClaimRecord, PublishedRecord
from headtohead.storage.frames import Frames
from headtohead.storage.metrics import readable, show, show_count

VERDICT_KINDS = {"agrees": "better", "disagrees": "worse", OPPOSITE: "worse"}


def published_blocks(analysis: Analysis) -> list[Block]:
    """Return the section; empty without claims."""
    record = analysis.frames.record.published
    if record is None:
        return []
    results = analysis.claims
    level = next((result.confidence for result in results if result.difference), None)
    interval = (
        f"The interval is the {100 * level:.4g} % interval of the difference, paired by seed; at this level, all "
        "intervals contain the true differences at the same time in at least 95 of 100 studies, if differences are "
        "normally distributed. "
        if level
        else ""
    )
    return [
        Heading(2, "Published and measured", "published", "Published"),
        Paragraph(
            f"Source: {record.source}. {interval}Agrees: the whole interval is as claimed. Different: the interval "
            "excludes 0, without a decision on the claimed size. Disagrees: the whole interval contradicts the claim; "
            f"{_far(results)}. Inconclusive: none of these. “Equal” is tested by two one-sided tests against the "
            "margin, “at most” is checked on every run.",
            "note",
        ),
        _claims(analysis.frames, results),
        *_shared(analysis.frames, results),
        *_setup(analysis.frames, record),
    ]


def claim_list(analysis: Analysis) -> list[Block]:
    """Return the verdict, the statement and the measured difference of each claim; empty without claims."""
    results = analysis.claims
    lines = []
    for result in results:
        paired, metric = result.difference, result.claim.metric
        measured = ""
        if paired is not None:
            low, high = (show(end, metric, signed=True) for end in (paired.low, paired.high))
            interval = f"{100 * result.confidence:.4g} % interval {low} to {high}" if math.isfinite(paired.low) else ""
            mean = f"{show(paired.mean, metric, signed=True)} {readable(metric)}"
            measured = f" {mean}{f' ({interval})' if interval else ''}."
        lines.append(f"{result.label}: {result.claim.statement}{measured}")
    return [BulletList(tuple(lines))] if lines else []


def _far(results: Sequence[ClaimResult]) -> str:
    far = next((result.far for result in results), ())
    if not far:
        return f"“{OPPOSITE}” if the set-ups were far apart"
    return f"“{OPPOSITE}”, since the set-ups are far apart (other {', '.join(far)})"


def _shared(frames: Frames, results: Sequence[ClaimResult]) -> list[Block]:
    """Return a sentence per group of claims that use the same runs, so that their verdicts are not independent."""
    titles: dict[tuple[int, ...], list[str]] = {}
    for title, numbers in shared_runs(frames, results).items():
        titles.setdefault(numbers, []).append(title)
    lines = tuple(
        f"Claims {listed([*map(str, numbers)])} share the runs of {listed(names)}, so "
        "their verdicts are not independent."
        for numbers, names in titles.items()
    )
    return [BulletList(lines)] if lines else []


def _claims(frames: Frames, results: Sequence[ClaimResult]) -> DataTable:
    columns = (
        Column("claim", align="left"),
        Column("metric", align="left"),
        Column("published"),
        Column("measured"),
        Column("difference,\npublished"),
        Column("difference,\nmeasured"),
        Column("expected", align="left"),
        Column("verdict", align="left"),
    )
    return DataTable(columns, tuple(_claim(frames, number, result) for number, result in enumerate(results, start=1)))


def _claim(frames: Frames, number: int, result: ClaimResult) -> TableRow:
    claim, published = result.claim, result.claim.published
    metric = claim.metric
    sides = [("variant", result.variant), ("against", result.against)]
    names = [_name(frames, claim, side) for side, summary in sides if summary]
    values = [_plain(value) for value in (published.variant, published.against) if value is not None]
    measured = [show(summary.mean, metric) for _, summary in sides if summary]
    return TableRow(
        (
            TableCell(f"{number}. {claim.statement}", (CellNote(" against ".join(names), "interval wrap"),)),
            TableCell(readable(metric), (CellNote(f"published: {published.where}", "interval wrap"),)),
            TableCell(" against ".join(values) or "no value"),
            TableCell(" against ".join(measured)),
            TableCell(_published_difference(result)),
            _difference(result, metric),
            TableCell(_expected(claim), _notes(claim.justification)),
            TableCell(
                VerdictLabel(result.label, VERDICT_KINDS.get(result.label, "none")),
                (CellNote(result.reason, "interval wrap"),),
            ),
        )
    )


def _setup(frames: Frames, record: PublishedRecord) -> list[Block]:
    """Return the differences between the published set-up and this experiment's, and the equal fields."""
    pairs = {name: (published, setup_value(frames, name)) for name, published in record.setup.items()}
    different = {name: pair for name, pair in pairs.items() if not _same(*pair)}
    equal = [name for name in pairs if name not in different]
    blocks: list[Block] = []
    if different:
        rows = (
            TableRow((TableCell(name), *(TableCell(_text(value)) for value in pair)))
            for name, pair in different.items()
        )
        columns = tuple(Column(heading, align="left") for heading in ("field", "published", "this experiment"))
        blocks += [Heading(3, "Differences in set-up"), DataTable(columns, tuple(rows))]
    lines = list(record.differences)
    lines += [f"As published: {', '.join(equal)}."] if equal else []
    return [*blocks, BulletList(tuple(lines))] if lines else blocks


def _name(frames: Frames, claim: ClaimRecord, side: str) -> str:
    slug = claim.against if side == "against" and claim.against else claim.variant
    title, lengths, metric = frames.by_slug[slug].title, claim.lengths, ""
    if side == "against":
        lengths = claim.against_lengths or lengths
        if claim.against_metric:
            metric = f", {readable(claim.against_metric)}"
    return title + metric + (f", {lengths[0]} to {lengths[1]} tokens" if lengths else "")


def _expected(claim: ClaimRecord) -> str:
    by = f" by more than {claim.by:g}" if claim.by else ""
    return {
        "higher": f"higher{by}",
        "lower": f"lower{by}",
        "equal": f"equal to within {_plain(claim.margin)}",
        "at-most": f"at most {_plain(claim.limit)}",
    }[claim.expect]


def _difference(result: ClaimResult, metric: str) -> TableCell:
    """Return the measured difference, or the interval of the variant's score if there is none."""
    if result.difference is None:
        return mean_cell("–", result.variant.low, result.variant.high, metric)
    mean = show(result.difference.mean, metric, signed=True)
    cell = mean_cell(mean, result.difference.low, result.difference.high, metric)
    if result.includes_published is None:
        return cell
    verb = "includes" if result.includes_published else "excludes"
    return replace(cell, notes=(*cell.notes, *_notes(f"{verb} the published {_published_difference(result)}")))


def _notes(text: str | None) -> tuple[CellNote, ...]:
    return (CellNote(text, "interval wrap"),) if text else ()


def _published_difference(result: ClaimResult) -> str:
    difference = result.published_difference
    if difference is None:
        return "–"
    sign = "+" if difference > 0 else "−" if difference < 0 else ""
    return f"{sign}{abs(difference):g}"


def _plain(value: float | None) -> str:
    return "–" if value is None else f"{value:g}".replace("-", "−")


def _same(published: Any, measured: Any) -> bool:
    numbers = all(isinstance(value, int | float) for value in (measured, published))
    return bool(abs(measured - published) <= 1e-9 * abs(published)) if numbers else measured == published


def _text(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return show_count(value) if abs(value) >= 100_000 else f"{value:,}"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return ", ".join(_text(part) for part in value)
    return str(value)


def published_record(analysis: Analysis) -> list[dict[str, Any]]:
    """Return the verdicts on published claims for ``answer.json``."""
    return [
        {
            "statement": result.claim.statement,
            "verdict": result.label,
            "reason": result.reason,
            "difference": None if result.difference is None else number(result.difference.mean),
            "interval": result.difference
            and interval_record(Interval(result.confidence, result.difference.low, result.difference.high)),
            "published_difference": result.published_difference,
            "includes_published": result.includes_published,
        }
        for result in analysis.claims
    ]
