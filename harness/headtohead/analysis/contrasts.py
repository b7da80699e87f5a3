"""Test the contrasts of an experiment: variants, axis values, the file's own, changes between two configurations.

Each kind is a family for Holm's correction. A contrast that cannot be tested has a reason and is not
counted in its family.

A declared contrast with ``expect`` also has an `Agreement` with the published or predicted result. With m such
contrasts, its interval has level 1 − 5 %/m (the level of a look with sequential seeds), so that all agreements are
correct at the same time in at least 95 of 100 studies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import numpy as np

from headtohead.analysis.scores import Scores, pooled_scores, score_mismatch, unranked
from headtohead.schema.experiment_file import Expectation
from headtohead.statistics import paired_tests
from headtohead.statistics.differences import pair_differences
from headtohead.statistics.paired_tests import ALPHA, Difference, Interval
from headtohead.statistics.verdicts import (
    BETTER,
    EQUIVALENT,
    INCONCLUSIVE,
    NO_VERDICT,
    SAME,
    UNTESTED,
    WORSE,
    Judgement,
    Verdict,
    judge,
)
from headtohead.storage.contrasts import (
    ChangeContrast,
    ContrastRecord,
    DeclaredContrast,
    FactorContrast,
    InteractionContrast,
)
from headtohead.storage.frames import Frames
from headtohead.storage.metrics import counted, higher_is_better, label, show, show_p

KINDS = ("variant", "factor", "interaction", "declared", "added", "taken")
"""The kinds of contrasts, in the order of `Families`."""

AgreementVerdict = Literal["agrees", "different", "disagrees", "inconclusive"]


@dataclass(frozen=True)
class Agreement:
    """Whether the measured difference is as expected.

    Attributes:
        verdict: ``agrees``: the whole interval is beyond ``by`` on the expected side, or with ``equal`` two one-sided
            tests find the difference within ``by``. ``different``: the interval excludes 0 on the expected side, or
            with ``equal`` on either side, without a decision on the size. ``disagrees``: the whole interval
            contradicts the expected result. Otherwise ``inconclusive``.
        interval: The interval of the difference that the verdict rests on; None without a difference.
    """

    verdict: AgreementVerdict
    interval: Interval | None = None


@dataclass(frozen=True)
class Contrast:
    """A tested difference between two sides, paired by seed.

    ``kind`` is ``variant``, ``factor``, ``interaction``, ``declared``, ``added`` or ``taken``. ``axis`` is the axis of
    a factor contrast, or the name of an added or taken change. ``judgement`` holds the tests, ``reason`` a note on the
    verdict or why there is none. ``by_seed`` has the difference of each seed.
    ``spread`` is the smallest and the largest difference among the settings that a factor
    contrast averages over. ``settings_p`` is the smallest p among them, adjusted by Holm for their number. ``within``
    lists axes that are constant in a factor's block. ``num_excluded`` counts pairs that are the same by construction
    and do not enter the average. ``late_margin``: the margin was set or changed after results existed. ``declared``
    is the record of a declared contrast, ``agreement`` whether its difference is as expected.
    """

    kind: str
    name: str
    left: str
    right: str
    metric: str
    axis: str | None = None
    within: str = ""
    by_seed: Mapping[int, float] = field(default_factory=dict)
    paired: Difference | None = None
    verdict: Verdict = NO_VERDICT
    judgement: Judgement = UNTESTED
    reason: str | None = None
    spread: tuple[float, float] | None = None
    settings_p: float = math.nan
    pairs: tuple[tuple[str, str], ...] = ()
    num_excluded: int = 0
    late_margin: bool = False
    declared: DeclaredContrast | None = None
    agreement: Agreement | None = None

    @property
    def expect(self) -> Expectation | None:
        """The expected result."""
        return self.declared.expect if self.declared else None

    @property
    def compares_parts(self) -> bool:
        """Whether a declared contrast compares only some source lengths, or two metrics."""
        return self.declared is not None and (self.declared.lengths is not None or not self.declared.same_score)

    @property
    def expected(self) -> str:
        """The expected result as text, such as ``higher by more than 2 (published +13.3)``; empty without any."""
        if self.expect is None:
            return ""
        size = " to within" if self.expect.direction == "equal" else " by more than"
        text = f"{self.expect.direction}{f'{size} {self.expect.by:g}' if self.expect.by else ''}"
        published = self.expect.published
        return text if published is None else f"{text} (published {published:+g})".replace("-", "−")

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the test."""
        return tuple(self.by_seed)

    @property
    def detected(self) -> bool:
        """Whether the verdict is better or worse."""
        return self.verdict in (BETTER, WORSE)

    @property
    def is_undecided(self) -> bool:
        """Whether more seeds can give a verdict."""
        is_constant = self.paired is not None and self.paired.kind == "constant"
        return self.verdict == INCONCLUSIVE or (self.verdict == NO_VERDICT and is_constant)

    @property
    def verdict_name(self) -> str:
        """The verdict; a significant interaction has no direction."""
        return "significant" if self.kind == "interaction" and self.detected else self.verdict

    @property
    def verdict_text(self) -> str:
        """The verdict, with its margin if it is equivalent; a margin that was set or changed late is labelled."""
        equivalence = self.judgement.equivalence
        if self.verdict != EQUIVALENT or equivalence is None:
            return self.verdict_name
        late = " (margin set after results existed)" * self.late_margin
        return f"{self.verdict} within {show(equivalence.margin, self.metric)}{late}"


@dataclass(frozen=True)
class Family:
    """Contrasts that are corrected together; ``tested`` is the number of tests."""

    contrasts: tuple[Contrast, ...]
    tested: int


class Families(NamedTuple):
    """The contrasts of an experiment, corrected by Holm within each family.

    Attributes:
        variants: Every variant against the baseline.
        factors: Two values of an axis, averaged over the other axes within each seed.
        interactions: The effect of an axis, compared between two values of another axis.
        declared: The contrasts that the experiment file declares, optionally with a metric and an expected result.
        added: The first of two configurations with and without every single change.
        taken: The second of two configurations with and without every single change.
    """

    variants: Family
    factors: Family
    interactions: Family
    declared: Family
    added: Family
    taken: Family


def families(scores: Scores) -> Families:
    """Return the contrasts of the experiment, tested with pairing by seed and adjusted by Holm within each family."""
    frames = scores.frames
    expected = sum(isinstance(record, DeclaredContrast) and bool(record.expect) for record in frames.record.contrasts)
    level = ALPHA / max(expected, 1)
    level = frames.looks.level(level) if frames.looks else level
    tested = [_tested(scores, _planned(frames, record, scores.metric), level) for record in frames.record.contrasts]
    return Families(*(_family(frames, [found for found in tested if found.kind == kind]) for kind in KINDS))


def _planned(frames: Frames, record: ContrastRecord, metric: str) -> Contrast:
    """Return a contrast before its test, without the settings in which it is 0 by construction."""
    axis, within = None, ""
    settings: list[tuple[tuple[str, str], ...]] = [(pair,) for pair in record.pairs]
    if isinstance(record, FactorContrast):
        axis, left, right = record.axis, label(record.value), label(record.against)
        within = ", ".join(f"{name} {label(fixed)}" for name, fixed in record.given.items())
    elif isinstance(record, InteractionContrast):
        axis, settings = record.axis, list(zip(record.pairs[::2], record.pairs[1::2], strict=True))
        left, right = f"{axis} {label(record.value)}", f"{record.other_axis} {label(record.other_value)}"
    else:
        axis = record.change if isinstance(record, ChangeContrast) else None
        left, right = record.pairs[0]
    declared = record if isinstance(record, DeclaredContrast) else None

    def is_zero(setting: tuple[tuple[str, str], ...]) -> bool:
        left, right = (sorted(frames.trained(pair[side]) for pair in setting) for side in (0, 1))
        return left == right and (declared is None or declared.same_score)

    kept = [setting for setting in settings if not is_zero(setting)]
    return Contrast(
        record.kind,
        record.name,
        left,
        right,
        (declared and declared.metric) or metric,
        axis,
        within,
        verdict=NO_VERDICT if kept or not settings else SAME,
        reason=None if settings else "no two variants differ only in this axis",
        pairs=tuple(pair for setting in kept or settings for pair in setting),
        num_excluded=len(settings) - len(kept) if kept else 0,
        declared=declared,
    )


class Side(NamedTuple):
    """One side of a contrast: a variant, its metric, and the source lengths that count, if not all."""

    slug: str
    metric: str
    lengths: tuple[int, int] | None = None

    def scores(self, frames: Frames) -> dict[int, float]:
        """Return the scores by seed."""
        if self.lengths is None:
            return frames.scores(self.slug, self.metric)
        return pooled_scores(frames, self.slug, self.metric, self.lengths)

    def problem(self, frames: Frames, scores: Mapping[int, float]) -> str | None:
        """Return which seeds have no score, or None."""
        missing = [seed for seed in frames.seeds if seed not in scores]
        if missing and self.metric.startswith("heads/"):
            return f"no head ablation; run h2h ablate-heads {frames.record.name}, then h2h report"
        without = f"{len(missing)} of {len(frames.seeds)} seeds without {self.metric} at these lengths"
        return unranked(frames, self.slug, self.metric) or (without if missing else None)


def sides(contrast: Contrast) -> list[tuple[Side, Side]]:
    """Return both sides of each pair of a contrast."""
    declared, metric = contrast.declared, contrast.metric
    if declared is None:
        return [(Side(left, metric), Side(right, metric)) for left, right in contrast.pairs]
    other, lengths = declared.against_metric or metric, declared.against_lengths or declared.lengths
    return [(Side(declared.variant, metric, declared.lengths), Side(declared.against, other, lengths))]


def _tested(scores: Scores, contrast: Contrast, level: float) -> Contrast:
    """Return the contrast with its paired test, or with the reason why there is none.

    ``level`` is the level of the test of a declared contrast's expected result.
    """
    frames, expect = scores.frames, contrast.expect
    if contrast.verdict == SAME:
        agrees = Agreement("agrees" if expect and expect.direction == "equal" else "disagrees")
        return replace(contrast, agreement=agrees if expect else None)
    pairs = sides(contrast)
    by_side = {side: side.scores(frames) for pair in pairs for side in pair}
    problems = {side.slug: reason for side, own in by_side.items() if (reason := side.problem(frames, own))}
    texts = [f"{frames.by_slug[slug].title}: {reason}" for slug, reason in problems.items()]
    more = f" and {counted(len(texts) - 2, 'more variant')}" if len(texts) > 2 else ""
    problem = "; ".join(texts[:2]) + more
    scored = [(left, right) for left, right in pairs if by_side[left] and by_side[right]]
    seeds, differences = pair_differences(by_side, scored)
    is_interaction = contrast.kind == "interaction"
    mismatches = (score_mismatch(frames, left.slug, right.slug, contrast.metric) for left, right in pairs)
    reason = contrast.reason or next(filter(None, mismatches), None)
    if (problems and not scores.allow_partial) or not seeds or (is_interaction and len(scored) < len(pairs)):
        reason = reason or f"not ranked: {problem}"
    if reason:
        return replace(contrast, reason=reason, agreement=Agreement("inconclusive") if expect else None)
    scale = max(abs(value) for by_seed in by_side.values() for value in by_seed.values())
    if is_interaction:  # the second pair of each setting has its sides swapped
        differences = differences[::2] + differences[1::2]
    mean = differences.mean(axis=0)
    spread, settings_p = None, math.nan
    if len(differences) > 1:
        ends = paired_tests.rounded(differences.mean(axis=1), scale)
        spread = float(ends.min()), float(ends.max())
        p_values = [paired_tests.paired_differences(row, scale=scale).p for row in differences]
        settings_p = min(paired_tests.holm([frames.looks.adjusted(p) if frames.looks else p for p in p_values]))
    return replace(
        contrast,
        by_seed=dict(zip(seeds, mean.tolist(), strict=True)),
        pairs=tuple((left.slug, right.slug) for left, right in scored),
        paired=paired_tests.paired_differences(mean, scale=scale),
        reason=f"partial: {problem}" if problems else None,
        spread=spread,
        settings_p=settings_p,
        agreement=agreement(expect, differences[0], scale, level) if expect else None,
    )


def agreement(expect: Expectation, differences: np.ndarray, scale: float, level: float) -> Agreement:
    """Test differences ``[seed]`` of scores of size ``scale`` against the expected result at ``level``."""

    def tested(values: np.ndarray) -> Difference:
        return paired_tests.paired_differences(values, scale=scale, confidence=1 - level)

    def is_beyond(found: Difference, sign: float = 1.0) -> bool:
        """Return whether an interval is above 0; an interval that is a point requires a small sign-flip p."""
        is_decided = found.n > 1 and (found.kind == "varied" or found.sign_flip_p <= level)
        return is_decided and min(sign * found.low, sign * found.high) > 0

    difference, by = tested(differences), expect.by
    sign = -1.0 if expect.direction == "lower" else 1.0
    holds: dict[AgreementVerdict, bool]
    if expect.direction == "equal":
        holds = {
            "agrees": paired_tests.equivalence_p(difference, by) <= level,
            "disagrees": is_beyond(tested(differences - by)) or is_beyond(tested(-differences - by)),
            "different": is_beyond(difference) or is_beyond(difference, -1.0),
        }
    else:
        excess = tested(sign * differences - by)
        holds = {
            "agrees": is_beyond(excess),
            "different": is_beyond(difference, sign),
            "disagrees": is_beyond(excess, -1.0),
        }
    verdict: AgreementVerdict = next((name for name, is_true in holds.items() if is_true), "inconclusive")
    return Agreement(verdict, Interval(1 - level, difference.low, difference.high))


def _family(frames: Frames, contrasts: Sequence[Contrast]) -> Family:
    """Judge contrasts as a family; contrasts of the same scores are a single test with a single verdict."""

    def tested_scores(contrast: Contrast) -> object:
        """Return the scores that a contrast uses; contrasts without pairs are all different."""
        pairs = [tuple(side._replace(slug=frames.trained(side.slug)) for side in pair) for pair in sides(contrast)]
        return tuple(pairs) or contrast.name

    first: dict[object, Contrast] = {}
    for contrast in contrasts:
        first.setdefault(tested_scores(contrast), contrast)
    unique, margins = list(first.values()), frames.record.margins
    judgements = judge(
        [contrast.paired for contrast in unique],
        margin=[margins[found.metric].value if found.metric in margins else None for found in unique],
        higher_is_better=[higher_is_better(contrast.metric) for contrast in unique],
        looks=frames.looks,
    )
    judgement_of = dict(zip(first, judgements, strict=True))
    judged = []
    for contrast in contrasts:
        scores = tested_scores(contrast)
        if contrast.paired is not None:
            judgement, total = judgement_of[scores], contrast.num_excluded + len(contrast.pairs)
            notes = [
                contrast.reason,
                f"{contrast.num_excluded} of {total} settings {SAME}, excluded" if contrast.num_excluded else None,
                _note(contrast.paired, judgement),
                f"the same runs as {first[scores].name}, counted once in the correction"
                if first[scores] is not contrast
                else None,
            ]
            contrast = replace(
                contrast,
                verdict=judgement.verdict,
                judgement=judgement,
                reason="; ".join(filter(None, notes)) or None,
                late_margin=contrast.metric in margins and margins[contrast.metric].late,
            )
        judged.append(contrast)
    return Family(tuple(judged), sum(found.paired is not None and not math.isnan(found.paired.p) for found in unique))


def _note(result: Difference, judgement: Judgement) -> str | None:
    """Return a note on a verdict that its numbers do not explain."""
    if judgement.verdict == EQUIVALENT and judgement.significant:
        return f"the difference is significant (Holm p {show_p(judgement.holm_p)}) and smaller than the margin"
    few = "; there are too few seeds for a verdict" * (judgement.verdict == NO_VERDICT)
    return {
        "single": "one seed: no test",
        "identical": "both sides have the same score in every seed",
        "constant": "the difference is the same in every seed: the interval is a point, the t-test is undefined and "
        f"the sign-flip p replaces it{few}",
    }.get(result.kind)
