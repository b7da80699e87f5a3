"""The section of a report on published results: theirs, ours, what differs, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from headtohead.analysis.published import Finding, findings
from headtohead.analysis.study import Analysis
from headtohead.report.answer import published_sum
from headtohead.report.rows import Score
from headtohead.statistics.paired_tests import Summary
from headtohead.storage.metrics import readable, show, show_count
from headtohead.storage.records import ClaimRecord, PublishedNumbers


@dataclass(frozen=True)
class ClaimRow:
    """One claim: what is said, both sides as published and as measured here, and the verdict."""

    says: str
    variant: str
    against: str
    metric: str
    where: str
    published: str
    ours: str
    published_difference: str
    difference: Score
    expected: str
    verdict: str
    word: str
    reason: str


@dataclass(frozen=True)
class SetupRow:
    """One difference of set-up."""

    name: str
    theirs: str
    ours: str


@dataclass(frozen=True)
class PublishedSection:
    """What a report says of published results."""

    analysis: Analysis
    record: Mapping[str, Any]

    @cached_property
    def source(self) -> str:
        """Where the claims stand."""
        return str(self.record["source"])

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """The claims, judged."""
        return findings(self.analysis.frames, allow_partial=self.analysis.allow_partial)

    @cached_property
    def rows(self) -> list[ClaimRow]:
        """The claims, in the order of the file."""
        return [self._row(one) for one in self.findings]

    @cached_property
    def sum(self) -> str:
        """How many claims agree, in one sentence."""
        return published_sum(self.findings)

    @cached_property
    def confidence(self) -> str:
        """The level of the intervals that the verdicts rest on."""
        level = next((one.confidence for one in self.findings if one.difference), None)
        return f"{100 * level:.4g} %" if level else ""

    @cached_property
    def setup(self) -> list[SetupRow]:
        """Fields in which the source's set-up differs from ours."""
        rows = []
        for name, theirs in self.record["setup"].items():
            ours = self._ours(name)
            if not _same(ours, theirs):
                rows.append(SetupRow(name, _text(theirs), _text(ours)))
        return rows

    @cached_property
    def alike(self) -> list[str]:
        """Names of the set-up that are as in the source."""
        different = {row.name for row in self.setup}
        return [name for name in self.record["setup"] if name not in different]

    @cached_property
    def differences(self) -> list[str]:
        """Further differences, as the file states them."""
        return [str(one) for one in self.record["differences"]]

    def _row(self, found: Finding) -> ClaimRow:
        claim, printed = found.claim, found.claim.published
        metric = claim.metric
        sides = [("variant", found.variant), ("against", found.against)]
        names = {side: self._name(claim, side) for side, summary in sides if summary}
        ours = [_score(summary, metric) for _, summary in sides if summary]
        return ClaimRow(
            says=claim.says,
            variant=names["variant"],
            against=names.get("against", ""),
            metric=readable(metric),
            where=printed.where,
            published=" against ".join(
                _plain(value) for value in (printed.variant, printed.against) if value is not None
            )
            or "no value",
            ours=" against ".join(ours),
            published_difference=_published_difference(printed),
            difference=_difference(found, metric),
            expected=_expected(claim),
            verdict=found.verdict,
            word={"agrees": "better", "disagrees": "worse"}.get(found.verdict, "none"),
            reason=found.reason,
        )

    def _name(self, claim: ClaimRecord, side: str) -> str:
        slug = claim.against if side == "against" and claim.against else claim.variant
        title, lengths, metric = self.analysis.frames.by_slug[slug].title, claim.lengths, ""
        if side == "against":
            lengths = claim.against_lengths or lengths
            if claim.against_metric:
                metric = f", {readable(claim.against_metric)}"
        return title + metric + (f", {lengths[0]} to {lengths[1]} tokens" if lengths else "")

    def _ours(self, name: str) -> Any:
        frames = self.analysis.frames
        data, variant = frames.experiment.get("data", {}), frames.variants[frames.baseline]
        if "." in name:
            if name in frames.axes:
                return "varied here"
            section, field = name.split(".", 1)
            return (variant.get("config") or {}).get(section, {}).get(field)
        counts, sizes = data.get("counts", {}), data.get("vocabulary", {})
        words = ", ".join(f"{size} {side}" for side, size in sizes.items())
        languages = " to ".join(data.get("languages", []))
        ours: dict[str, Any] = {
            "data": f"{data.get('dataset')}, {languages}, split {data.get('split')}",
            "test": f"{counts.get('test')} pairs",
            "pairs": counts.get("train"),
            "vocabulary": f"{words}, {data.get('tokens')} tokens",
            "parameters": (variant.get("parameters") or {}).get("total"),
            "steps": self._steps(),
            "seeds": len(frames.seeds),
            "decoding": _decoding((variant.get("config") or {}).get("evaluate", {})),
        }
        return ours[name]

    def _steps(self) -> int | None:
        steps = self.analysis.frames.runs["steps"].dropna()
        return int(steps.max()) if len(steps) else None


def published_section(analysis: Analysis) -> PublishedSection | None:
    """Return the section, None for an experiment that makes no claims."""
    record = analysis.frames.experiment.get("published")
    return PublishedSection(analysis, record) if record else None


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


def _difference(found: Finding, metric: str) -> Score:
    if found.difference is None:
        low, high = (show(end, metric) for end in (found.variant.low, found.variant.high))
        return Score("–", f"{low} to {high}" if found.variant.n > 1 else "")
    mean = show(found.difference.mean, metric, signed=True)
    if found.difference.n < 2:
        return Score(mean)
    low, high = show(found.difference.low, metric), show(found.difference.high, metric)
    return Score(mean, f"{low} to {high}")


def _published_difference(printed: PublishedNumbers) -> str:
    if printed.variant is None or printed.against is None:
        return "–"
    difference = round(printed.variant - printed.against, 6)
    sign = "+" if difference > 0 else "−" if difference < 0 else ""
    return f"{sign}{abs(difference):g}"


def _plain(value: float | None) -> str:
    return "–" if value is None else f"{value:g}".replace("-", "−")


def _same(ours: Any, theirs: Any) -> bool:
    numbers = all(isinstance(one, int | float) for one in (ours, theirs))
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
        return ", ".join(_text(one) for one in value)
    return str(value)
