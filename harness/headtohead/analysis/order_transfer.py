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
from scipy.special import stdtrit

from headtohead.analysis.scores import Scores
from headtohead.config.labels import Scalar
from headtohead.planning.variants import SIZE_AXIS
from headtohead_judge.contrast import Side, score_matrix, shared_seeds
from headtohead_judge.paired_tests import ALPHA, CONFIDENCE, Interval, paired

RESAMPLES = 2000


class OrderTransfer(NamedTuple):
    """How many pairs of variants have the same order, and the same verdict, at two successive sizes.

    Pairs with equal means at one of the sizes have no order and are left out.

    Attributes:
        small: Label of the smaller size.
        large: Label of the larger size.
        variants: Number of variants that are ranked at both sizes.
        pairs: Number of pairs of them with the same data at each size.
        same_order: Number of pairs whose means have the same order.
        order_range: Range of ``same_order / pairs`` in 95 % of the resamples of seeds.
        same_verdict: Number of pairs that are better, worse or not shown to differ at both sizes, by paired t-tests
            at 5 %, not adjusted.
        verdict_range: Range of ``same_verdict / pairs``, like ``order_range``.
        detected: Number of these pairs with a detected difference.
        reversed: Number of pairs with a detected difference at both sizes, in opposite directions.
    """

    small: Scalar
    large: Scalar
    variants: int
    pairs: int
    same_order: int
    order_range: Interval
    same_verdict: int
    verdict_range: Interval
    detected: int
    reversed: int


def order_transfer(scores: Scores) -> tuple[OrderTransfer, ...]:
    """Return the transfer from each size to the next one, of the variants that are ranked at both.

    Variants that equal another variant are left out, and so are seeds that a variant lacks or in which a run collapsed.
    Two successive sizes have no entry without a pair of variants on the same data, with fewer than three seeds, or if
    every pair has equal means at one of the sizes. Empty without the axis ``size``.

    Raises:
        HeadToHeadError: If no registered dataset declares the metric, by which variants are ranked.
    """
    by_size = _variants_by_size(scores)
    data_set_of = {}
    for number, data_set in enumerate(scores.data_sets):
        data_set_of.update(dict.fromkeys(data_set, number))
    results = []
    for small, large in itertools.pairwise(by_size):
        slugs = []
        data_sets = []
        for other_axes, small_slug in by_size[small].items():
            if other_axes in by_size[large]:
                large_slug = by_size[large][other_axes]
                slugs.append((small_slug, large_slug))
                data_sets.append((data_set_of[small_slug], data_set_of[large_slug]))
        pairs = _pairs_with_equal(data_sets)
        rows = []
        for size in (0, 1):
            for slug_by_size in slugs:
                side = Side(slug_by_size[size], scores.metric)
                rows.append(scores.healthy(side))
        seeds = shared_seeds(rows)
        if not pairs or len(seeds) < 3:  # the resamples of two seeds that vary have equal means
            continue
        values = score_matrix(rows, seeds)
        by_size_and_variant = values.reshape(2, len(slugs), len(seeds))
        counts = compare_orders(by_size_and_variant, pairs)
        if counts:
            results.append(OrderTransfer(small, large, len(slugs), *counts))
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


def compare_orders(
    values: NDArray[np.float64], pairs: Sequence[tuple[int, int]]
) -> tuple[int, int, Interval, int, Interval, int, int] | None:
    """Return the fields of `OrderTransfer` from ``pairs`` on; None if every pair has equal means at one of the sizes.

    Args:
        values: Scores at two sizes, ``[2, variant, seed]``, of at least three seeds, without NaN.
        pairs: The indices of the variants to compare; at least one pair.

    Raises:
        ValueError: If a score is not finite.
        IndexError: If a pair has the index of no variant.
    """
    means = np.empty((2, len(pairs)))
    p_values = np.empty((2, len(pairs)))
    for size in (0, 1):
        for column, (first, second) in enumerate(pairs):
            test = paired(values[size, first], values[size, second])
            means[size, column] = test.mean
            p_values[size, column] = test.p
    ordered = np.flatnonzero(means.all(axis=0))  # pairs with a difference at both sizes
    if not len(ordered):
        return None
    signs = np.sign(means[:, ordered])
    verdicts = signs * (p_values[:, ordered] <= ALPHA)
    first, second = np.array(pairs)[ordered].T
    order_range, verdict_range = _resampled_ranges(values[:, first] - values[:, second])
    both_detected = verdicts[0] * verdicts[1]
    return (
        len(ordered),
        int(_equal(signs)),
        order_range,
        int(_equal(verdicts)),
        verdict_range,
        int((both_detected > 0).sum()),
        int((both_detected < 0).sum()),
    )


def _resampled_ranges(differences: NDArray[np.float64]) -> tuple[Interval, Interval]:
    """Return the ranges over resampled seeds of the fractions of pairs with equal order, and with equal verdict.

    The resamples are the same in every call.

    Args:
        differences: The differences of the pairs at two sizes, ``[2, pair, seed]``, of at least one pair and three
            seeds.
    """
    seeds = differences.shape[-1]
    drawn = np.random.default_rng(0).integers(seeds, size=(RESAMPLES, seeds))
    # The differences of a resample of one seed have no variance.
    chosen = drawn[np.ptp(drawn, axis=1) > 0]  # [resample, seed]
    resampled = differences[..., chosen]  # [2, pair, resample, seed]
    means = resampled.mean(axis=-1)  # [2, pair, resample]
    # The expected variance of a resample is (seeds - 1) / seeds times that of the seeds.
    errors = resampled.std(axis=-1, ddof=1) / (seeds - 1) ** 0.5
    smallest_detected = stdtrit(seeds - 1, 1 - ALPHA / 2) * errors
    order = np.sign(means)
    verdict = order * (np.abs(means) >= smallest_detected)
    return _range(order), _range(verdict)


def _range(signs: NDArray[np.float64]) -> Interval:
    """Return the range, in 95 % of the resamples, of the fraction of pairs with the same sign at both sizes.

    Args:
        signs: ``[2, pair, resample]``.
    """
    fractions = _equal(signs) / signs.shape[1]
    ends = (1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2
    low, high = np.quantile(fractions, ends).tolist()
    return Interval(low, high)


def _equal(signs: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return how many pairs have the same sign at both sizes, ``[...]`` of ``[2, pair, ...]``."""
    return np.asarray((signs[0] == signs[1]).sum(axis=0))
