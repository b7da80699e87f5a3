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
from scipy.stats import t

from headtohead.analysis.scores import Scores, Side
from headtohead.config.labels import Scalar
from headtohead.planning.variants import SIZE_AXIS
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
        same_verdict: Number of pairs that are better, worse or undetected at both sizes, by paired t-tests at 5 %,
            not adjusted.
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
    """Return the transfer from each size to the next one; empty without the axis ``size`` or three seeds.

    Variants that equal another variant are left out, and so are seeds in which a run collapsed.
    """
    frames, by_size = scores.frames, dict[Scalar, dict[tuple[tuple[str, Scalar], ...], str]]()
    for slug, variant in frames.by_slug.items():
        if SIZE_AXIS in variant.axes and slug in scores.ranked and frames.trained(slug) == slug:
            rest = tuple(item for item in variant.axes.items() if item[0] != SIZE_AXIS)
            by_size.setdefault(variant.axes[SIZE_AXIS], {})[rest] = slug
    data_sets = {slug: number for number, group in enumerate(scores.data_sets) for slug in group}
    found = []
    for small, large in itertools.pairwise(by_size):
        common = [
            (by_size[small][rest], by_size[large][rest])
            for rest in by_size[small]
            if rest in by_size[large]
        ]
        rows = [
            scores.healthy(Side(slug, scores.metric))
            for slug in itertools.chain(*zip(*common, strict=True))
        ]
        seeds = sorted(set.intersection(*map(set, rows))) if rows else []
        groups = [(data_sets[left], data_sets[right]) for left, right in common]
        pairs = [
            (a, b)
            for a, b in itertools.combinations(range(len(common)), 2)
            if groups[a] == groups[b]
        ]
        if pairs and len(seeds) > 2:  # the resamples of two seeds that vary have equal means
            values = np.array([[row[seed] for seed in seeds] for row in rows]).reshape(
                2, len(common), len(seeds)
            )
            if counts := compare_orders(values, pairs):
                found.append(OrderTransfer(small, large, len(common), *counts))
    return tuple(found)


def compare_orders(
    values: NDArray[np.float64], pairs: Sequence[tuple[int, int]]
) -> tuple[int, int, Interval, int, Interval, int, int] | None:
    """Return the fields of `OrderTransfer` from ``pairs`` on; None if every pair has equal means at one of the sizes.

    Args:
        values: Scores at two sizes, ``[2, variant, seed]``.
        pairs: The variants to compare.
    """
    tests = [[paired(size[a], size[b]) for a, b in pairs] for size in values]
    ordered = [
        index
        for index, both in enumerate(zip(*tests, strict=True))
        if all(test.mean for test in both)
    ]
    if not ordered:
        return None
    signs, p = (
        np.array([[getattr(own[i], name) for i in ordered] for own in tests])
        for name in ("mean", "p")
    )
    signs = np.sign(signs)
    verdicts = signs * (p <= ALPHA)
    first, second = np.array(pairs)[ordered].T
    differences, seeds = values[:, first] - values[:, second], values.shape[2]
    chosen = np.random.default_rng(0).integers(seeds, size=(RESAMPLES, seeds))
    resampled = differences[
        ..., chosen[np.ptp(chosen, axis=1) > 0]
    ]  # a single seed has no variance
    # A resample repeats seeds, which lowers its variance by (seeds - 1) / seeds.
    means, error = resampled.mean(axis=-1), resampled.std(axis=-1, ddof=1) / (seeds - 1) ** 0.5
    detected = np.sign(means) * (np.abs(means) >= t.isf(ALPHA / 2, seeds - 1) * error)
    ends = (1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2
    order_range, verdict_range = (
        Interval(CONFIDENCE, *np.quantile(_equal(found) / len(ordered), ends).tolist())
        for found in (np.sign(means), detected)
    )
    both = verdicts[0] * verdicts[1]
    counts = int((both > 0).sum()), int((both < 0).sum())
    return (
        len(ordered),
        int(_equal(signs)),
        order_range,
        int(_equal(verdicts)),
        verdict_range,
        *counts,
    )


def _equal(signs: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return how many pairs have the same sign at both sizes, ``[...]`` of ``[2, pair, ...]``."""
    return np.asarray((signs[0] == signs[1]).sum(axis=0))
