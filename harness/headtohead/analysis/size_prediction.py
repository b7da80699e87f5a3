"""Effects of changes at the largest size, predicted from those at the smaller sizes.

There are two predictions: a straight line through the effects at the smaller sizes, over the logarithm of the
baseline's parameters; and the same effect as at the last of the smaller sizes. The error of a prediction is a weighted
sum of scores, so its interval has every source of variance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from headtohead.analysis.order_transfer import AxisValues, axes_without_size, variants_by_size
from headtohead.analysis.scores import Scores, per_token_mismatch, score_mismatch
from headtohead.analysis.wording import clause_between
from headtohead.config.labels import Scalar
from headtohead.planning.variants import DATA_AXIS, comparison_group
from headtohead_judge.contrast import Contrast, ScoreTable, Side, estimate_family
from headtohead_judge.paired_tests import ALPHA, CONFIDENCE, Difference, interval

MIN_SIZES = 3
"""Minimum number of sizes: a line needs two smaller ones."""
MIN_SEEDS = 3
"""Minimum number of seeds that all variants of a prediction share."""


class Prediction(NamedTuple):
    """The predicted effect of a change at the largest size.

    Attributes:
        effect: The predicted effect.
        error: The measured effect minus the predicted one, with its sources of variance.
        half_width: That of the 95 % prediction interval of the measured effect. It contains the variance of the
            measured effect and of those that it is predicted from, but not that effects may not follow a line.
    """

    effect: float
    error: Difference
    half_width: float

    @property
    def is_missed(self) -> bool:
        """Whether the measured effect is outside the prediction interval."""
        return abs(self.error.mean) > self.half_width

    @property
    def low(self) -> float:
        """The lower end of the prediction interval."""
        return self.effect - self.half_width

    @property
    def high(self) -> float:
        """The upper end of the prediction interval."""
        return self.effect + self.half_width


class PredictedChange(NamedTuple):
    """A change with both predictions of its effect at the largest size.

    Attributes:
        name: The clause for the change, followed by the data if the study has several.
        pairs: Its variant and the baseline at each size, from small to large.
        seeds: Number of seeds that its variants and the baselines share at all sizes; other seeds do not count.
        measured: The effect at the largest size.
        by_line: The prediction by a line through the effects at the smaller sizes.
        by_same_effect: The prediction that the effect is that at the last of the smaller sizes.
    """

    name: str
    pairs: tuple[tuple[str, str], ...]
    seeds: int
    measured: float
    by_line: Prediction
    by_same_effect: Prediction

    @property
    def predictions(self) -> tuple[Prediction, Prediction]:
        """Both predictions, that of the line first."""
        return self.by_line, self.by_same_effect


class SizePredictions(NamedTuple):
    """The predictions for the largest size.

    Attributes:
        sizes: The labels of all sizes, from small to large.
        changes: The changes with predictions.
        omitted: The names of the changes without a prediction. A change has none if a variant is not ranked at a size
            or has no runs of its own, if its runs share too few seeds, if their scores cannot be compared, or if the
            error of a prediction is the same in every seed.
    """

    sizes: tuple[Scalar, ...]
    changes: tuple[PredictedChange, ...]
    omitted: tuple[str, ...]


def size_predictions(scores: Scores) -> SizePredictions | None:
    """Return the predicted effect of every change at the largest size, against the baseline of each size.

    None with fewer than three sizes, if the baseline is not ranked at every size, if its parameters do not grow from
    size to size, or if no change has predictions.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    by_slug = scores.frames.by_slug
    by_size = variants_by_size(scores)
    baselines = _at_every_size(by_size, axes_without_size(by_slug[scores.frames.baseline]))
    if len(by_size) < MIN_SIZES or baselines is None:
        return None
    parameters = [by_slug[slug].counts.non_embedding for slug in baselines]
    if sorted(set(parameters)) != parameters:
        return None
    weights_of_same = [0.0] * (len(parameters) - 2) + [1.0]
    weights = (weights_of_line([math.log(number) for number in parameters]), weights_of_same)
    changes = []
    omitted = []
    for axes, (slug, against) in _changes(scores).items():
        name = _name(scores, slug, against)
        slugs = _at_every_size(by_size, axes)
        baselines = _at_every_size(by_size, axes_without_size(by_slug[against]))
        change = None
        if slugs is not None and baselines is not None:
            change = _predicted(scores, name, slugs, baselines, weights)
        if change is None:
            omitted.append(name)
        else:
            changes.append(change)
    if not changes:
        return None
    return SizePredictions(tuple(by_size), tuple(changes), tuple(omitted))


def weights_of_line(positions: Sequence[float]) -> list[float]:
    """Return the weights of the values at all positions but the last, in the value of their line at the last position.

    The line is that of least squares.

    >>> [round(weight, 6) for weight in weights_of_line([0, 1, 2])]
    [-1.0, 2.0]
    """
    *smaller, largest = positions
    centre = float(np.mean(smaller))
    squares = sum((position - centre) ** 2 for position in smaller)
    slopes = [(position - centre) / squares for position in smaller]
    return [1 / len(smaller) + (largest - centre) * slope for slope in slopes]


def _changes(scores: Scores) -> dict[AxisValues, tuple[str, str]]:
    """Return a variant of each change and the baseline with the same data and size, by the variant's other axes."""
    by_slug = scores.frames.by_slug
    by_axes = {frozenset(variant.axes.items()): slug for slug, variant in by_slug.items()}
    axes_of_baseline = by_slug[scores.frames.baseline].axes
    changes: dict[AxisValues, tuple[str, str]] = {}
    for slug, variant in by_slug.items():
        axes_of_against = {**axes_of_baseline, **comparison_group(variant.axes)}
        against = by_axes.get(frozenset(axes_of_against.items()), slug)
        if against != slug:
            changes.setdefault(axes_without_size(variant), (slug, against))
    return changes


def _at_every_size(
    by_size: Mapping[Scalar, Mapping[AxisValues, str]], axes: AxisValues
) -> list[str] | None:
    """Return the variant with these values at every size, from small to large; None if one of them is missing."""
    slugs = [variants[axes] for variants in by_size.values() if axes in variants]
    return slugs if len(slugs) == len(by_size) else None


def _name(scores: Scores, slug: str, against: str) -> str:
    """Return the clause for the change between two variants, followed by their data if the study has several."""
    variant = scores.frames.by_slug[slug]
    name = clause_between(variant, scores.frames.by_slug[against], variant.axes)
    return f"{name} ({variant.phrase(DATA_AXIS)})" if DATA_AXIS in variant.axes else name


def _predicted(
    scores: Scores,
    name: str,
    slugs: Sequence[str],
    baselines: Sequence[str],
    weights: tuple[Sequence[float], Sequence[float]],
) -> PredictedChange | None:
    """Return a change with its predictions.

    None if its scores cannot be compared, if its runs share too few seeds, or if an error is the same in every seed.

    Args:
        scores: The scores of the experiment.
        name: The name of the change.
        slugs: Its variants, from the smallest to the largest size.
        baselines: The baselines of these sizes.
        weights: For each prediction, the weight of the effect at each smaller size.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    if not _are_comparable(scores, slugs, baselines):
        return None
    sides = [Side(slug, scores.metric) for slug in [*slugs, *baselines]]
    seeds = scores.shared_seeds(sides)
    if len(seeds) < MIN_SEEDS:
        return None
    table = _with_seeds(scores.table(sides), seeds)
    by_seed = [[table.scores[side][seed] for seed in seeds] for side in sides]
    of_variant, of_baseline = by_seed[len(slugs) - 1], by_seed[-1]
    measured = float(np.mean(of_variant) - np.mean(of_baseline))
    confidence = CONFIDENCE
    if scores.frames.looks is not None:
        confidence = 1 - scores.frames.looks.level(ALPHA)
    predictions = []
    for of_sizes in weights:
        error = _error(table, sides, of_sizes)
        if error.kind != "varied":
            return None
        half_width = interval(error, confidence).high - error.mean
        predictions.append(Prediction(measured - error.mean, error, half_width))
    by_line, by_same_effect = predictions
    pairs = tuple(zip(slugs, baselines, strict=True))
    return PredictedChange(name, pairs, len(seeds), measured, by_line, by_same_effect)


def _are_comparable(scores: Scores, slugs: Sequence[str], baselines: Sequence[str]) -> bool:
    """Return whether the scores of a change can be compared with those of the baseline, and those of all sizes."""
    frames = scores.frames
    for slug, baseline in zip(slugs, baselines, strict=True):
        if score_mismatch(frames, slug, baseline, scores.metric) is not None:
            return False
        if per_token_mismatch(frames, baseline, baselines[-1], scores.metric) is not None:
            return False
    return True


def _with_seeds(table: ScoreTable, seeds: Sequence[int]) -> ScoreTable:
    """Return the table with the scores of these seeds alone."""
    limited = {}
    for side, by_seed in table.scores.items():
        limited[side] = {seed: value for seed, value in by_seed.items() if seed in seeds}
    return replace(table, scores=limited)


def _error(table: ScoreTable, sides: Sequence[Side], weights: Sequence[float]) -> Difference:
    """Return the effect at the largest size minus the weighted effects at the smaller sizes.

    Args:
        table: The scores of the sides.
        sides: The variants of the change from the smallest to the largest size, then the baselines.
        weights: The weight of each smaller size.
    """
    signed = [*(-weight for weight in weights), 1.0]
    setting: dict[Side, float] = {}
    for side, baseline, weight in zip(sides, sides[len(signed) :], signed, strict=False):
        if weight:
            setting[side] = weight
            setting[baseline] = -weight
    (estimate,) = estimate_family([Contrast("error", "size", (setting,))], table)
    return estimate.difference
