"""Test published claims on an experiment's runs: agrees, different, disagrees or inconclusive.

Differences are paired by seed. With m tested claims, each interval has level 1 − 5 %/m, so that all
verdicts are correct at the same time in at least 95 of 100 studies.

higher, lower
    Agrees if the whole interval is beyond ``by`` on the expected side; different if it is on the
    expected side of 0 but not beyond ``by``; disagrees if the whole interval is short of ``by``.
equal
    Agrees if two one-sided tests at 5 %/m find the difference within the margin; disagrees if the
    whole interval is outside the margin; different if the interval excludes 0 but not the margin.
at-most
    A theorem: agrees if no run exceeds the limit, disagrees if a run does.

With sequential seeds, 5 %/m is replaced by the level of a look for two-sided tests, which is smaller than that for
one-sided tests.

Otherwise a claim is inconclusive. Where the set-ups are far apart, a claim that disagrees is labelled
"opposite in this set-up".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from headtohead.analysis.pooling import pooled
from headtohead.analysis.scores import unranked
from headtohead.schema.config_input import SHORTHANDS
from headtohead.statistics import paired_tests
from headtohead.statistics.paired_tests import ALPHA, Paired, Summary
from headtohead.storage.contrasts import ClaimRecord
from headtohead.storage.frames import Frames

ClaimVerdict = Literal["agrees", "different", "disagrees", "inconclusive"]
OPPOSITE = "opposite in this set-up"
"""Label of a claim that disagrees if the set-ups are far apart."""

FAR = 10.0
"""Factor between numbers of pairs, parameters or steps from which set-ups are far apart."""

SIZES = ("pairs", "parameters", "steps")
LIMIT_TOLERANCE = 1e-9
"""Rounding error by which a score may exceed a limit."""

Scores = Mapping[int, float]


@dataclass(frozen=True)
class ClaimResult:
    """A claim with the measured scores and the verdict.

    ``difference`` is variant − against, with the interval of the verdict; None for ``at-most`` and if no seed
    has both scores. ``reason`` is the criterion of the verdict, or the missing data. ``far`` holds the differences that
    make the set-ups far apart.
    """

    claim: ClaimRecord
    variant: Summary
    against: Summary | None
    difference: Paired | None
    confidence: float
    verdict: ClaimVerdict
    reason: str
    far: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The verdict as reports print it; a broken theorem disagrees in every set-up."""
        is_far = self.verdict == "disagrees" and self.far and self.claim.expect != "at-most"
        return OPPOSITE if is_far else self.verdict

    @property
    def published_difference(self) -> float | None:
        """The published difference, or None if the source does not print both values."""
        published = self.claim.published
        if published.variant is None or published.against is None:
            return None
        return round(published.variant - published.against, 6)

    @property
    def includes_published(self) -> bool | None:
        """Whether the interval includes the published difference; None without both, or if their units differ."""
        published, measured = self.published_difference, self.difference
        if not self.claim.published.comparable or published is None or measured is None or math.isnan(measured.low):
            return None
        rounding = 1e-6  # of the published difference
        return bool(measured.low - rounding <= published <= measured.high + rounding)


def claim_results(frames: Frames, *, allow_partial: bool = False) -> tuple[ClaimResult, ...]:
    """Return the result of each published claim of the experiment."""
    claims = frames.record.published.claims if frames.record.published else ()
    tested = sum(claim.expect != "at-most" for claim in claims)
    far = far_differences(frames)
    level = ALPHA / max(tested, 1)
    level = frames.looks.level(level) if frames.looks else level
    results = (_claim_result(frames, claim, level, allow_partial) for claim in claims)
    return tuple(replace(result, far=far) for result in results)


def shared_runs(frames: Frames, results: Sequence[ClaimResult]) -> dict[str, tuple[int, ...]]:
    """Return, by title of a variant, the numbers of the claims that use its runs, if there are several."""
    users: dict[str, list[int]] = {}
    for number, result in enumerate(results, start=1):
        sides = [result.claim.variant, *([result.claim.against] if result.claim.against else [])]
        for slug in dict.fromkeys(map(frames.trained, sides)):
            users.setdefault(slug, []).append(number)
    return {frames.by_slug[slug].title: tuple(numbers) for slug, numbers in users.items() if len(numbers) > 1}


def far_differences(frames: Frames) -> tuple[str, ...]:
    """Return the differences that make the published set-up and this one far apart; empty if they are not.

    Set-ups are far apart if the file states other data, or if the number of pairs, parameters or steps differs by a
    factor of ten or more.
    """
    setup = frames.record.published.setup if frames.record.published else {}
    found = ["data"] if "data" in setup and setup["data"] != setup_value(frames, "data") else []
    for name in SIZES:
        published, measured = setup.get(name), setup_value(frames, name)
        if all(isinstance(value, int | float) and value > 0 for value in (published, measured)):
            factor = published / measured
            if max(factor, 1 / factor) >= FAR:
                found.append(name)
    return tuple(found)


def setup_value(frames: Frames, name: str) -> Any:
    """Return this experiment's value of a field of the set-up."""
    data, variant = frames.record.data, frames.by_slug[frames.baseline]
    if "." in name:
        if name in frames.axes:
            return "varied"
        section, field = name.split(".", 1)
        fields = variant.config.get(section, {})
        if (section, field) not in SHORTHANDS:
            return fields.get(field)
        parts = {part: fields.get(part) for part in SHORTHANDS[section, field]}
        if len(set(parts.values())) == 1:
            return next(iter(parts.values()))
        return ", ".join(f"{part} {value}" for part, value in parts.items())
    counts, sizes = data.get("counts", {}), data.get("vocabulary", {})
    vocabulary = ", ".join(f"{size} {side}" for side, size in sizes.items())
    languages = " to ".join(data.get("languages", []))
    values: dict[str, Any] = {
        "data": f"{data.get('dataset')}, {languages}, split {data.get('split')}",
        "test": f"{counts.get('test')} pairs",
        "pairs": counts.get("train"),
        "vocabulary": f"{vocabulary}, {data.get('tokens')} tokens",
        "parameters": variant.counts.total,
        "steps": max(frames.trained_steps, default=None),
        "seeds": len(frames.seeds),
        "decoding": _decoding(variant.config.get("evaluate", {})),
    }
    return values.get(name)


def _decoding(evaluate: Mapping[str, Any]) -> str:
    beam = evaluate.get("beam")
    if beam is None:
        return str(evaluate.get("decode", "greedy"))
    return f"beam {beam['size']}, length penalty {beam['length_penalty']:g}"


def side_scores(frames: Frames, claim: ClaimRecord, side: str) -> Scores:
    """Return the scores of a claim's ``variant`` or ``against`` by seed."""
    slug = claim.variant if side == "variant" else claim.against
    assert slug is not None
    metric, lengths = claim.metric, claim.lengths
    if side == "against":
        metric = claim.against_metric or metric
        lengths = claim.against_lengths or lengths
    if lengths is None:
        return frames.scores(slug, metric)
    return _within(frames, slug, metric, lengths)


def _within(frames: Frames, slug: str, metric: str, lengths: Sequence[int]) -> Scores:
    """Return the score over the test sentences of these lengths, by seed."""
    table = frames.buckets
    if table.empty:
        return {}
    low, high = lengths
    inside = table[(table["low"] >= low) & (table["high"] <= high)]
    scores = {}
    for run, seed in frames.rows(slug)["seed"].items():
        score = pooled(inside[inside["run"] == run], metric)
        if score is not None:
            scores[int(seed)] = score
    return scores


def _claim_result(frames: Frames, claim: ClaimRecord, alpha: float, allow_partial: bool) -> ClaimResult:
    variant_scores = side_scores(frames, claim, "variant")
    against_scores = side_scores(frames, claim, "against") if claim.against else None
    missing = None if allow_partial else _missing(frames, claim, variant_scores, against_scores)
    left = paired_tests.summarise(list(variant_scores.values()))
    right = None if against_scores is None else paired_tests.summarise(list(against_scores.values()))
    if claim.expect == "at-most":
        verdict, reason = _bounded(variant_scores, claim.limit or 0.0)
        return ClaimResult(claim, left, None, None, 1 - ALPHA, *_unless(missing, verdict, reason))
    seeds = sorted(variant_scores.keys() & (against_scores or {}).keys())
    sides = [variant_scores[seed] for seed in seeds], [(against_scores or {})[seed] for seed in seeds]
    difference = paired_tests.paired(*sides, confidence=1 - alpha) if seeds else None
    if difference is None:
        verdict, reason = "inconclusive", "no seed has both scores"
    elif claim.expect == "equal":
        verdict, reason = _equal(difference, claim, alpha)
    else:
        verdict, reason = _directed(sides, difference, claim, alpha)
    return ClaimResult(claim, left, right, difference, 1 - alpha, *_unless(missing, verdict, reason))


def _unless(missing: str | None, verdict: ClaimVerdict, reason: str) -> tuple[ClaimVerdict, str]:
    return ("inconclusive", missing) if missing else (verdict, reason)


def _missing(frames: Frames, claim: ClaimRecord, variant_scores: Scores, against_scores: Scores | None) -> str | None:
    """Return the data that a verdict lacks: seeds, lengths, ablated heads or the same data; or None."""
    sides = [(claim.variant, claim.metric, variant_scores)]
    if claim.against is not None and against_scores is not None:
        sides.append((claim.against, claim.against_metric or claim.metric, against_scores))
    for slug, metric, scores in sides:
        missing = [seed for seed in frames.seeds if seed not in scores]
        if not missing:
            continue
        title = frames.by_slug[slug].title
        if metric.startswith("heads/"):
            return f"no head ablation; run h2h ablate-heads {frames.name}, then h2h report"
        reason = unranked(frames, slug, frames.record.metrics.primary)
        if reason:
            return f"{title}: {reason}"
        return f"{title}: {len(missing)} of {len(frames.seeds)} seeds without {metric}" + (
            " at these lengths" if claim.lengths else ""
        )
    return None if frames.same_data(slug for slug, _, _ in sides) else "the two sides use different data"


def _bounded(scores: Scores, limit: float) -> tuple[ClaimVerdict, str]:
    if not scores:
        return "inconclusive", "no run has a score"
    highest = max(scores.values())
    if highest > limit + LIMIT_TOLERANCE:
        return "disagrees", "a run exceeds the limit"
    return "agrees", f"none of {len(scores)} runs exceeds the limit"


def _equal(difference: Paired, claim: ClaimRecord, alpha: float) -> tuple[ClaimVerdict, str]:
    margin, p = claim.margin or 0.0, paired_tests.equivalence_p(difference, claim.margin or 0.0)
    if difference.n < 2:
        return "inconclusive", "one seed"
    if p <= alpha:
        return "agrees", f"within the margin, p = {p:.2g} (two one-sided tests)"
    if difference.low * difference.high > 0 and _decided(difference, alpha):
        if min(abs(difference.low), abs(difference.high)) > margin:
            return "disagrees", "the whole interval is outside the margin"
        return "different", "the interval excludes 0; whether the difference is within the margin is unclear"
    if difference.kind != "varied":
        return "inconclusive", _constant(difference)
    return "inconclusive", "the interval contains 0 and differences outside the margin"


def _directed(
    sides: tuple[list[float], list[float]], difference: Paired, claim: ClaimRecord, alpha: float
) -> tuple[ClaimVerdict, str]:
    """Test the difference in the expected direction against ``by``, the smallest relevant difference."""
    sign = 1.0 if claim.expect == "higher" else -1.0
    by = claim.by
    scale = max(abs(value) for side in sides for value in side)
    excess = sign * (np.array(sides[0]) - np.array(sides[1])) - by
    result = paired_tests.paired_differences(excess, scale=scale, confidence=1 - alpha)
    if result.n < 2:
        return "inconclusive", "one seed"
    if result.low > 0 and _decided(result, alpha):
        return "agrees", "the whole interval is on the expected side" + _beyond(by)
    is_short = result.high < 0 and _decided(result, alpha)
    if min(sign * difference.low, sign * difference.high) > 0 and _decided(difference, alpha):
        size = f"by less than {by:g}" if is_short else f"whether by more than {by:g} is unclear"
        return "different", f"in the expected direction, {size}"
    if is_short:
        other_side = max(sign * difference.low, sign * difference.high) < 0
        return "disagrees", f"the whole interval is {'on the other side' if other_side else f'short of {by:g}'}"
    if result.kind != "varied":
        return "inconclusive", _constant(difference)
    return "inconclusive", "the interval contains differences on both sides"


def _constant(difference: Paired) -> str:
    """Return the reason for a difference that is equal in every seed."""
    if difference.mean == 0:
        return "both sides have the same score in every seed"
    return "the difference is the same in every seed, and there are too few seeds for a verdict"


def _beyond(by: float) -> str:
    return f", beyond {by:g}" if by else ""


def _decided(result: Paired, alpha: float) -> bool:
    """Return whether an interval allows a verdict; an interval that is a point requires a small sign-flip p."""
    return result.kind == "varied" or result.sign_flip_p <= alpha
