"""Contrasts: weighted sums of scores, with their estimates, standard errors and degrees of freedom.

A contrast averages over settings, and a setting gives each side a weight. The difference of two variants is one setting
with the weights 1 and −1. Whether an effect depends on another axis is a difference of differences: one setting with
four weights. An effect averaged over the values of another axis has a setting for each value. Everything else follows
from the weights: the estimate, its error, whether two contrasts are the same difference, and whether one is always 0.

A verdict is a separate step: `verdicts.judge` takes the differences of a family.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headtohead_judge.block_model import BlockModel, combined, contrast_variance, pooled
from headtohead_judge.examples import Examples, source_of_examples
from headtohead_judge.paired_tests import (
    SELECTION,
    Difference,
    Source,
    paired_differences,
    rounding_error,
)

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
    def weights(self) -> Mapping[Side, float]:
        """The weight of each side in the mean over settings; empty if the contrast is always 0."""
        sums: dict[Side, float] = {}
        for setting in self.settings:
            for side, weight in setting.items():
                sums[side] = sums.get(side, 0.0) + weight
        return {side: weight / len(self.settings) for side, weight in sums.items() if weight}

    @property
    def squared_weight(self) -> float:
        """The sum of the squared weights: the variance of the contrast if each score has variance 1."""
        return sum(weight**2 for weight in self.weights.values())

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
            trained: Returns the slug of the trained variant that a variant equals, or its own slug.
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
        seeds &= {seed for seed, value in by_seed.items() if math.isfinite(value)}
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
        difference: The mean over seeds with its sources of variance.
        settings: The difference of each setting; empty for a single setting.
        model: The block model that moderates the variance; None if the variance is computed from the contrast's values
            alone.
    """

    by_seed: Mapping[int, float]
    difference: Difference
    settings: tuple[Difference, ...]
    model: BlockModel | None = None


class Selection(NamedTuple):
    """The variance that the choice of a tuned value adds to the mean of a side, with its degrees of freedom."""

    variance: float
    degrees: float


@dataclass(frozen=True)
class ScoreTable:
    """The scores that the contrasts of a family weigh, all in one metric unless there are no blocks.

    Attributes:
        scores: The scores by side and seed.
        blocks: Sides that share the effect of a seed, such as the variants of one data set. The variances of contrasts
            are moderated within them. A contrast with a side outside the blocks keeps the variance of its own values.
        examples: The values by test example, of each test set. A contrast whose sides have values in all its seeds has
            the examples as a source of variance.
        selection: The variance of the choice of a tuned value, of the sides with one.
    """

    scores: SideScores
    blocks: tuple[Collection[Side], ...] = ()
    examples: tuple[Examples[Side], ...] = ()
    selection: Mapping[Side, Selection] = field(default_factory=dict)

    @cached_property
    def pooled_blocks(self) -> list[tuple[BlockModel | None, dict[Side, float]]]:
        """The block model of each block, and its sides with a larger variance, as `block_model.pooled` returns them.

        Sides with a single score have no part in it.
        """
        seeds: dict[int, None] = {}
        for by_seed in self.scores.values():
            seeds.update(dict.fromkeys(by_seed))
        block_models = []
        for block in self.blocks:
            rows = {}
            for side in block:
                by_seed = self.scores[side]
                if len(by_seed) > 1:
                    rows[side] = [by_seed.get(seed, np.nan) for seed in seeds]
            block_models.append(pooled(rows))
        return block_models

    @cached_property
    def _block_of(self) -> dict[Side, int]:
        """The number of the block of each side that is in one."""
        block_of = {}
        for number, block in enumerate(self.blocks):
            block_of.update(dict.fromkeys(block, number))
        return block_of

    def block_model(self, contrast: Contrast) -> tuple[tuple[int, ...], BlockModel | None]:
        """Return the numbers of the blocks of a contrast, and their block model.

        There are none if a side is in no block or has a larger variance.
        """
        squared_weights: dict[int, float] = {}
        for side, weight in contrast.weights.items():
            number = self._block_of.get(side)
            if number is None or side in self.pooled_blocks[number][1]:
                return (), None
            squared_weights[number] = squared_weights.get(number, 0.0) + weight**2
        blocks = tuple(sorted(squared_weights))
        parts = [(squared_weights[number], self.pooled_blocks[number][0]) for number in blocks]
        return blocks, combined(parts)

    def rounding_error(self, contrast: Contrast) -> float:
        """Return the `rounding_error` of the scores of the sides of a contrast, in any seed."""
        scores: list[float] = []
        for side in contrast.sides:
            scores += self.scores[side].values()
        return rounding_error(scores)

    def further_sources(self, contrast: Contrast, seeds: list[int]) -> list[Source]:
        """Return the sources of variance of a contrast beside the seeds: examples, and the choice of a value.

        Nothing with fewer than two seeds.
        """
        if len(seeds) < 2:
            return []
        sources = self._sources_of_examples(contrast, seeds)
        selection = self._source_of_selection(contrast)
        if selection is not None:
            sources.append(selection)
        return sources

    def _sources_of_examples(self, contrast: Contrast, seeds: list[int]) -> list[Source]:
        """Return the variance over examples, for each test set; nothing if a side has no values in a seed."""
        sources = []
        rest = contrast.weights
        for examples in self.examples:
            weights = {side: weight for side, weight in rest.items() if side in examples.values}
            if not weights:
                continue
            if not examples.has(weights, seeds):
                return []
            sources.append(source_of_examples(examples.by_group(weights, seeds)))
            rest = {side: weight for side, weight in rest.items() if side not in weights}
        return [] if rest else sources

    def _source_of_selection(self, contrast: Contrast) -> Source | None:
        """Return the variance of the choices of tuned values, with the degrees of Satterthwaite (1946).

        None if no side has a chosen value.
        """
        parts = []
        for side, weight in contrast.weights.items():
            if side in self.selection:
                variance, degrees = self.selection[side]
                parts.append((weight**2 * variance, degrees))
        if not parts:
            return None
        total = sum(variance for variance, _ in parts)
        squares = sum(variance**2 / degrees for variance, degrees in parts)
        # Without any variance, the degrees of freedom have no effect.
        return Source(SELECTION, total, total**2 / squares if squares else 1.0)


class _Values(NamedTuple):
    """A contrast or a setting, with its value in each of its seeds."""

    contrast: Contrast
    seeds: list[int]
    by_seed: Floats


def estimate_family(contrasts: Sequence[Contrast], table: ScoreTable) -> list[Estimate]:
    """Return the estimate of each contrast of a family.

    The variance over seeds is moderated towards the common variance of the family (`BlockModel`). The settings of a
    contrast are a family of their own.

    Args:
        contrasts: Contrasts with at least one seed in which all their sides have a score.
        table: The scores of their sides, and of all variants that share the effects of the seeds with them.
    """
    averages = []
    settings = []
    for contrast in contrasts:
        seeds, values = contrast.values(table.scores)
        averages.append(_Values(contrast, seeds, values.mean(axis=0)))
        rows = []
        if len(values) > 1:
            for setting, by_seed in zip(contrast.single_settings(), values, strict=True):
                rows.append(_Values(setting, seeds, by_seed))
        settings.append(rows)
    estimates = []
    differences = _differences(averages, table)
    for average, rows, (difference, model) in zip(averages, settings, differences, strict=True):
        by_seed = dict(zip(average.seeds, average.by_seed.tolist(), strict=True))
        of_settings = tuple(of_setting for of_setting, _ in _differences(rows, table))
        estimates.append(Estimate(by_seed, difference, of_settings, model))
    return estimates


def _differences(
    family: Sequence[_Values], table: ScoreTable
) -> list[tuple[Difference, BlockModel | None]]:
    """Return the differences of a family with all sources of variance, and the block models of their variances.

    Contrasts in the same blocks share a common variance, to which contrasts of the same difference contribute once.
    """
    unpooled = []
    members: dict[tuple[int, ...], dict[object, tuple[Difference, float]]] = {}
    for contrast, _, by_seed in family:
        difference = paired_differences(by_seed, rounding=table.rounding_error(contrast))
        blocks, model = table.block_model(contrast)
        unpooled.append((difference, blocks, model))
        members_of_blocks = members.setdefault(blocks, {})
        members_of_blocks[contrast.key] = (difference, contrast.squared_weight)
    variances = {}
    for blocks, members_of_blocks in members.items():
        variances[blocks] = contrast_variance(members_of_blocks.values())
    differences = []
    for (contrast, seeds, _), (own_difference, blocks, own_model) in zip(
        family, unpooled, strict=True
    ):
        difference = own_difference
        model = None
        if own_model is not None:
            variance, degrees = variances[blocks]
            model = replace(own_model, contrast_variance=variance, contrast_degrees=degrees)
            difference = model.moderated(own_difference, contrast.squared_weight)
        for source in table.further_sources(contrast, seeds):
            difference = difference.with_source(source)
        differences.append((difference, model))
    return differences
