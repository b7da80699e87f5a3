"""Effects of changes at the largest size, predicted from those at the smaller sizes.

There are two predictions: a straight line through the effects at the smaller sizes, over the logarithm of the
baseline's parameters; and the effect at the largest of the smaller sizes. The error of a prediction is a weighted sum
of scores, so its interval has every source of variance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from headtohead.analysis.order_transfer import AxisValues, variants_by_size
from headtohead.analysis.scores import Scores
from headtohead.analysis.wording import clause_between
from headtohead.config.labels import Scalar
from headtohead_judge.contrast import Contrast, Estimate, Side, estimate_family, shared_seeds
from headtohead_judge.paired_tests import CONFIDENCE, interval

MIN_SIZES = 3
"""Minimum number of sizes: a line needs two smaller ones."""
MIN_SEEDS = 3
"""Minimum number of seeds that all sides of a prediction share."""


class Prediction(NamedTuple):
    """The predicted effect of a change at the largest size.

    Attributes:
        effect: The predicted effect.
        error: The measured effect minus the predicted one.
        half_width: That of the 95 % prediction interval of the measured effect. It contains the variance of the
            measured effect and of the effects at the smaller sizes, and not that of effects around a line.
    """

    effect: float
    error: float
    half_width: float

    @property
    def is_right(self) -> bool:
        """Whether the prediction interval contains the measured effect."""
        return abs(self.error) <= self.half_width

    @property
    def low(self) -> float:
        """The lower end of the prediction interval."""
        return self.effect - self.half_width

    @property
    def high(self) -> float:
        """The upper end of the prediction interval."""
        return self.effect + self.half_width


class PredictedChange(NamedTuple):
    """A change with its measured effect at the largest size, and both predictions of it."""

    name: str
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
        changes: The changes whose variants are ranked at every size.
    """

    sizes: tuple[Scalar, ...]
    changes: tuple[PredictedChange, ...]


def size_predictions(scores: Scores) -> SizePredictions | None:
    """Return the predicted effect of every change at the largest size, against the baseline of each size.

    None with fewer than three sizes, if the baseline is not ranked at every size, if its parameters do not grow from
    size to size, or if no change has three seeds that all its variants share.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    by_size = variants_by_size(scores)
    baselines = _of_every_size(by_size, _axes_of_baseline(scores))
    if len(by_size) < MIN_SIZES or not baselines:
        return None
    by_slug = scores.frames.by_slug
    parameters = [by_slug[slug].counts.non_embedding for slug in baselines]
    if sorted(set(parameters)) != parameters:
        return None
    line_weights = weights_of_line([math.log(number) for number in parameters])
    same_weights = [0.0] * (len(parameters) - 2) + [1.0]
    changed = _changed_variants(scores, by_size, baselines)
    if not changed:
        return None
    smaller_weights = [0.0] * len(same_weights)
    measured = _estimates(scores, baselines, changed, smaller_weights)
    line_errors = _estimates(scores, baselines, changed, line_weights)
    same_errors = _estimates(scores, baselines, changed, same_weights)
    changes = []
    for slugs, effect, line_error, same_error in zip(
        changed, measured, line_errors, same_errors, strict=True
    ):
        variant, baseline = by_slug[slugs[0]], by_slug[baselines[0]]
        name = clause_between(variant, baseline, variant.axes)
        mean = effect.difference.mean
        by_line = _prediction(mean, line_error)
        by_same_effect = _prediction(mean, same_error)
        changes.append(PredictedChange(name, mean, by_line, by_same_effect))
    return SizePredictions(tuple(by_size), tuple(changes))


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


def _axes_of_baseline(scores: Scores) -> AxisValues:
    """Return the values of the baseline's axes without its size."""
    baseline = scores.frames.baseline
    for variants in variants_by_size(scores).values():
        for axes, slug in variants.items():
            if slug == baseline:
                return axes
    return ()


def _of_every_size(
    by_size: Mapping[Scalar, Mapping[AxisValues, str]], axes: AxisValues
) -> list[str]:
    """Return the variant with these values at every size, from small to large; empty if one of them is missing."""
    slugs = [variants[axes] for variants in by_size.values() if axes in variants]
    return slugs if len(slugs) == len(by_size) else []


def _changed_variants(
    scores: Scores,
    by_size: Mapping[Scalar, Mapping[AxisValues, str]],
    baselines: Sequence[str],
) -> list[list[str]]:
    """Return the variants of each change at every size, of the changes with enough seeds that all of them share."""
    changed = []
    for axes in next(iter(by_size.values())):
        slugs = _of_every_size(by_size, axes)
        if not slugs or slugs == list(baselines):
            continue
        sides = [Side(slug, scores.metric) for slug in [*slugs, *baselines]]
        seeds = shared_seeds([scores.healthy(side) for side in sides])
        if len(seeds) >= MIN_SEEDS:
            changed.append(slugs)
    return changed


def _estimates(
    scores: Scores,
    baselines: Sequence[str],
    changed: Sequence[Sequence[str]],
    weights: Sequence[float],
) -> list[Estimate]:
    """Return, for each change, its effect at the largest size minus the weighted effects at the smaller sizes.

    Args:
        scores: The scores of the experiment.
        baselines: The baseline of each size.
        changed: The variants of each change at every size.
        weights: The weight of each smaller size.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    signed_weights = [*(-weight for weight in weights), 1.0]
    contrasts = []
    for slugs in changed:
        setting: dict[Side, float] = {}
        for slug, baseline, weight in zip(slugs, baselines, signed_weights, strict=True):
            if weight:
                setting[Side(slug, scores.metric)] = weight
                setting[Side(baseline, scores.metric)] = -weight
        contrasts.append(Contrast(slugs[-1], "size", (setting,)))
    sides = [Side(slug, scores.metric) for slugs in [*changed, baselines] for slug in slugs]
    return estimate_family(contrasts, scores.table(sides))


def _prediction(measured: float, error: Estimate) -> Prediction:
    """Return the prediction with this error of the measured effect."""
    mean = error.difference.mean
    high = interval(error.difference, CONFIDENCE).high
    return Prediction(effect=measured - mean, error=mean, half_width=high - mean)
