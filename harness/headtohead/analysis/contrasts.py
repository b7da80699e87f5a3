"""Test the contrasts of an experiment: variants, axis values, the file's own, changes between two configurations.

Each kind is a family for Holm's correction. A contrast that cannot be tested has a reason and is not
counted in its family.

A declared contrast with ``expect`` also has an `Agreement` with the published or predicted result. With m such
contrasts, its interval has level 1 − 5 %/m (the level of a look with sequential seeds), or 1 − 10 %/m if two one-sided
tests find the expected equality, so that all agreements are correct at the same time in at least 95 of 100 studies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import numpy as np

from headtohead.analysis.scores import Scores, Side, score_mismatch
from headtohead.config.labels import listed, text
from headtohead.schema.experiment_file import Expectation
from headtohead.storage.contrasts import (
    ChangeContrast,
    ContrastRecord,
    DeclaredContrast,
    FactorContrast,
    InteractionContrast,
)
from headtohead.storage.frames import Frames
from headtohead.storage.metrics import counted, decimals_of, higher_is_better, readable, show
from headtohead_judge import paired_tests
from headtohead_judge.differences import pair_differences, score_weights
from headtohead_judge.paired_tests import ALPHA, Difference, Interval, interval
from headtohead_judge.verdicts import (
    BEYOND,
    DETECTED,
    NO_VERDICT,
    SAME,
    UNCLEAR,
    UNDETECTED,
    UNTESTED,
    WITHIN,
    Direction,
    Judgement,
    Size,
    judge,
)

NOTES = {
    "single": "one seed: no test",
    "identical": "both sides have the same score in every seed",
    "constant": "the difference is the same in every seed: the interval is a point, the t-test is undefined and the "
    "sign-flip p replaces it",
}
"""Notes on verdicts that their numbers do not explain, by the kind of the difference."""

KINDS = ("variant", "factor", "interaction", "declared", "added", "taken")
"""The kinds of contrasts, in the order of `Families`."""

AgreementVerdict = Literal["agrees", "disagrees", "undecided"]


@dataclass(frozen=True)
class Agreement:
    """Whether the measured difference is as expected.

    Attributes:
        verdict: ``agrees``: the whole interval is beyond ``by`` on the expected side, or with ``equal`` two one-sided
            tests find the difference within ``by``. ``disagrees``: the whole interval contradicts the expected
            result. Otherwise ``undecided``.
        direction: ``higher`` or ``lower`` if the interval excludes 0, else ``undetected``; ``no verdict`` without a
            difference, or ``same by construction``.
        size: Whether the difference is smaller than ``by``; None without ``by``.
        published: ``larger`` or ``smaller`` if the whole interval is, compared with the published difference in its
            direction; else empty.
        interval: The interval of the difference that the verdict rests on; None without a difference.
    """

    verdict: AgreementVerdict
    direction: str = UNDETECTED
    size: Size | None = None
    published: str = ""
    interval: Interval | None = None

    def __str__(self) -> str:
        """Return all words, such as ``agrees: higher, beyond, larger than published``.

        Agreement that there is no difference rests on an interval of another level than an undetected direction.
        """
        published = f"{self.published} than published" * bool(self.published)
        is_other_test = (self.verdict, self.direction, self.size) == ("agrees", UNDETECTED, WITHIN)
        direction = "" if is_other_test else self.direction
        return f"{self.verdict}: {', '.join(filter(None, (direction, self.size, published)))}"


@dataclass(frozen=True)
class Contrast:
    """A tested difference between two sides, paired by seed.

    ``kind`` is ``variant``, ``factor``, ``interaction``, ``declared``, ``added`` or ``taken``. ``axis`` is the axis of
    a factor contrast, or the name of an added or taken change. ``judgement`` holds the tests, ``reason`` a note on the
    verdict or why there is none. ``by_seed`` has the difference of each seed.
    ``settings`` holds the test of each setting that a factor contrast averages over, adjusted by Holm for their number.
    ``within`` lists axes that are constant in a factor's block. ``num_excluded`` counts pairs that are the same by
    construction and do not enter the average. ``late_margin``: the margin was set or changed after results existed.
    ``declared`` is the record of a declared contrast, ``agreement`` whether its difference is as expected.
    ``judged_as`` is the kind of the contrast of the same difference that ``judgement`` is from.
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
    judgement: Judgement = UNTESTED
    reason: str | None = None
    settings: tuple[tuple[Difference, Judgement], ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()
    num_excluded: int = 0
    late_margin: bool = False
    declared: DeclaredContrast | None = None
    agreement: Agreement | None = None
    judged_as: str = ""

    @property
    def expect(self) -> Expectation | None:
        """The expected result."""
        return self.declared.expect if self.declared else None

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
    def direction(self) -> Direction:
        """The verdict on the direction."""
        return self.judgement.direction

    @property
    def size(self) -> Size | None:
        """The verdict on the size, or None."""
        return self.judgement.size

    @property
    def detected(self) -> bool:
        """Whether a direction is detected."""
        return self.direction in DETECTED

    @property
    def higher_is_better(self) -> bool | None:
        """Whether a positive difference is better; None for two metrics and for effects of masking heads."""
        if self.metric.startswith("heads/") or (self.declared and self.declared.against_metric):
            return None
        return higher_is_better(self.metric)

    @property
    def spread(self) -> tuple[float, float] | None:
        """The smallest and the largest difference among the settings, or None for a single one."""
        means = [found.mean for found, _ in self.settings]
        return (min(means), max(means)) if len(means) > 1 else None

    @property
    def is_undecided(self) -> bool:
        """Whether more seeds can give a verdict."""
        is_constant = self.paired is not None and self.paired.kind == "constant"
        is_open = self.direction == UNDETECTED and self.size != WITHIN
        return is_open or (self.direction == NO_VERDICT and is_constant)

    @property
    def direction_name(self) -> str:
        """The direction; a significant interaction has none."""
        return "significant" if self.kind == "interaction" and self.detected else self.direction

    @property
    def verdict(self) -> str:
        """Direction and size, such as ``better, within``."""
        return ", ".join(filter(None, (self.direction_name, self.size)))

    @property
    def size_text(self) -> str:
        """The size with the margin; empty without a size. A margin that was set or changed late is labelled."""
        if self.size is None or self.judgement.size_test is None:
            return ""
        late = " (margin set after results existed)" * self.late_margin
        size, margin = (
            "unclear whether within" if self.size == UNCLEAR else self.size,
            self.judgement.size_test.margin,
        )
        return f"{size} the margin of {show(margin, self.metric, like=margin)}{late}"

    @property
    def scale(self) -> float:
        """The margin or the expected difference, of which numbers have at least the decimals; 0 without both."""
        test, expect = self.judgement.size_test, self.expect
        return max(test.margin if test else 0.0, expect.by if expect else 0.0, key=decimals_of)

    @property
    def difference_text(self) -> str:
        """The difference with its sign."""
        return show(
            self.paired.mean if self.paired else None, self.metric, signed=True, like=self.scale
        )


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
    """Return the contrasts of the experiment, tested with pairing by seed and adjusted by Holm within each family.

    No difference has two verdicts: a difference of several families has the verdict of the first of them, declared
    contrasts before factors before all others.
    """
    frames = scores.frames
    expected = sum(
        isinstance(record, DeclaredContrast) and bool(record.expect)
        for record in frames.record.contrasts
    )
    level = ALPHA / max(expected, 1)
    level = frames.looks.level(level) if frames.looks else level
    tested = [
        _tested(scores, _planned(frames, record, scores.metric), level)
        for record in frames.record.contrasts
    ]
    found = Families(
        *(_family(scores, [found for found in tested if found.kind == kind]) for kind in KINDS)
    )
    judgements: dict[object, tuple[Judgement, str]] = {}
    for own in (
        own for family in (found.declared, found.factors, *found) for own in family.contrasts
    ):
        if own.paired is not None:
            difference, sign = _difference(scores, own)
            judgements.setdefault(difference, (own.judgement.signed(sign), own.kind))

    def with_verdict(own: Contrast) -> Contrast:
        if own.paired is None:
            return own
        difference, sign = _difference(scores, own)
        judgement, kind = judgements[difference]
        few = own.paired.kind == "constant" and judgement.direction == NO_VERDICT
        reason = "; ".join(
            [*filter(None, [own.reason]), *["there are too few seeds for a verdict"] * few]
        )
        return replace(own, judgement=judgement.signed(sign), judged_as=kind, reason=reason or None)

    return Families(
        *(replace(family, contrasts=tuple(map(with_verdict, family.contrasts))) for family in found)
    )


def _planned(frames: Frames, record: ContrastRecord, metric: str) -> Contrast:
    """Return a contrast before its test, without the settings in which it is 0 by construction."""
    axis, within = None, ""
    settings: list[tuple[tuple[str, str], ...]] = [(pair,) for pair in record.pairs]
    if isinstance(record, FactorContrast):
        axis, left, right = record.axis, text(record.value), text(record.against)
        within = ", ".join(f"{name} {text(fixed)}" for name, fixed in record.given.items())
    elif isinstance(record, InteractionContrast):
        axis, settings = record.axis, list(zip(record.pairs[::2], record.pairs[1::2], strict=True))
        left, right = (
            f"{axis} {text(record.value)}",
            f"{record.other_axis} {text(record.other_value)}",
        )
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
        judgement=UNTESTED if kept or not settings else Judgement(SAME),
        reason=None if settings else "no two variants differ only in this axis",
        pairs=tuple(pair for setting in kept or settings for pair in setting),
        num_excluded=len(settings) - len(kept) if kept else 0,
        declared=declared,
    )


def sides(contrast: Contrast) -> list[tuple[Side, Side]]:
    """Return both sides of each pair of a contrast."""
    declared, metric = contrast.declared, contrast.metric
    if declared is None:
        return [(Side(left, metric), Side(right, metric)) for left, right in contrast.pairs]
    other, lengths = declared.against_metric or metric, declared.against_lengths or declared.lengths
    return [
        (Side(declared.variant, metric, declared.lengths), Side(declared.against, other, lengths))
    ]


def _unscored(scores: Scores, slugs: Iterable[str], problem: str) -> str:
    """Return why a contrast of variants without a score has no test."""
    metrics = dict.fromkeys(
        readable(scores.judged_on[slug]) for slug in slugs if slug in scores.judged_on
    )
    return f"judged on {listed([*metrics])}" if metrics else f"not ranked: {problem}"


def _tested(scores: Scores, contrast: Contrast, level: float) -> Contrast:
    """Return the contrast with its paired test, or with the reason why there is none.

    ``level`` is the level of the test of a declared contrast's expected result.
    """
    frames, expect = scores.frames, contrast.expect
    if contrast.direction == SAME:
        agrees = Agreement(
            "agrees" if expect and expect.direction == "equal" else "disagrees", SAME
        )
        return replace(contrast, agreement=agrees if expect else None)
    pairs = sides(contrast)
    by_side = {side: side.scores(frames) for pair in pairs for side in pair}
    problems = {
        side.slug: reason for side, own in by_side.items() if (reason := side.problem(frames, own))
    }
    texts = [f"{frames.by_slug[slug].title}: {reason}" for slug, reason in problems.items()]
    more = f" and {counted(len(texts) - 2, 'more variant')}" if len(texts) > 2 else ""
    problem = "; ".join(texts[:2]) + more
    scored = [(left, right) for left, right in pairs if by_side[left] and by_side[right]]
    healthy = {side: scores.healthy(side) for side in by_side}
    seeds, differences = pair_differences(healthy, scored)
    dropped = sorted({frames.trained(side.slug) for side in by_side} & scores.collapsed.keys())
    titles = [frames.by_slug[slug].title for slug in dropped]
    without = f"without the seeds of collapsed runs of {listed(titles, most=3)}" if titles else ""
    notes = [f"partial: {problem}" if problems else "", without]
    is_interaction = contrast.kind == "interaction"
    mismatches = (
        score_mismatch(frames, left.slug, right.slug, contrast.metric) for left, right in pairs
    )
    reason = contrast.reason or next(filter(None, mismatches), None)
    if (
        (problems and not scores.allow_partial)
        or not seeds
        or (is_interaction and len(scored) < len(pairs))
    ):
        reason = reason or (_unscored(scores, problems, problem) if problems else without)
    if reason:
        return replace(
            contrast,
            reason=reason,
            agreement=Agreement("undecided", NO_VERDICT) if expect else None,
        )
    scale = max(abs(value) for by_seed in healthy.values() for value in by_seed.values())
    first, second = scored[0]
    is_same_score = (first.metric, first.lengths) == (second.metric, second.lengths)
    trained = [(frames.trained(left.slug), frames.trained(right.slug)) for left, right in scored]

    def test(values: np.ndarray, pairs: Sequence[tuple[str, str]]) -> Difference:
        """Test the mean over settings of the differences of pairs of trained variants."""
        found = paired_tests.paired_differences(values, scale=scale)
        weights = score_weights(pairs)
        model = scores.block_model(first.metric, first.lengths, weights) if is_same_score else None
        settings = len(pairs) // size
        weight = sum(own**2 for own in weights.values()) / settings**2
        return model.moderated(found, weight) if model else found

    size = 2 if is_interaction else 1
    if is_interaction:  # the second pair of each setting has its sides swapped
        differences = differences[::2] + differences[1::2]
    mean = differences.mean(axis=0)
    own_pairs = [trained[start : start + size] for start in range(0, len(trained), size)]
    settings = (
        [test(*own) for own in zip(differences, own_pairs, strict=True)]
        if len(differences) > 1
        else []
    )
    better = [contrast.higher_is_better] * len(settings)
    margins = [scores.margin(contrast.metric, [right for _, right in own]) for own in own_pairs][
        : len(settings)
    ]
    judgements = judge(settings, margin=margins, higher_is_better=better, looks=frames.looks)
    return replace(
        contrast,
        by_seed=dict(zip(seeds, mean.tolist(), strict=True)),
        pairs=tuple((left.slug, right.slug) for left, right in scored),
        paired=test(mean, trained),
        reason="; ".join(filter(None, notes)) or None,
        settings=tuple(zip(settings, judgements, strict=True)),
        agreement=agreement(expect, differences[0], lambda values: test(values, trained), level)
        if expect
        else None,
    )


def agreement(
    expect: Expectation,
    differences: np.ndarray,
    tested: Callable[[np.ndarray], Difference],
    level: float,
) -> Agreement:
    """Test differences ``[seed]`` against the expected result at ``level``."""

    def is_beyond(found: Difference, sign: float = 1.0) -> bool:
        """Return whether an interval is above 0; an interval that is a point requires a small sign-flip p."""
        is_decided = found.n > 1 and (found.kind == "varied" or found.sign_flip_p <= level)
        own = interval(found, 1 - level)
        return is_decided and min(sign * own.low, sign * own.high) > 0

    difference, by = tested(differences), expect.by
    excess = {sign: tested(sign * differences - by) for sign in (1.0, -1.0)}
    direction = (
        "higher"
        if is_beyond(difference)
        else "lower"
        if is_beyond(difference, -1.0)
        else UNDETECTED
    )
    size: Size | None = None
    if by:
        is_within = paired_tests.equivalence_p(difference, by) <= level
        size = WITHIN if is_within else BEYOND if any(map(is_beyond, excess.values())) else UNCLEAR
    if expect.direction == "equal":
        agrees, disagrees = size == WITHIN, size == BEYOND
    else:
        own = excess[-1.0 if expect.direction == "lower" else 1.0]
        agrees, disagrees = is_beyond(own), is_beyond(own, -1.0)
    claim = expect.published or 0.0
    over = tested(math.copysign(1.0, claim) * differences - abs(claim))
    published = (
        ("larger" if is_beyond(over) else "smaller" if is_beyond(over, -1.0) else "")
        if claim
        else ""
    )
    verdict: AgreementVerdict = "agrees" if agrees else "disagrees" if disagrees else "undecided"
    sides = 2 if expect.direction == "equal" and agrees else 1  # two one-sided tests
    return Agreement(verdict, direction, size, published, interval(difference, 1 - sides * level))


def _difference(scores: Scores, contrast: Contrast) -> tuple[object, float]:
    """Return a key of the tested difference, and its sign: a contrast and the one with exchanged sides share the key.

    Contrasts of the same weighted sum of scores test the same difference; contrasts without scores are all different.
    """
    trained, settings = (
        scores.frames.trained,
        len(contrast.pairs) / (1 + (contrast.kind == "interaction")),
    )
    weights = score_weights(
        (left._replace(slug=trained(left.slug)), right._replace(slug=trained(right.slug)))
        for left, right in sides(contrast)
    )
    terms = sorted((repr(side), weight / settings) for side, weight in weights.items() if weight)
    sign = math.copysign(1.0, terms[0][1]) if terms else 1.0
    return tuple((side, sign * weight) for side, weight in terms) or contrast.name, sign


def _family(scores: Scores, contrasts: Sequence[Contrast]) -> Family:
    """Judge contrasts as a family; contrasts of the same scores are a single test with a single verdict."""
    first: dict[object, tuple[Contrast, float]] = {}
    for contrast in contrasts:
        own, sign = _difference(scores, contrast)
        first.setdefault(own, (contrast, sign))
    margins, looks = scores.frames.record.margins, scores.frames.looks
    unique = [contrast for contrast, _ in first.values()]
    judgements = judge(
        [contrast.paired for contrast in unique],
        margin=[
            scores.margin(found.metric, [right for _, right in found.pairs]) for found in unique
        ],
        higher_is_better=[contrast.higher_is_better for contrast in unique],
        looks=looks,
    )
    judgement_of = dict(zip(first, judgements, strict=True))
    judged = []
    for contrast in contrasts:
        own, sign = _difference(scores, contrast)
        counted_as, first_sign = first[own]
        if contrast.paired is not None:
            judgement, total = (
                judgement_of[own].signed(sign * first_sign),
                contrast.num_excluded + len(contrast.pairs),
            )
            notes = [
                contrast.reason,
                f"{contrast.num_excluded} of {total} settings {SAME}, excluded"
                if contrast.num_excluded
                else None,
                NOTES.get(contrast.paired.kind),
                f"the same runs as {counted_as.name}, counted once in the correction"
                if counted_as is not contrast
                else None,
            ]
            contrast = replace(
                contrast,
                judgement=judgement,
                reason="; ".join(filter(None, notes)) or None,
                late_margin=contrast.metric in margins and margins[contrast.metric].late,
            )
        judged.append(contrast)
    return Family(
        tuple(judged),
        sum(found.paired is not None and not math.isnan(found.paired.p) for found in unique),
    )
