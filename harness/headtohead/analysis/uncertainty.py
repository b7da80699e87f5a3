"""Sources of uncertainty of scores and of contrasts: variants, seeds, examples and the choice of tuned values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from headtohead.analysis.contrasts import ContrastResult
from headtohead.analysis.scores import Scores, score_mismatch
from headtohead_judge.contrast import Side, score_matrix, shared_seeds
from headtohead_judge.paired_tests import EXAMPLES, SEEDS, Difference, Interval, Source, t_quantile
from headtohead_judge.variance import example_variance, intraclass_correlation, variant_variance

MAX_FACTOR = 1000
"""Largest factor of seeds or examples that is stated."""


class Part(NamedTuple):
    """A source of variance of a contrast: its standard error, and its fraction of the squared width of the interval."""

    source: str
    error: float
    fraction: float


class Halving(NamedTuple):
    """What halves the interval of a contrast; None if it cannot, or takes more than `MAX_FACTOR` times as much.

    Attributes:
        seeds: Number of seeds that halves it alone.
        examples: Factor of the number of examples that halves it alone.
        both: Factor of both numbers that halves it.
    """

    seeds: int | None
    examples: int | None
    both: int | None


class ContrastUncertainty(NamedTuple):
    """A contrast with its sources of variance, and what would halve its interval."""

    contrast: ContrastResult
    parts: tuple[Part, ...]
    halving: Halving


@dataclass(frozen=True)
class Uncertainty:
    """Standard deviations of a score by source, and the sources of variance of the main contrasts.

    Attributes:
        variant_sd: That of the true means over variants; None if the estimated variance is negative.
        seed_sd: That of a score over seeds.
        example_sd: That of a mean over seeds over samples of ``num_groups`` groups of examples; NaN if unknown,
            None if the estimated variance is negative.
        num_groups: Number of groups of examples; 0 if unknown.
        correlation: The intra-class correlation of seeds, with its interval.
        contrasts: The contrasts with an interval.
        reason: Why examples are no source; empty if they are one.
    """

    variant_sd: float | None
    seed_sd: float
    example_sd: float | None
    num_groups: int
    correlation: tuple[float, Interval]
    contrasts: tuple[ContrastUncertainty, ...]
    reason: str


def uncertainty(scores: Scores, contrasts: Sequence[ContrastResult]) -> Uncertainty | None:
    """Return the sources of uncertainty, or None with fewer than two seeds that all variants share.

    The variances of variants and seeds, and the correlation, are those of the shared seeds. The variance of test
    examples is the mean over variants, each over all its seeds; with several test sets, it is the mean over all of them
    and ``num_groups`` is that of the last. An estimate of the variance of variants or examples can be negative, and
    then has no standard deviation. Variants that are not ranked, or not comparable with the baseline, and seeds with a
    collapsed run are omitted.

    Args:
        scores: The scores of the experiment in the metric of the analysis.
        contrasts: The main contrasts in this metric; those without an error above 0 are left out.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    scores_of_slug = _comparable_scores(scores)
    seeds = shared_seeds([*scores_of_slug.values()])
    if len(seeds) < 2:
        return None
    table = score_matrix([*scores_of_slug.values()], seeds)
    examples = scores.test_examples(scores.metric)
    variances = []
    num_groups = 0
    for test_set in examples.test_sets:
        for slug, by_seed in scores_of_slug.items():
            side = Side(slug, scores.metric)
            if side in test_set.values and len(by_seed) > 1:
                variances.append(example_variance(test_set.by_group({side: 1.0}, [*by_seed])))
                num_groups = test_set.num_groups
    results = []
    for contrast in contrasts:
        if contrast.paired is not None and contrast.paired.error > 0:
            parts = _parts(contrast.paired, contrast.level)
            results.append(
                ContrastUncertainty(contrast, parts, halving(contrast.paired, contrast.level))
            )
    return Uncertainty(
        variant_sd=_deviation(variant_variance(table)),
        seed_sd=math.sqrt(float(table.var(axis=1, ddof=1).mean())),
        example_sd=_deviation(float(np.mean(variances))) if variances else math.nan,
        num_groups=num_groups,
        correlation=intraclass_correlation(table),
        contrasts=tuple(results),
        reason=examples.reasons.get(scores.frames.trained(scores.frames.baseline), ""),
    )


def _comparable_scores(scores: Scores) -> dict[str, dict[int, float]]:
    """Return the scores by seed, without collapsed runs, of the ranked variants that are comparable with the baseline.

    A variant that equals another one counts once, as that one.
    """
    frames = scores.frames
    scores_of_slug = {}
    for slug in scores.ranked:
        trained = frames.trained(slug)
        if score_mismatch(frames, trained, frames.baseline, scores.metric) is None:
            scores_of_slug[trained] = scores.healthy(Side(trained, scores.metric))
    return scores_of_slug


def _deviation(variance: float) -> float | None:
    """Return the standard deviation; None for a negative estimate of a variance."""
    return None if variance < 0 else math.sqrt(variance)


def _parts(difference: Difference, level: float) -> tuple[Part, ...]:
    """Return the sources of variance of a difference whose variance is not 0.

    Args:
        difference: The difference.
        level: 1 minus the confidence of its interval.
    """
    total = _squared_width(difference.sources, level)
    parts = []
    for source in difference.sources:
        fraction = _squared_width([source], level) / total
        parts.append(Part(source.name, math.sqrt(source.variance), fraction))
    return tuple(parts)


def _squared_width(sources: Sequence[Source], level: float) -> float:
    """Return the squared half width of the interval of confidence 1 - ``level``."""
    return sum(t_quantile(source.degrees, 1 - level) ** 2 * source.variance for source in sources)


def halving(difference: Difference, level: float) -> Halving:
    """Return what halves the interval of a difference whose variance is not 0.

    Args:
        difference: The difference.
        level: 1 minus the confidence of its interval.
    """
    target = _squared_width(difference.sources, level) / 4

    def is_half(seeds: int, factor: float) -> bool:
        sources = _scaled(difference, seeds, factor)
        return _squared_width(sources, level) <= target

    n = difference.n
    has_examples = any(source.name == EXAMPLES for source in difference.sources)
    seeds = None
    if is_half(MAX_FACTOR * n, 1):
        seeds = next(count for count in range(n + 1, MAX_FACTOR * n + 1) if is_half(count, 1))
    examples = None
    both = None
    if has_examples:
        factors = range(2, MAX_FACTOR + 1)
        examples = next((factor for factor in factors if is_half(n, factor)), None)
        both = next((factor for factor in factors if is_half(factor * n, factor)), None)
    return Halving(seeds, examples, both)


def _scaled(difference: Difference, seeds: int, factor: float) -> list[Source]:
    """Return the expected sources of variance with other numbers of seeds and ``factor`` times the examples.

    Every further seed, and every further group of examples, adds a degree of freedom.
    """
    scaled = []
    for source in difference.sources:
        variance, degrees = source.variance, source.degrees
        if source.name == SEEDS:
            variance *= difference.n / seeds
            degrees += seeds - difference.n
        elif source.name == EXAMPLES:
            variance /= factor
            degrees = (degrees + 1) * factor - 1
        scaled.append(Source(source.name, variance, degrees))
    return scaled
