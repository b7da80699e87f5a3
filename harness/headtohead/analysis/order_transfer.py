"""Order transfer: whether the order of variants at a small size is that at the next larger size.

The part of pairs with equal order is the decision accuracy of DataDecide (I. Magnusson et al., 2025, arXiv:2504.11393,
section 2.3). The interval resamples seeds, because pairs share variants and are not independent.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t

from headtohead.analysis.scores import Scores, Side
from headtohead.config.labels import Scalar
from headtohead.planning.variants import SIZE_AXIS
from headtohead.statistics.paired_tests import ALPHA, CONFIDENCE, Interval

RESAMPLES = 2000


class OrderTransfer(NamedTuple):
    """How many pairs of variants have the same order, and the same verdict, at two successive sizes.

    Attributes:
        small: Label of the smaller size.
        large: Label of the larger size.
        variants: Number of variants that are ranked at both sizes.
        pairs: Number of pairs of them.
        same_order: Number of pairs whose means have the same order.
        interval: Interval of the fraction of these pairs, from resampled seeds; NaN with fewer than two seeds.
        same_verdict: Number of pairs that are better, worse or undetected at both sizes, by paired t-tests at 5 %,
            not adjusted.
        detected: Number of these pairs with a detected difference.
        reversed: Number of pairs with a detected difference at both sizes, in opposite directions.
    """

    small: Scalar
    large: Scalar
    variants: int
    pairs: int
    same_order: int
    interval: Interval
    same_verdict: int
    detected: int
    reversed: int


def order_transfer(scores: Scores) -> tuple[OrderTransfer, ...]:
    """Return the transfer from each size to the next one; empty without the axis ``size``.

    Variants that equal another variant are left out, and so are seeds in which a run collapsed.
    """
    frames, by_size = scores.frames, dict[Scalar, dict[tuple[tuple[str, Scalar], ...], dict[int, float]]]()
    for slug, variant in frames.by_slug.items():
        if SIZE_AXIS in variant.axes and slug in scores.ranked and frames.trained(slug) == slug:
            rest = tuple(item for item in variant.axes.items() if item[0] != SIZE_AXIS)
            by_size.setdefault(variant.axes[SIZE_AXIS], {})[rest] = scores.healthy(Side(slug, scores.metric))
    found = []
    for small, large in itertools.pairwise(by_size):
        common = [rest for rest in by_size[small] if rest in by_size[large]]
        rows = [by_size[size][rest] for size in (small, large) for rest in common]
        seeds = sorted(set.intersection(*map(set, rows))) if rows else []
        if len(common) > 1 and seeds:
            values = np.array([[row[seed] for seed in seeds] for row in rows]).reshape(2, len(common), len(seeds))
            found.append(OrderTransfer(small, large, len(common), *compare_orders(values)))
    return tuple(found)


def compare_orders(values: NDArray[np.float64]) -> tuple[int, int, Interval, int, int, int]:
    """Return the fields of `OrderTransfer` from ``pairs`` on.

    Args:
        values: Scores at two sizes, ``[2, variant, seed]``.
    """
    first, second = np.triu_indices(values.shape[1], k=1)
    differences = values[:, first] - values[:, second]
    seeds = values.shape[2]

    def same_order(means: NDArray[np.float64]) -> NDArray[np.int64]:
        return np.asarray((np.sign(means[0]) == np.sign(means[1])).sum(axis=0))

    order = int(same_order(differences.mean(axis=2)))
    if seeds < 2:
        return len(first), order, Interval(CONFIDENCE, np.nan, np.nan), 0, 0, 0
    chosen = np.random.default_rng(0).integers(seeds, size=(RESAMPLES, seeds))
    fractions = same_order(differences[..., chosen].mean(axis=-1)) / len(first)
    low, high = np.quantile(fractions, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    means, error = differences.mean(axis=2), differences.std(axis=2, ddof=1) / seeds**0.5
    verdicts = np.sign(means) * (np.abs(means) >= t.isf(ALPHA / 2, seeds - 1) * error)
    same, both = int((verdicts[0] == verdicts[1]).sum()), verdicts[0] * verdicts[1]
    interval = Interval(CONFIDENCE, float(low), float(high))
    return len(first), order, interval, same, int((both > 0).sum()), int((both < 0).sum())
