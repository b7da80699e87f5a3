"""Contrasts: weighted sums of scores, with their estimates, standard errors and degrees of freedom.

A contrast averages over settings, and a setting gives each side a weight. The difference of two variants is one setting
with the weights 1 and −1. Whether an effect depends on another axis is a difference of differences: one setting with
four weights. An effect averaged over the values of another axis has a setting for each value. Everything else follows
from the weights: the estimate, its error, whether two contrasts are the same difference, and whether one is always 0.

A verdict is a separate step: `verdicts.judge` takes the differences of a family.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headtohead_judge.block_model import BlockModel, combined, pooled
from headtohead_judge.paired_tests import Difference, paired_differences

Floats = NDArray[np.float64]


class Side(NamedTuple):
    """A score that a contrast weighs: a variant, its metric, and the source lengths that count, if not all."""

    variant: str
    metric: str
    lengths: tuple[int, int] | None = None


Setting = Mapping[Side, float]
"""The weight of each side in a setting of a contrast."""

SideScores = Mapping[Side, Mapping[int, float]]
"""The score of each side by seed; NaN is a score that does not count, such as that of a collapsed run."""


@dataclass(frozen=True)
class Contrast:
    """The mean of the settings, each of which is a weighted sum of scores.

    Attributes:
        name: The name in tables and sentences.
        family: The contrasts of a family are corrected together.
        settings: The weight of each side, by setting.
    """

    name: str
    family: str
    settings: tuple[Setting, ...]

    @property
    def sides(self) -> list[Side]:
        """All sides, in the order of the settings."""
        sides: dict[Side, None] = {}
        for setting in self.settings:
            sides.update(dict.fromkeys(setting))
        return list(sides)

    def sides_with(self, sign: float) -> list[Side]:
        """Return the sides whose weight has this sign, once for each setting."""
        sides = []
        for setting in self.settings:
            sides += with_sign(setting, sign)
        return sides

    @property
    def score_kinds(self) -> tuple[tuple[str, tuple[int, int] | None], ...]:
        """The metric and source lengths of each side, each once: several if the contrast compares different scores."""
        return tuple(dict.fromkeys((side.metric, side.lengths) for side in self.sides))

    @property
    def metrics(self) -> list[str]:
        """The metrics of the sides; several if a contrast compares two metrics."""
        return list(dict.fromkeys(metric for metric, _ in self.score_kinds))

    @cached_property
    def _sums(self) -> dict[Side, float]:
        """The sum of the weights of each side over the settings, without sides whose weights cancel."""
        sums: dict[Side, float] = {}
        for setting in self.settings:
            for side, weight in setting.items():
                sums[side] = sums.get(side, 0.0) + weight
        return {side: weight for side, weight in sums.items() if weight}

    @property
    def weights(self) -> dict[Side, float]:
        """The weight of each side in the mean over settings; empty if the contrast is always 0."""
        return {side: weight / len(self.settings) for side, weight in self._sums.items()}

    @property
    def squared_weight(self) -> float:
        """The sum of the squared weights: the variance of the contrast if each score has variance 1."""
        return sum(weight**2 for weight in self._sums.values()) / len(self.settings) ** 2

    @property
    def sign(self) -> float:
        """1 or −1, the sign of the first weight of `key`; exchanging all sides changes it."""
        weights = self.weights
        if not weights:
            return 1.0
        first = min(weights, key=repr)
        return 1.0 if weights[first] > 0 else -1.0

    @property
    def key(self) -> tuple[tuple[Side, float], ...]:
        """The weights by side, as a key of the difference: contrasts with exchanged sides share it.

        The value of a contrast times its `sign` is the same for all contrasts with this key.
        """
        sign = self.sign
        ordered = sorted(self.weights.items(), key=repr)
        return tuple((side, sign * weight) for side, weight in ordered)

    def with_sides(self, converted: Callable[[Side], Side]) -> Contrast:
        """Return the contrast of other sides; weights of sides that become equal are added, and cancel if they can."""
        settings = []
        for setting in self.settings:
            weights: dict[Side, float] = {}
            for side, weight in setting.items():
                new_side = converted(side)
                weights[new_side] = weights.get(new_side, 0.0) + weight
            settings.append({side: weight for side, weight in weights.items() if weight})
        return replace(self, settings=tuple(settings))

    def without_empty_settings(self) -> Contrast:
        """Return the contrast without the settings in which all weights cancelled."""
        return self.with_settings([setting for setting in self.settings if setting])

    def with_settings(self, settings: Sequence[Setting]) -> Contrast:
        """Return the contrast of these settings."""
        return replace(self, settings=tuple(settings))

    def of_trained(self, trained: Callable[[str], str]) -> Contrast:
        """Return the contrast of the variants with the runs.

        Args:
            trained: Returns the slug of the variant whose runs are those of a variant.
        """
        return self.with_sides(lambda side: side._replace(variant=trained(side.variant)))

    def single_settings(self) -> list[Contrast]:
        """Return a contrast for each setting."""
        return [self.with_settings([setting]) for setting in self.settings]

    def values(self, scores: SideScores) -> tuple[list[int], Floats]:
        """Return the seeds in which every side has a score, and the value of each setting ``[setting, seed]``."""
        sides = self.sides
        seeds = shared_seeds([scores.get(side, {}) for side in sides])
        scores_by_side = score_matrix([scores.get(side, {}) for side in sides], seeds)
        column_of = {side: column for column, side in enumerate(sides)}
        weights = np.zeros((len(self.settings), len(sides)))
        for row, setting in enumerate(self.settings):
            for side, weight in setting.items():
                weights[row, column_of[side]] = weight
        values: Floats = weights @ scores_by_side
        return seeds, values


def with_sign(setting: Setting, sign: float) -> list[Side]:
    """Return the sides of a setting whose weight has this sign."""
    return [side for side, weight in setting.items() if weight * sign > 0]


def shared_seeds(scores: Sequence[Mapping[int, float]]) -> list[int]:
    """Return the seeds, ascending, in which all have a score that counts."""
    if not scores:
        return []
    seeds = set(scores[0])
    for by_seed in scores:
        seeds &= {seed for seed, value in by_seed.items() if np.isfinite(value)}
    return sorted(seeds)


def score_matrix(scores: Sequence[Mapping[int, float]], seeds: Sequence[int]) -> Floats:
    """Return scores by seed as a matrix with a row for each mapping and a column for each of the seeds."""
    matrix = np.empty((len(scores), len(seeds)))
    for row, by_seed in enumerate(scores):
        matrix[row] = [by_seed[seed] for seed in seeds]
    return matrix


@dataclass(frozen=True)
class Estimate:
    """The estimate of a contrast.

    Attributes:
        by_seed: The value of the contrast in each seed.
        difference: The mean over seeds with its standard error, degrees of freedom and tests.
        settings: The difference of each setting; empty for a single setting.
    """

    by_seed: Mapping[int, float]
    difference: Difference
    settings: tuple[Difference, ...]


@dataclass(frozen=True)
class ScoreTable:
    """The scores that the contrasts of a family weigh, all in one metric unless there are no blocks.

    Attributes:
        scores: The scores by side and seed.
        blocks: Sides that share the effect of a seed, such as the variants of one data set. The variances of contrasts
            are moderated within them. A contrast with a side outside the blocks keeps the variance of its own values.
    """

    scores: SideScores
    blocks: tuple[Collection[Side], ...] = ()

    @cached_property
    def pooled_blocks(self) -> list[tuple[BlockModel | None, dict[Side, float]]]:
        """The block model of each block, and its sides with a larger variance, as `block_model.pooled` returns them.

        Sides with a single score have no part in it.
        """
        seeds: dict[int, None] = {}
        for by_seed in self.scores.values():
            seeds.update(dict.fromkeys(by_seed))
        found = []
        for block in self.blocks:
            rows = {}
            for side in block:
                by_seed = self.scores[side]
                if len(by_seed) > 1:
                    rows[side] = [by_seed.get(seed, np.nan) for seed in seeds]
            found.append(pooled(rows))
        return found

    def block_model(self, contrast: Contrast) -> BlockModel | None:
        """Return the block model of a contrast; None without one for all its sides, or if one has a larger variance."""
        weights = contrast.weights
        outside = set(weights)
        parts = []
        for block, (model, larger) in zip(self.blocks, self.pooled_blocks, strict=True):
            inside = outside.intersection(block)
            if not inside:
                continue
            if inside.intersection(larger):
                return None
            squared_weight = sum(weights[side] ** 2 for side in inside)
            parts.append((squared_weight, model))
            outside -= inside
        return None if outside else combined(parts)

    def estimate(self, contrast: Contrast) -> Estimate:
        """Return the estimate of a contrast, with the variance of its block model in the standard errors."""
        seeds, values = contrast.values(self.scores)
        largest_score = 0.0
        for side in contrast.sides:
            sizes = np.abs([*self.scores[side].values()])
            largest_score = max(largest_score, float(np.nanmax(sizes)))
        mean = values.mean(axis=0)
        settings = []
        if len(contrast.settings) > 1:
            for by_seed, setting in zip(values, contrast.single_settings(), strict=True):
                settings.append(self._difference(setting, by_seed, largest_score))
        return Estimate(
            by_seed=dict(zip(seeds, mean.tolist(), strict=True)),
            difference=self._difference(contrast, mean, largest_score),
            settings=tuple(settings),
        )

    def _difference(self, contrast: Contrast, by_seed: Floats, largest_score: float) -> Difference:
        """Return the tested mean of the values of a contrast by seed."""
        difference = paired_differences(by_seed, scale=largest_score)
        model = self.block_model(contrast)
        if model is None:
            return difference
        return model.moderated(difference, contrast.squared_weight)


def estimate_family(contrasts: Sequence[Contrast], table: ScoreTable) -> list[Estimate]:
    """Return the estimate of each contrast of a family.

    Args:
        contrasts: Contrasts with at least one seed in which all their sides have a score.
        table: The scores of their sides, and of all variants that share the effects of the seeds with them.
    """
    return [table.estimate(contrast) for contrast in contrasts]
