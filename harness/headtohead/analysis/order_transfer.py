"""Order transfer: whether variants have the same order at two successive sizes.

The fraction of pairs with equal order is the decision accuracy of DataDecide (I. Magnusson et al., 2025,
arXiv:2504.11393, section 2.3). Resampled seeds show how much it varies, because pairs share variants and are not
independent.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headtohead.analysis.scores import Scores
from headtohead.config.labels import Scalar
from headtohead.planning.variants import SIZE_AXIS
from headtohead.storage.experiment import VariantRecord
from headtohead_judge.contrast import Contrast, Side, estimate_family, score_matrix, shared_seeds
from headtohead_judge.paired_tests import CONFIDENCE, Interval
from headtohead_judge.verdicts import LARGER, SMALLER, judge

Floats = NDArray[np.float64]
AxisValues = tuple[tuple[str, Scalar], ...]
"""The value of each axis of a variant but the size."""

RESAMPLES = 2000


SIGNS = {LARGER: 1.0, SMALLER: -1.0}


class OrderCounts(NamedTuple):
    """How many pairs of variants have the same order, and the same verdict, at two successive sizes.

    Pairs with equal means at one of the sizes have no order and are left out.

    Attributes:
        pairs: Number of pairs with the same data at each size.
        same_order: Number of pairs whose means have the same order.
        same_verdict: Number of pairs that are larger, smaller or not shown to differ at both sizes, by the intervals of
            the judge. The pairs of a size are a family.
        same_direction: Number of these pairs with a detected difference, in the same direction at both sizes.
        reversed: Number of pairs with a detected difference at both sizes, in opposite directions.
    """

    pairs: int
    same_order: int
    same_verdict: int
    same_direction: int
    reversed: int


class OrderTransfer(NamedTuple):
    """How many pairs of variants keep their order and their verdict from one size to the next.

    Attributes:
        small: Label of the smaller size.
        large: Label of the larger size.
        num_variants: Number of variants that are ranked at both sizes.
        counts: The numbers of pairs of them.
        order_range: Range of ``same_order / pairs`` in 95 % of the resamples of seeds.
    """

    small: Scalar
    large: Scalar
    num_variants: int
    counts: OrderCounts
    order_range: Interval


def order_transfer(scores: Scores) -> tuple[OrderTransfer, ...]:
    """Return the transfer from each size to the next one, of the variants that are ranked at both.

    Variants that equal another variant and collapsed runs are left out. The range of the same order is over the seeds
    that all these variants share. Two successive sizes have no entry without a pair of variants on the same data, with
    fewer than three shared seeds, or if every pair has equal means at one of the sizes. Empty without the axis
    ``size``.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    by_size = variants_by_size(scores)
    transfers = []
    for small, large in itertools.pairwise(by_size):
        shared_axes = [axes for axes in by_size[small] if axes in by_size[large]]
        small_slugs = [by_size[small][axes] for axes in shared_axes]
        large_slugs = [by_size[large][axes] for axes in shared_axes]
        transfer = _transfer(scores, small_slugs, large_slugs)
        if transfer is not None:
            counts, order_range = transfer
            transfers.append(OrderTransfer(small, large, len(shared_axes), counts, order_range))
    return tuple(transfers)


def _transfer(
    scores: Scores, small_slugs: Sequence[str], large_slugs: Sequence[str]
) -> tuple[OrderCounts, Interval] | None:
    """Return the counts of two sizes and the range of the same order; None if no pair has an order at both sizes.

    None also with fewer than three seeds that all variants share.

    Args:
        scores: The scores of the experiment.
        small_slugs: The variants at the smaller size.
        large_slugs: The same variants at the larger size, in the same order.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    pairs = _pairs_on_same_data(scores, small_slugs, large_slugs)
    sides = [Side(slug, scores.metric) for slug in [*small_slugs, *large_slugs]]
    scores_by_seed = [scores.healthy(side) for side in sides]
    seeds = shared_seeds(scores_by_seed)
    if not pairs or len(seeds) < 3:
        return None
    small_means, small_verdicts = _differences(scores, small_slugs, pairs)
    large_means, large_verdicts = _differences(scores, large_slugs, pairs)
    means = np.stack([small_means, large_means])  # [size, pair]
    verdicts = np.stack([small_verdicts, large_verdicts])
    counts = compare_orders(means, verdicts)
    if counts is None:
        return None
    # The rows of the matrix are the variants at the small size, then those at the large size.
    matrix = score_matrix(scores_by_seed, seeds)
    by_size = matrix.reshape(2, len(small_slugs), len(seeds))
    has_order = means.all(axis=0)  # a pair with equal means at one of the sizes has none
    first, second = np.array(pairs)[has_order].T
    differences = by_size[:, first] - by_size[:, second]  # [size, pair, seed]
    return counts, resampled_range(differences)


def _pairs_on_same_data(
    scores: Scores, small_slugs: Sequence[str], large_slugs: Sequence[str]
) -> list[tuple[int, int]]:
    """Return the indices of every two variants with the same data at each size, the smaller index first."""
    number_of_data_set = {}
    for number, data_set in enumerate(scores.data_sets):
        for slug in data_set:
            number_of_data_set[slug] = number
    pairs = []
    for first, second in itertools.combinations(range(len(small_slugs)), 2):
        numbers_at_small = {number_of_data_set[small_slugs[index]] for index in (first, second)}
        numbers_at_large = {number_of_data_set[large_slugs[index]] for index in (first, second)}
        if len(numbers_at_small) == 1 and len(numbers_at_large) == 1:
            pairs.append((first, second))
    return pairs


def variants_by_size(
    scores: Scores,
) -> dict[Scalar, dict[AxisValues, str]]:
    """Return the ranked variants with runs of their own by size, then by the values of their other axes.

    Sizes have the order of the experiment file, whichever variants are ranked; a size without any is empty.
    """
    by_size: dict[Scalar, dict[AxisValues, str]] = {}
    for slug, variant in scores.frames.by_slug.items():
        if SIZE_AXIS not in variant.axes:
            continue
        variants = by_size.setdefault(variant.axes[SIZE_AXIS], {})
        has_runs = scores.frames.trained(slug) == slug
        if slug in scores.ranked and has_runs:
            variants[axes_without_size(variant)] = slug
    return by_size


def axes_without_size(variant: VariantRecord) -> AxisValues:
    """Return the value of each axis of a variant but its size."""
    return tuple(item for item in variant.axes.items() if item[0] != SIZE_AXIS)


def _differences(
    scores: Scores, slugs: Sequence[str], pairs: Sequence[tuple[int, int]]
) -> tuple[Floats, Floats]:
    """Return the mean difference ``[pair]`` of pairs of variants, and its sign where it is detected, else 0.

    The pairs of a size are a family.

    Args:
        scores: The scores of the experiment.
        slugs: The variants of a size.
        pairs: The indices of the variants to compare; each pair shares a seed.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    sides = [Side(slug, scores.metric) for slug in slugs]
    contrasts = []
    for first, second in pairs:
        weights = {sides[first]: 1.0, sides[second]: -1.0}
        contrasts.append(Contrast(f"{slugs[first]} − {slugs[second]}", "pair", (weights,)))
    estimates = estimate_family(contrasts, scores.table(sides))
    differences = [estimate.difference for estimate in estimates]
    judgements = judge(differences, higher_is_better=None, looks=scores.frames.looks)
    means = np.array([difference.mean for difference in differences])
    verdicts = [SIGNS.get(judgement.direction, 0.0) for judgement in judgements]
    return means, np.array(verdicts)


def compare_orders(means: Floats, verdicts: Floats) -> OrderCounts | None:
    """Return how many pairs have the same order and verdict; None if all have equal means at one of the sizes.

    Args:
        means: The mean difference of each pair at two sizes, ``[2, pair]``.
        verdicts: Its sign where it is detected, else 0.
    """
    ordered = np.flatnonzero(means.all(axis=0))  # pairs with a difference at both sizes
    if not len(ordered):
        return None
    signs = np.sign(means[:, ordered])
    both_detected = verdicts[0, ordered] * verdicts[1, ordered]
    return OrderCounts(
        pairs=len(ordered),
        same_order=int(_equal(signs)),
        same_verdict=int(_equal(verdicts[:, ordered])),
        same_direction=int((both_detected > 0).sum()),
        reversed=int((both_detected < 0).sum()),
    )


def resampled_range(differences: Floats) -> Interval:
    """Return the range, in 95 % of the resamples of seeds, of the fraction of pairs with the same order at two sizes.

    The resamples are the same in every call.

    Args:
        differences: The differences of the pairs at two sizes, ``[2, pair, seed]``, of at least one pair and three
            seeds.
    """
    seeds = differences.shape[-1]
    chosen = np.random.default_rng(0).integers(seeds, size=(RESAMPLES, seeds))
    signs = np.sign(differences[..., chosen].mean(axis=-1))  # [2, pair, resample]
    fractions = _equal(signs) / signs.shape[1]
    ends = (1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2
    low, high = np.quantile(fractions, ends).tolist()
    return Interval(low, high)


def _equal(signs: Floats) -> NDArray[np.int64]:
    """Return how many pairs have the same sign at both sizes, ``[...]`` of ``[2, pair, ...]``."""
    return np.asarray((signs[0] == signs[1]).sum(axis=0))
