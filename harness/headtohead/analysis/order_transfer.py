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
        order_interval: Interval of the fraction of these pairs, from resampled seeds.
        same_verdict: Number of pairs that are better, worse or undetected at both sizes, by paired t-tests at 5 %,
            not adjusted.
        verdict_interval: Interval of the fraction of these pairs, like ``order_interval``.
        detected: Number of these pairs with a detected difference.
        reversed: Number of pairs with a detected difference at both sizes, in opposite directions.
    """

    small: Scalar
    large: Scalar
    variants: int
    pairs: int
    same_order: int
    order_interval: Interval
    same_verdict: int
    verdict_interval: Interval
    detected: int
    reversed: int


def order_transfer(scores: Scores) -> tuple[OrderTransfer, ...]:
    """Return the transfer from each size to the next one; empty without the axis ``size`` or with a single seed.

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
        if len(common) > 1 and len(seeds) > 1:
            values = np.array([[row[seed] for seed in seeds] for row in rows]).reshape(2, len(common), len(seeds))
            found.append(OrderTransfer(small, large, len(common), *compare_orders(values)))
    return tuple(found)


def compare_orders(values: NDArray[np.float64]) -> tuple[int, int, Interval, int, Interval, int, int]:
    """Return the fields of `OrderTransfer` from ``pairs`` on.

    Args:
        values: Scores at two sizes, ``[2, variant, seed]``.
    """
    first, second = np.triu_indices(values.shape[1], k=1)
    differences = values[:, first] - values[:, second]
    pairs, seeds = len(first), values.shape[2]
    order, verdicts = _equal(np.sign(differences.mean(axis=2))), _verdicts(differences)
    chosen = np.random.default_rng(0).integers(seeds, size=(RESAMPLES, seeds))
    resampled = differences[..., chosen]
    # A resample repeats seeds, which lowers its variance by (seeds - 1) / seeds.
    intervals = [
        Interval(CONFIDENCE, *np.quantile(_equal(found) / pairs, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]).tolist())
        for found in (np.sign(resampled.mean(axis=-1)), _verdicts(resampled, widened=(seeds / (seeds - 1)) ** 0.5))
    ]
    both = verdicts[0] * verdicts[1]
    opposite = int((both < 0).sum())
    return pairs, int(order), intervals[0], int(_equal(verdicts)), intervals[1], int((both > 0).sum()), opposite


def _equal(signs: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return how many pairs have the same sign at both sizes, ``[...]`` of ``[2, pair, ...]``."""
    return np.asarray((signs[0] == signs[1]).sum(axis=0))


def _verdicts(differences: NDArray[np.float64], widened: float = 1.0) -> NDArray[np.float64]:
    """Return the signs of differences ``[..., seed]`` that a paired t-test detects, and 0 for the others."""
    seeds = differences.shape[-1]
    means, error = differences.mean(axis=-1), widened * differences.std(axis=-1, ddof=1) / seeds**0.5
    return np.asarray(np.sign(means) * (np.abs(means) >= t.isf(ALPHA / 2, seeds - 1) * error))
