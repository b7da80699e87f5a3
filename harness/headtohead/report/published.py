"""The section on published results: what each claim says, what was measured here, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headtohead.analysis.published import Finding, findings
from headtohead.analysis.study import Analysis
from headtohead.report.answer import published_sum
from headtohead.report.blocks import (
    Block,
    BulletList,
    Column,
    Heading,
    Note,
    Paragraph,
    Table,
    TableCell,
    TableRow,
    VerdictLabel,
)
from headtohead.report.cells import mean_cell
from headtohead.statistics.paired_tests import Summary
from headtohead.storage.frames import Frames
from headtohead.storage.metrics import readable, show, show_count
from headtohead.storage.records import ClaimRecord, PublishedNumbers

VERDICT_KINDS = {"agrees": "better", "disagrees": "worse"}


def published_summary(analysis: Analysis) -> str | None:
    """Return how many claims agree, None for an experiment that makes no claims."""
    found = _findings(analysis)
    return published_sum(found) if found else None


def published_blocks(analysis: Analysis) -> list[Block]:
    """Return the section, nothing for an experiment that makes no claims."""
    record = analysis.frames.experiment.get("published")
    if not record:
        return []
    found = _findings(analysis)
    level = next((finding.confidence for finding in found if finding.difference), None)
    interval = (
        f"The interval is the {100 * level:.4g} % interval of the difference, paired by seed: with it all verdicts "
        "together are right in 95 of 100 studies. "
        if level
        else ""
    )
    return [
        Heading(2, "Published and measured here", "published", "Published"),
        Paragraph(
            f"Source: {record['source']}. {interval}Agrees: the whole interval lies where the claim says. Disagrees: "
            "it lies wholly elsewhere. Cannot tell: neither. “Equal” is judged by two one-sided tests against the "
            "margin, “at most” by every single run.",
            "note",
        ),
        _claims(analysis.frames, found),
        *_setup(analysis.frames, record),
    ]


def _findings(analysis: Analysis) -> Sequence[Finding]:
    if not analysis.frames.experiment.get("published"):
        return ()
    return findings(analysis.frames, allow_partial=analysis.allow_partial)


def _claims(frames: Frames, found: Sequence[Finding]) -> Table:
    columns = (
        Column("claim", align="left"),
        Column("metric", align="left"),
        Column("published"),
        Column("here"),
        Column("difference,\npublished"),
        Column("difference,\nhere"),
        Column("expected", align="left"),
        Column("verdict", align="left"),
    )
    return Table(columns, tuple(_claim(frames, finding) for finding in found))


def _claim(frames: Frames, found: Finding) -> TableRow:
    claim, printed = found.claim, found.claim.published
    metric = claim.metric
    sides = [("variant", found.variant), ("against", found.against)]
    names = [_name(frames, claim, side) for side, summary in sides if summary]
    published = [_plain(value) for value in (printed.variant, printed.against) if value is not None]
    measured = [_score(summary, metric) for _, summary in sides if summary]
    return TableRow(
        (
            TableCell(claim.says, (Note(" against ".join(names), "interval wrap"),)),
            TableCell(readable(metric), (Note(f"published: {printed.where}", "interval wrap"),)),
            TableCell(" against ".join(published) or "no value"),
            TableCell(" against ".join(measured)),
            TableCell(_published_difference(printed)),
            _difference(found, metric),
            TableCell(_expected(claim)),
            TableCell(
                VerdictLabel(found.verdict, VERDICT_KINDS.get(found.verdict, "none")),
                (Note(found.reason, "interval wrap"),),
            ),
        )
    )


def _setup(frames: Frames, record: Mapping[str, Any]) -> list[Block]:
    """Return how the source's set-up differs from this experiment's, and what is alike."""
    pairs = {name: (theirs, _ours(frames, name)) for name, theirs in record["setup"].items()}
    different = {name: pair for name, pair in pairs.items() if not _same(*pair)}
    alike = [name for name in pairs if name not in different]
    blocks: list[Block] = []
    if different:
        rows = (
            TableRow((TableCell(name), *(TableCell(_text(value)) for value in pair)))
            for name, pair in different.items()
        )
        columns = tuple(Column(heading, align="left") for heading in ("field", "published", "here"))
        blocks += [Heading(3, "Differences of set-up"), Table(columns, tuple(rows))]
    lines = [str(difference) for difference in record["differences"]]
    lines += [f"As published: {', '.join(alike)}."] if alike else []
    return [*blocks, BulletList(tuple(lines))] if lines else blocks


def _name(frames: Frames, claim: ClaimRecord, side: str) -> str:
    slug = claim.against if side == "against" and claim.against else claim.variant
    title, lengths, metric = frames.by_slug[slug].title, claim.lengths, ""
    if side == "against":
        lengths = claim.against_lengths or lengths
        if claim.against_metric:
            metric = f", {readable(claim.against_metric)}"
    return title + metric + (f", {lengths[0]} to {lengths[1]} tokens" if lengths else "")


def _ours(frames: Frames, name: str) -> Any:
    """Return the value of a field of set-up in this experiment."""
    data, variant = frames.experiment.get("data", {}), frames.variants[frames.baseline]
    if "." in name:
        if name in frames.axes:
            return "varied here"
        section, field = name.split(".", 1)
        return (variant.get("config") or {}).get(section, {}).get(field)
    counts, sizes = data.get("counts", {}), data.get("vocabulary", {})
    words = ", ".join(f"{size} {side}" for side, size in sizes.items())
    languages = " to ".join(data.get("languages", []))
    steps = frames.runs["steps"].dropna()
    ours: dict[str, Any] = {
        "data": f"{data.get('dataset')}, {languages}, split {data.get('split')}",
        "test": f"{counts.get('test')} pairs",
        "pairs": counts.get("train"),
        "vocabulary": f"{words}, {data.get('tokens')} tokens",
        "parameters": (variant.get("parameters") or {}).get("total"),
        "steps": int(steps.max()) if len(steps) else None,
        "seeds": len(frames.seeds),
        "decoding": _decoding((variant.get("config") or {}).get("evaluate", {})),
    }
    return ours[name]


def _decoding(evaluate: Mapping[str, Any]) -> str:
    beam = evaluate.get("beam")
    if beam is None:
        return str(evaluate.get("decode", "greedy"))
    return f"beam {beam['size']}, length penalty {beam['length_penalty']:g}"


def _expected(claim: ClaimRecord) -> str:
    by = f" by more than {claim.by:g}" if claim.by else ""
    return {
        "higher": f"higher{by}",
        "lower": f"lower{by}",
        "equal": f"equal to within {_plain(claim.margin)}",
        "at-most": f"at most {_plain(claim.limit)}",
    }[claim.expect]


def _score(summary: Summary, metric: str) -> str:
    return show(summary.mean, metric)


def _difference(found: Finding, metric: str) -> TableCell:
    """Return the measured difference; without one, the interval of the variant itself."""
    if found.difference is None:
        return mean_cell("–", found.variant.low, found.variant.high, metric)
    mean = show(found.difference.mean, metric, signed=True)
    return mean_cell(mean, found.difference.low, found.difference.high, metric)


def _published_difference(printed: PublishedNumbers) -> str:
    if printed.variant is None or printed.against is None:
        return "–"
    difference = round(printed.variant - printed.against, 6)
    sign = "+" if difference > 0 else "−" if difference < 0 else ""
    return f"{sign}{abs(difference):g}"


def _plain(value: float | None) -> str:
    return "–" if value is None else f"{value:g}".replace("-", "−")


def _same(theirs: Any, ours: Any) -> bool:
    numbers = all(isinstance(value, int | float) for value in (ours, theirs))
    return bool(abs(ours - theirs) <= 1e-9 * abs(theirs)) if numbers else ours == theirs


def _text(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and abs(value) >= 100_000:
        return show_count(value)
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return ", ".join(_text(part) for part in value)
    return str(value)
