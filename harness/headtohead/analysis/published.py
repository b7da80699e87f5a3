"""Test published claims on an experiment's runs: agrees, disagrees or inconclusive.

Differences are paired by seed. With m tested claims, each interval has level 1 − 5 %/m, so that all
verdicts are correct at the same time in at least 95 of 100 studies.

higher, lower
    Agrees if the whole interval is beyond ``by`` on the expected side; disagrees if the whole
    interval is short of ``by``; otherwise inconclusive.
equal
    Agrees if two one-sided tests at 5 %/m find the difference within the margin; disagrees if the
    whole interval is outside the margin; otherwise inconclusive.
at-most
    A theorem: agrees if no run exceeds the limit, disagrees if a run does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from headtohead.analysis.contrasts import unranked
from headtohead.analysis.pooling import pooled
from headtohead.statistics import paired_tests
from headtohead.statistics.paired_tests import ALPHA, Paired, Summary
from headtohead.storage.frames import Frames
from headtohead.storage.records import ClaimRecord

ClaimVerdict = Literal["agrees", "disagrees", "inconclusive"]
ROUNDING = 1e-9
"""Rounding error by which a score may exceed a limit."""

Scores = Mapping[int, float]


@dataclass(frozen=True)
class ClaimResult:
    """A claim with the measured scores and the verdict.

    ``difference`` is variant − against, with the interval of the verdict; None for ``at-most`` and if no seed
    has both scores. ``reason`` is the criterion of the verdict, or the missing data.
    """

    claim: ClaimRecord
    variant: Summary
    against: Summary | None
    difference: Paired | None
    confidence: float
    verdict: ClaimVerdict
    reason: str


def claim_results(frames: Frames, *, allow_partial: bool = False) -> tuple[ClaimResult, ...]:
    """Return the result of each published claim of the experiment."""
    claims = frames.record.published.claims if frames.record.published else ()
    tested = sum(claim.expect != "at-most" for claim in claims)
    return tuple(_claim_result(frames, claim, ALPHA / max(tested, 1), allow_partial) for claim in claims)


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
        verdict, reason = _equal(sides, difference, claim.margin or 0.0, alpha)
    else:
        verdict, reason = _directed(sides, claim, alpha)
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
    if highest > limit + ROUNDING:
        return "disagrees", "a run exceeds the limit"
    return "agrees", f"none of {len(scores)} runs exceeds the limit"


def _equal(
    sides: tuple[list[float], list[float]], difference: Paired, margin: float, alpha: float
) -> tuple[ClaimVerdict, str]:
    test = paired_tests.equivalence(*sides, margin=margin, alpha=alpha)
    if test.n < 2:
        return "inconclusive", "one seed"
    if test.equivalent:
        return "agrees", f"within the margin, p = {test.p:.2g} (two one-sided tests)"
    beyond = min(abs(difference.low), abs(difference.high)) > margin
    if beyond and difference.low * difference.high > 0 and _decided(difference, alpha):
        return "disagrees", "the whole interval is outside the margin"
    if difference.kind != "varied":
        return "inconclusive", _CONSTANT
    return "inconclusive", "the interval contains differences within and outside the margin"


def _directed(sides: tuple[list[float], list[float]], claim: ClaimRecord, alpha: float) -> tuple[ClaimVerdict, str]:
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
    if result.high < 0 and _decided(result, alpha):
        expected_direction = by > 0 and sign * (np.mean(sides[0]) - np.mean(sides[1])) > 0
        return "disagrees", (
            f"in the expected direction, but by less than {by:g}"
            if expected_direction
            else "the whole interval is on the other side"
        )
    if result.kind != "varied":
        return "inconclusive", _CONSTANT
    return "inconclusive", "the interval contains differences on both sides"


_CONSTANT = "the difference is the same in every seed, and there are too few seeds for a verdict"


def _beyond(by: float) -> str:
    return f", beyond {by:g}" if by else ""


def _decided(result: Paired, alpha: float) -> bool:
    """Return whether an interval allows a verdict; an interval that is a point requires a small sign-flip p."""
    return result.kind == "varied" or result.sign_flip_p <= alpha
