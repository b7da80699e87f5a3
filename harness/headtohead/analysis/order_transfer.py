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
from headtohead_judge.contrast import Contrast, Side, estimate_family, score_matrix, shared_seeds
from headtohead_judge.paired_tests import CONFIDENCE, Interval
from headtohead_judge.verdicts import LARGER, SMALLER, judge

Floats = NDArray[np.float64]

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
    by_size = _variants_by_size(scores)
    data_set_of = {}
    for number, data_set in enumerate(scores.data_sets):
        data_set_of.update(dict.fromkeys(data_set, number))
    results = []
    for small, large in itertools.pairwise(by_size):
        small_slugs = []
        large_slugs = []
        data_sets = []
        for other_axes, small_slug in by_size[small].items():
            if other_axes in by_size[large]:
                large_slug = by_size[large][other_axes]
                small_slugs.append(small_slug)
                large_slugs.append(large_slug)
                data_sets.append((data_set_of[small_slug], data_set_of[large_slug]))
        pairs = _pairs_with_equal(data_sets)
        sides = [Side(slug, scores.metric) for slug in [*small_slugs, *large_slugs]]
        scores_by_seed = [scores.healthy(side) for side in sides]
        seeds = shared_seeds(scores_by_seed)
        if not pairs or len(seeds) < 3:
            continue
        small_means, small_verdicts = _differences(scores, small_slugs, pairs)
        large_means, large_verdicts = _differences(scores, large_slugs, pairs)
        means = np.stack([small_means, large_means])
        counts = compare_orders(means, np.stack([small_verdicts, large_verdicts]))
        if counts is None:
            continue
        table = score_matrix(scores_by_seed, seeds).reshape(2, len(small_slugs), len(seeds))
        has_order = means.all(axis=0)
        first, second = np.array(pairs)[has_order].T
        order_range = resampled_range(table[:, first] - table[:, second])
        results.append(OrderTransfer(small, large, len(small_slugs), counts, order_range))
    return tuple(results)


def _pairs_with_equal(values: Sequence[object]) -> list[tuple[int, int]]:
    """Return the indices of every two equal values, the smaller index first; empty without equal values."""
    pairs = []
    for first, second in itertools.combinations(range(len(values)), 2):
        if values[first] == values[second]:
            pairs.append((first, second))
    return pairs


def _variants_by_size(
    scores: Scores,
) -> dict[Scalar, dict[tuple[tuple[str, Scalar], ...], str]]:
    """Return the ranked variants with runs of their own by size, then by the values of their other axes."""
    by_size: dict[Scalar, dict[tuple[tuple[str, Scalar], ...], str]] = {}
    for slug, variant in scores.frames.by_slug.items():
        has_runs = scores.frames.trained(slug) == slug
        if SIZE_AXIS in variant.axes and slug in scores.ranked and has_runs:
            rest = tuple(item for item in variant.axes.items() if item[0] != SIZE_AXIS)
            by_size.setdefault(variant.axes[SIZE_AXIS], {})[rest] = slug
    return by_size


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
