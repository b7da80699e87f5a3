"""Published claims held against an experiment's runs: agrees, disagrees or cannot tell, by rule.

Every difference is taken seed by seed. With m claims of a file that are tested, each is judged by
the interval of the level 1 − 5 %/m, so that all verdicts are right together in 95 of 100 studies.

higher, lower
    Agrees if the interval lies beyond ``by`` on the expected side, disagrees if it lies short of
    it, else it cannot be told.
equal
    Agrees if two one-sided tests at 5 %/m place the difference within the margin, disagrees if the
    interval lies outside it, else it cannot be told.
at-most
    A theorem: agrees if no run passes the limit, disagrees if one does.
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

Verdict = Literal["agrees", "disagrees", "cannot tell"]
ABOVE = 1e-9
"""What a score may pass a limit by: rounding."""

Scores = Mapping[int, float]


@dataclass(frozen=True)
class Finding:
    """A claim as the file has it, our side of it, and the verdict.

    ``difference`` is variant − against, with the interval that the verdict rests on; None with
    at-most, and where there is nothing to compare. ``reason`` says what decided, or is missing.
    """

    claim: ClaimRecord
    variant: Summary
    against: Summary | None
    difference: Paired | None
    confidence: float
    verdict: Verdict
    reason: str


def findings(frames: Frames, *, allow_partial: bool = False) -> tuple[Finding, ...]:
    """Return a finding for each claim of the experiment; none where it makes no claims."""
    claims = frames.record.published.claims if frames.record.published else ()
    tested = sum(claim.expect != "at-most" for claim in claims)
    return tuple(_finding(frames, claim, ALPHA / max(tested, 1), allow_partial) for claim in claims)


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
    """Return the score over all test sentences of these lengths, by seed."""
    table = frames.buckets
    if table.empty:
        return {}
    low, high = lengths
    inside = table[(table["low"] >= low) & (table["high"] <= high)]
    found = {}
    for run, seed in frames.rows(slug)["seed"].items():
        score = pooled(inside[inside["run"] == run], metric)
        if score is not None:
            found[int(seed)] = score
    return found


def _finding(frames: Frames, claim: ClaimRecord, alpha: float, allow_partial: bool) -> Finding:
    ours = side_scores(frames, claim, "variant")
    theirs = side_scores(frames, claim, "against") if claim.against else None
    missing = None if allow_partial else _missing(frames, claim, ours, theirs)
    left = paired_tests.summarise(list(ours.values()))
    right = None if theirs is None else paired_tests.summarise(list(theirs.values()))
    if claim.expect == "at-most":
        verdict, reason = _bounded(ours, claim.limit or 0.0)
        return Finding(claim, left, None, None, 1 - ALPHA, *_unless(missing, verdict, reason))
    seeds = sorted(ours.keys() & (theirs or {}).keys())
    both = [ours[seed] for seed in seeds], [(theirs or {})[seed] for seed in seeds]
    difference = paired_tests.paired(*both, confidence=1 - alpha) if seeds else None
    if difference is None:
        verdict, reason = "cannot tell", "no seed has both scores"
    elif claim.expect == "equal":
        verdict, reason = _equal(both, difference, claim.margin or 0.0, alpha)
    else:
        verdict, reason = _directed(both, claim, alpha)
    return Finding(claim, left, right, difference, 1 - alpha, *_unless(missing, verdict, reason))


def _unless(missing: str | None, verdict: Verdict, reason: str) -> tuple[Verdict, str]:
    return ("cannot tell", missing) if missing else (verdict, reason)


def _missing(frames: Frames, claim: ClaimRecord, ours: Scores, theirs: Scores | None) -> str | None:
    """Return what a verdict would lack: seeds, lengths, heads, or the same sentences."""
    sides = [(claim.variant, claim.metric, ours)]
    if claim.against is not None and theirs is not None:
        sides.append((claim.against, claim.against_metric or claim.metric, theirs))
    for slug, metric, scores in sides:
        lacking = [seed for seed in frames.seeds if seed not in scores]
        if not lacking:
            continue
        title = frames.by_slug[slug].title
        if metric.startswith("heads/"):
            return f"heads are not yet masked: h2h heads {frames.name}, then h2h report"
        short = unranked(frames, slug, frames.record.metrics.primary)
        if short:
            return f"{title}: {short}"
        return f"{title}: {len(lacking)} of {len(frames.seeds)} seeds without {metric}" + (
            " at these lengths" if claim.lengths else ""
        )
    prints = {str(one) for slug, _, _ in sides for one in frames.rows(slug)["data_hash"].dropna().unique()}
    return "the two sides were not trained and tested on the same data" if len(prints) > 1 else None


def _bounded(scores: Scores, limit: float) -> tuple[Verdict, str]:
    if not scores:
        return "cannot tell", "no run has a score"
    most = max(scores.values())
    if most > limit + ABOVE:
        return "disagrees", "a run passes the limit"
    return "agrees", f"none of {len(scores)} runs passes the limit"


def _equal(
    both: tuple[list[float], list[float]], difference: Paired, margin: float, alpha: float
) -> tuple[Verdict, str]:
    found = paired_tests.equivalence(*both, margin=margin, alpha=alpha)
    if found.n < 2:
        return "cannot tell", "one seed"
    if found.equivalent:
        return "agrees", f"within the margin, p = {found.p:.2g} (two one-sided tests)"
    beyond = min(abs(difference.low), abs(difference.high)) > margin
    if beyond and difference.low * difference.high > 0 and _decided(difference, alpha):
        return "disagrees", "the interval lies outside the margin"
    if difference.kind != "varied":
        return "cannot tell", _ALIKE
    return "cannot tell", "the interval is not within the margin, nor outside it"


def _directed(both: tuple[list[float], list[float]], claim: ClaimRecord, alpha: float) -> tuple[Verdict, str]:
    """Judge the expected difference by its distance from the smallest that counts."""
    sign = 1.0 if claim.expect == "higher" else -1.0
    by = claim.by
    scale = max(abs(value) for side in both for value in side)
    excess = sign * (np.array(both[0]) - np.array(both[1])) - by
    found = paired_tests.paired_differences(excess, scale=scale, confidence=1 - alpha)
    if found.n < 2:
        return "cannot tell", "one seed"
    if found.low > 0 and _decided(found, alpha):
        return "agrees", "the whole interval lies on the expected side" + _beyond(by)
    if found.high < 0 and _decided(found, alpha):
        right_way = by > 0 and sign * (np.mean(both[0]) - np.mean(both[1])) > 0
        return "disagrees", (
            f"in the expected direction, but by less than {by:g}"
            if right_way
            else "the whole interval lies on the other side"
        )
    if found.kind != "varied":
        return "cannot tell", _ALIKE
    return "cannot tell", "the interval holds both"


_ALIKE = "every seed differs by the same amount, and they are too few for that to decide"


def _beyond(by: float) -> str:
    return f", beyond {by:g}" if by else ""


def _decided(found: Paired, alpha: float) -> bool:
    """Whether an interval may speak: a point, all seeds alike, only if enough seeds say it."""
    return found.kind == "varied" or found.sign_flip_p <= alpha
